//! The parent of a composite explained: what would be done about its children now, and what will be if nothing
//! but time passes. The plan is the operator's own function's. A policy in Rego is evaluated here, as the
//! operator would; a function behind HTTP is not asked.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use kube::core::DynamicObject;
use oz_api::conditions;
use oz_composites::declared::{Call, Declared, Family, Placed};
use oz_composites::rights::{self, Want};
use oz_composites::supervise::{ACCEPTED, Mode, PolicyFound, WOULD_DELETE};
use oz_composites::{
    Called, Composite, Declaration, Facts, Function as Which, Moment, Pass, Question, ends,
};
use oz_core::controller::{Controller, Decision, Live, Plan, Step, Verdict};
use oz_core::validate::Violation;
use serde_json::Value;

use super::function::{ask, related, rules};
use super::unsaved::keys;
use crate::cluster::Cluster;
use crate::composites::{self, Found, Function, Trouble, objects, placed};
use crate::failure::{Failure, Result};
use crate::names;

/// All that is to be told of a parent.
pub struct Explanation {
    /// Its kind.
    pub kind: Placed,
    /// The parent.
    pub parent: DynamicObject,
    /// One for each composite that looks after it.
    pub composites: Vec<Explained>,
    /// Why composites of the other kind could not be read, if they could not.
    pub unread: Option<Failure>,
}

/// What one composite does about a parent.
pub struct Explained {
    /// The composite.
    pub composite: Declaration,
    /// Where its function is.
    pub function: Option<Function>,
    /// What would be done.
    pub outcome: Outcome,
}

/// What would be done.
pub enum Outcome {
    /// This.
    Told {
        /// The operator's plan.
        plan: Plan,
        /// The children that there are.
        live: Vec<Live>,
        /// What will be different, and when; `None` if no function was asked.
        timeline: Option<Vec<Moment>>,
        /// Whether there may be more after that.
        tried_until: Option<Timestamp>,
        /// The status that the function names.
        status: Option<Value>,
        /// The policy that was asked.
        policy: Option<PolicyFound>,
        /// Why it is not done, or not all of it.
        withheld: Option<Withheld>,
    },
    /// It cannot be told from here.
    Untold {
        /// Why.
        why: String,
        /// The children that there are, by kind and name.
        children: Vec<String>,
        /// When the function is asked again by what the parent names.
        instants: Vec<Timestamp>,
        /// What went wrong with this parent last.
        trouble: Option<Trouble>,
    },
}

/// Why what would be done is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The composite is a dry run: nothing is written.
    DryRun,
    /// Its policy would delete more than it may: nothing is deleted until somebody accepts that.
    WouldDelete,
}

impl Explanation {
    /// Whether it could be told what would be done, and nothing is in the way of it.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        self.composites.iter().all(|one| match &one.outcome {
            Outcome::Told { plan, .. } => plan.obstacle.is_none(),
            Outcome::Untold { .. } => false,
        })
    }
}

/// Explains the object that `word` names by PLURAL[.GROUP]/NAME; `None` if it is no parent's kind. `namespaces`
/// are those of policies.
///
/// # Errors
/// When the composites or the object cannot be read.
pub async fn explain(
    cluster: &Cluster,
    namespaces: &[String],
    word: &str,
) -> Result<Option<Explanation>> {
    let Some((plural, name)) = word.split_once('/') else {
        return Ok(None);
    };
    let name = names::checked(name)?;
    let Found {
        composites: all,
        unread,
    } = match composites::read(cluster, &[]).await {
        Err(failure) if failure.is_not_found() => return Ok(None),
        all => all?,
    };
    let is_of = |composite: &Declaration| {
        let (parent, _) = composites::parent(composite);
        plural == parent.resource || plural == format!("{}.{}", parent.resource, parent.group())
    };
    let of_kind: Vec<Declaration> = all.into_iter().filter(is_of).collect();
    let mut parents = of_kind.iter().map(|one| composites::parent(one).0);
    let Some(first) = parents.next() else {
        return Ok(None);
    };
    let kind = placed(cluster, &first).await?;
    if let Some(other) = parents.find(|other| other.group() != kind.resource.group) {
        return Err(Failure::new(format!("{plural} may be {first} or {other}"))
            .next("write the plural with its group"));
    }
    let parent = match cluster.answer(objects(cluster, &kind).get(name)).await {
        Err(failure) if failure.is_not_found() => {
            return Err(failure.next(format!("`kubectl get {plural}` lists those that are there")));
        }
        parent => parent?,
    };
    let mut explained = Vec::new();
    for composite in of_kind {
        let declared = composites::declared(&composite, namespaces);
        // One that is refused may be its own as well: nobody knows.
        let is_its = declared.as_ref().map_or(true, |declared| {
            let labels = parent.metadata.labels.clone().unwrap_or_default();
            declared.selects(&labels) || declared.holds(&parent.metadata)
        });
        if is_its {
            let (function, outcome) = one(cluster, namespaces, &composite, declared, &parent).await;
            explained.push(Explained {
                composite,
                function,
                outcome,
            });
        }
    }
    Ok(Some(Explanation {
        kind,
        parent,
        composites: explained,
        unread,
    }))
}

async fn one(
    cluster: &Cluster,
    namespaces: &[String],
    composite: &Declaration,
    declared: Result<Declared, Vec<Violation>>,
    parent: &DynamicObject,
) -> (Option<Function>, Outcome) {
    let function = Function::of(composite, namespaces);
    let told = match declared {
        Err(violations) => Err(Failure::new(format!(
            "the composite is not accepted: {}",
            Violation::list(&violations)
        ))),
        Ok(declared) => plan(cluster, composite, declared, parent).await,
    };
    let outcome = told.unwrap_or_else(|failure| Outcome::Untold {
        why: failure.message().to_owned(),
        children: Vec::new(),
        instants: Vec::new(),
        trouble: None,
    });
    (function, outcome)
}

/// What the operator would do, if that can be told.
async fn plan(
    cluster: &Cluster,
    composite: &Declaration,
    declared: Declared,
    parent: &DynamicObject,
) -> Result<Outcome> {
    let family = family(cluster, &declared).await?;
    let keys = keys();
    let mut live = children(cluster, &family, parent).await?;
    for child in &mut live {
        ends::take_on_trust(&keys, child);
    }
    let leaving = composite.metadata().deletion_timestamp.is_some();
    let withheld = withheld(composite, &declared);
    let composite = Composite {
        name: composite.title(),
        declared,
        family,
        observes_generation: false,
        keys,
        // What a dry run would do is the question.
        mode: if leaving { Mode::Leave } else { Mode::Run },
        policy: None,
        // Whoever had a hand in the parent is known to the operator only.
        bindable: None,
    };
    let now = Timestamp::now();
    let mut facts = Facts::default();
    let mut policy = None;
    loop {
        match composite.decide(now, parent, &facts, &live) {
            Verdict::Decided(decision) => {
                return Ok(told(decision, &facts, live, policy, withheld));
            }
            // It has just been read from the API server itself.
            Verdict::Need {
                question: Question::Alive,
                ..
            } => facts.alive = Some(Ok(parent.metadata.deletion_timestamp.is_none())),
            Verdict::Need {
                question: Question::Customize(request),
                ..
            } => {
                let asked = composite.declared.customize.as_ref();
                let Some((call, policy)) =
                    asked.zip(asked.and_then(|call| call.in_process.as_ref()))
                else {
                    let call = asked.unwrap_or(&composite.declared.sync);
                    return Ok(untold(cluster, &composite.declared, call, &request, now).await);
                };
                let metadata = &parent.metadata;
                let named = rules(cluster, policy, call, &request, metadata, now).await?;
                facts.rules = Some(named.map_err(Into::into));
            }
            Verdict::Need {
                question: Question::Related(rules),
                ..
            } => facts.related = Some(Ok(related(cluster, &rules).await?)),
            // Not judged here, and so not asked.
            Verdict::Need {
                question: Question::Rights(wants),
                ..
            } => facts.rights.extend(wants.into_iter().map(unknown)),
            // The operator alone knows how often it has passed.
            Verdict::Need {
                question: Question::Slowed(_),
                ..
            } => facts.slowed = Some(None),
            Verdict::Need {
                question: Question::Call(which, request),
                ..
            } => {
                let call = match (which, &composite.declared.finalize) {
                    (Which::Finalize, Some(finalize)) => finalize,
                    _ => &composite.declared.sync,
                };
                let Some(in_process) = &call.in_process else {
                    return Ok(untold(cluster, &composite.declared, call, &request, now).await);
                };
                let (asked, called) = ask(cluster, in_process, call, &request, now).await?;
                policy = asked;
                facts.called = Some(called.map_err(Into::into));
            }
        }
    }
}

/// What the operator alone finds out.
fn unknown(want: Want) -> (Want, rights::Found) {
    let why = || {
        oz_core::controller::Failure::transient("Unknown", "only the operator knows the authors")
    };
    let (lacks, rules) = (Err(why()), Err(why()));
    (want, rights::Found { lacks, rules })
}

fn told(
    decision: Decision<Pass>,
    facts: &Facts,
    live: Vec<Live>,
    policy: Option<PolicyFound>,
    withheld: Option<Withheld>,
) -> Outcome {
    let called = match &facts.called {
        Some(Ok(called)) => Some(called),
        _ => None,
    };
    let mut plan = decision.plan;
    for step in plan.stages.iter_mut().flatten() {
        if let Step::Apply(child) = step {
            ends::unseal(child);
        }
    }
    Outcome::Told {
        plan,
        live,
        timeline: called.map(Called::timeline),
        tried_until: called.and_then(|called| called.look_again),
        status: decision.state.status.map(Value::Object),
        policy,
        withheld,
    }
}

/// Why what would be done is not done.
fn withheld(composite: &Declaration, declared: &Declared) -> Option<Withheld> {
    let conditions = composite.standing().map(|status| &status.conditions[..]);
    let accepted = conditions::find(conditions.unwrap_or_default(), ACCEPTED);
    let waits = accepted.is_some_and(|condition| condition.reason == WOULD_DELETE);
    match declared.dry_run {
        true => Some(Withheld::DryRun),
        false => waits.then_some(Withheld::WouldDelete),
    }
}

/// What is known of a parent whose function is behind HTTP.
async fn untold(
    cluster: &Cluster,
    declared: &Declared,
    call: &Call,
    request: &Value,
    now: Timestamp,
) -> Outcome {
    let kinds = request["children"].as_object().into_iter().flatten();
    let children = kinds.flat_map(|(kind, children)| {
        let (kind, _) = kind.split_once('.').unwrap_or((kind, ""));
        let names = children.as_object().into_iter().flatten();
        names.map(move |(name, _)| format!("{kind} {name}"))
    });
    let metadata = &request["parent"]["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let namespace = metadata["namespace"].as_str().unwrap_or("default");
    let events = Api::<Event>::namespaced(cluster.client.clone(), namespace);
    let selector = ListParams::default().fields(&format!("regarding.name={name},type=Warning"));
    let events = cluster.answer(events.list(&selector)).await;
    let events = events.map(|list| list.items).unwrap_or_default();
    let begin = format!("{} (", declared.name);
    let own = events.iter().filter(|event| {
        let uid = event
            .regarding
            .as_ref()
            .and_then(|object| object.uid.as_deref());
        let note = event.note.as_deref().unwrap_or_default();
        uid == metadata["uid"].as_str() && note.starts_with(&begin)
    });
    Outcome::Untold {
        why: format!(
            "its function is behind HTTP at {}, which the operator alone asks: from here it may not be \
             reached, and asking is not without effect for all functions",
            call.url
        ),
        children: children.collect(),
        instants: ends::instants(&request["parent"], now),
        trouble: composites::newest(own),
    }
}

/// The kinds of a composite.
async fn family(cluster: &Cluster, declared: &Declared) -> Result<Family> {
    let parent = placed(cluster, &declared.parent).await?;
    let mut children = Vec::new();
    for (name, method) in &declared.children {
        children.push((placed(cluster, name).await?, *method));
    }
    Ok(Family { parent, children })
}

/// All objects of the kinds of children where a parent's may be.
async fn children(cluster: &Cluster, family: &Family, parent: &DynamicObject) -> Result<Vec<Live>> {
    let mut live = Vec::new();
    for (kind, _) in &family.children {
        let api = match family.parent.cluster_scoped || kind.cluster_scoped {
            true => Api::all_with(cluster.client.clone(), &kind.resource),
            false => objects(cluster, kind),
        };
        let list = cluster.answer(api.list(&ListParams::default())).await?;
        let uid = parent.metadata.uid.as_deref().unwrap_or_default();
        // What others control is no child, and may be much.
        let may_be_own = |object: &DynamicObject| {
            let owner = oz_api::labels::controller(&object.metadata);
            owner.is_none_or(|owner| owner.uid == uid)
        };
        live.extend(
            list.items
                .into_iter()
                .filter(may_be_own)
                .map(|object| Live {
                    resource: kind.resource.clone(),
                    object,
                }),
        );
    }
    Ok(live)
}
