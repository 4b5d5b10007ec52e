//! An explanation of the parent of a composite: the changes to its children now, and the later changes that depend
//! only on time. The operator's own function creates the plan. A Rego policy is evaluated here, as the operator would;
//! a function behind HTTP is not called.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use kube::core::DynamicObject;
use oz_api::conditions;
use oz_composites::declared::{Call, Declared, Family, Placed};
use oz_composites::related::{Related, Rule};
use oz_composites::rights::{self, Want};
use oz_composites::supervise::{ACCEPTED, DELETION_LIMIT_EXCEEDED, Mode, PolicyFound};
use oz_composites::{
    Called, Composite, Declaration, Facts, Function as Which, Moment, Pass, Question, ends,
};
use oz_core::controller::{
    Controller, Decision, Failure as CoreFailure, Live, Plan, Step, Verdict,
};
use oz_core::lifecycle::window::has_come;
use oz_core::validate::Violation;
use serde_json::Value;

use super::function::{Policies, related};
use super::hook::Hook;
use super::unsaved::keys;
use crate::cluster::Cluster;
use crate::composites::{self, Found, Function, Trouble, objects, placed};
use crate::failure::{Failure, Result};
use crate::names;

/// The explanation of a parent.
pub struct Explanation {
    /// The kind of the parent.
    pub kind: Placed,
    /// The parent.
    pub parent: DynamicObject,
    /// The explanations, one for each composite that reconciles the parent.
    pub composites: Vec<Explained>,
    /// The reason why composites of the other kind could not be read, if they could not.
    pub unread: Option<Failure>,
}

/// The actions of one composite for a parent.
pub struct Explained {
    /// The composite.
    pub composite: Declaration,
    /// The location of its function.
    pub function: Option<Function>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The actions that the operator would take.
pub enum Outcome {
    /// The plan is known.
    Told {
        /// The operator's plan.
        plan: Plan,
        /// The existing children.
        live: Vec<Live>,
        /// The later changes and their instants; `None` if no function was called.
        timeline: Option<Vec<Moment>>,
        /// The instant after which there may be further changes.
        tried_until: Option<Timestamp>,
        /// The status that the function returns.
        status: Option<Value>,
        /// The Rego policy that was evaluated.
        policy: Option<PolicyFound>,
        /// The reason why the plan is not carried out, or not completely.
        withheld: Option<Withheld>,
    },
    /// The plan cannot be determined from here.
    Untold {
        /// The reason.
        why: String,
        /// The existing children, by kind and name.
        children: Vec<String>,
        /// The instants at which the function is called again, from the parent.
        instants: Vec<Timestamp>,
        /// The last error of this parent.
        trouble: Option<Trouble>,
    },
}

/// The reason why a plan is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The composite is a dry run: it writes no object.
    DryRun,
    /// The composite's policy would delete more than it may: it deletes no object until a user accepts that.
    DeletionLimitExceeded,
}

impl Explanation {
    /// Checks whether the outcomes are known, and no plan has an obstacle.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        self.composites.iter().all(|one| match &one.outcome {
            Outcome::Told { plan, .. } => plan.obstacle.is_none(),
            Outcome::Untold { .. } => false,
        })
    }
}

/// Explains the object that `word` names by PLURAL[.GROUP]/NAME; `None` if it is not a parent's kind. `namespaces` are
/// those of Rego policies.
///
/// # Errors
/// The composites or the object cannot be read.
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
        return Err(
            Failure::new(format!("{plural} is ambiguous: {first} or {other}"))
                .next("write the plural with its group"),
        );
    }
    let parent = match cluster.answer(objects(cluster, &kind).get(name)).await {
        Err(failure) if failure.is_not_found() => {
            return Err(failure.next(format!("`kubectl get {plural}` lists the existing ones")));
        }
        parent => parent?,
    };
    let mut explained = Vec::new();
    for composite in of_kind {
        let declared = composites::declared(&composite, namespaces);
        // A composite that is not accepted may select the parent as well: that is not known.
        let is_its = declared.as_ref().map_or(true, |declared| {
            let labels = parent.metadata.labels.clone().into_iter().flatten();
            declared.selects(&labels.collect()) || declared.holds(&parent.metadata)
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
    let function = Function::from_declaration(composite, namespaces);
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

/// Returns the operator's plan, if it can be determined.
async fn plan(
    cluster: &Cluster,
    composite: &Declaration,
    declared: Declared,
    parent: &DynamicObject,
) -> Result<Outcome> {
    let family = family(cluster, &declared).await?;
    let live = children(cluster, &family, parent).await?;
    let mut planner = Planner {
        cluster: Some(cluster),
        policies: Policies::new(Some(cluster), &[]),
        hook: None,
        withheld: withheld(composite, &declared),
        composite: as_operator(composite, declared, family),
        now: Timestamp::now(),
    };
    planner.plan(parent, live).await
}

/// Returns a composite as the operator runs it.
pub(crate) fn as_operator(
    composite: &Declaration,
    declared: Declared,
    family: Family,
) -> Composite {
    let leaving = composite.metadata().deletion_timestamp.is_some();
    Composite {
        name: composite.title(),
        declared,
        family,
        observes_generation: false,
        keys: keys(),
        // The plan shows the effects of a dry run.
        mode: if leaving { Mode::Leave } else { Mode::Run },
        policy: None,
        // Only the operator knows the authors of the parent.
        bindable: None,
    }
}

/// The plans of one composite.
pub(crate) struct Planner<'a> {
    /// The cluster with the objects that a function selects.
    pub(crate) cluster: Option<&'a Cluster>,
    /// The Rego policies.
    pub(crate) policies: Policies<'a>,
    /// The server that is called for functions behind HTTP; if there is none, such a plan is not known.
    pub(crate) hook: Option<Hook>,
    /// The composite.
    pub(crate) composite: Composite,
    /// The reason why plans are not carried out.
    pub(crate) withheld: Option<Withheld>,
    /// The instant of the plan.
    pub(crate) now: Timestamp,
}

impl Planner<'_> {
    /// Returns the operator's plan for a parent with these objects of the kinds of children.
    pub(crate) async fn plan(
        &mut self,
        parent: &DynamicObject,
        mut live: Vec<Live>,
    ) -> Result<Outcome> {
        for child in &mut live {
            ends::take_on_trust(&self.composite.keys, child);
        }
        let mut facts = Facts {
            stored: Some(Vec::new()),
            ..Facts::default()
        };
        let mut policy = None;
        loop {
            let question = match self.composite.decide(self.now, parent, &facts, &live) {
                Verdict::Decided(decision) => {
                    let withheld = self.withheld;
                    let mut outcome = build_outcome(decision, &facts, live, policy, withheld);
                    self.add_end(parent, &mut outcome);
                    return Ok(outcome);
                }
                Verdict::Need { question, .. } => question,
            };
            match question {
                // The parent has just been read.
                Question::Alive => {
                    facts.alive = Some(Ok(parent.metadata.deletion_timestamp.is_none()));
                }
                Question::Customize(request) => match self.customize(&request, parent).await? {
                    Some(rules) => facts.rules = Some(rules.map_err(Into::into)),
                    None => {
                        let declared = &self.composite.declared;
                        let call = declared.customize.as_ref().unwrap_or(&declared.sync);
                        return Ok(self.untold(call, &request).await);
                    }
                },
                Question::Related(rules) => facts.related = Some(Ok(self.related(&rules).await?)),
                // Rights are not checked here, so the API server is not asked.
                Question::Rights(wants) => facts.rights.extend(wants.into_iter().map(unknown)),
                // Only the operator knows the number of passes.
                Question::Slowed(_) => facts.slowed = Some(None),
                // Nothing is written here, also not as a dry run.
                Question::Stored(doubts) => {
                    let stored = doubts.into_iter().map(|doubt| {
                        let unchanged = doubt.lacks_only_empty();
                        (doubt, unchanged)
                    });
                    facts.stored.get_or_insert_default().extend(stored);
                }
                // The operator calls the function with them afterwards.
                Question::Expired(children) => facts.expired = Some(children),
                Question::Call(which, request) => {
                    let declared = &self.composite.declared;
                    let call = match (which, &declared.finalize) {
                        (Which::Finalize, Some(finalize)) => finalize,
                        _ => &declared.sync,
                    };
                    let called = match (&call.in_process, &self.hook) {
                        (Some(in_process), _) => {
                            let asked = self.policies.ask(in_process, call, &request, self.now);
                            let (asked, called) = asked.await?;
                            policy = asked;
                            called
                        }
                        (None, Some(hook)) => hook.call(call, &request).await,
                        (None, None) => return Ok(self.untold(call, &request).await),
                    };
                    facts.called = Some(called.map_err(Into::into));
                }
            }
        }
    }

    /// Adds the deletion of the parent itself to the later changes.
    fn add_end(&self, parent: &DynamicObject, outcome: &mut Outcome) {
        let end = self.composite.parent_end(parent);
        let Some(end) = end.filter(|end| !has_come(self.now, *end)) else {
            return;
        };
        let Outcome::Told { timeline, .. } = outcome else {
            return;
        };
        let kind = &self.composite.family.parent.resource.kind;
        let namespace = parent.metadata.namespace.as_deref();
        let name = parent.metadata.name.as_deref();
        let place: Vec<&str> = namespace.into_iter().chain(name).collect();
        let title = format!("{kind} {}", place.join("/"));
        let moments = timeline.get_or_insert_default();
        match moments.iter_mut().find(|moment| moment.at == end) {
            Some(moment) => moment.go.push(title),
            None => moments.push(Moment::going(end, title)),
        }
        moments.sort_by_key(|moment| moment.at);
    }

    /// Returns the rules for related objects; `None` if only the operator calls the function.
    async fn customize(
        &mut self,
        request: &Value,
        parent: &DynamicObject,
    ) -> Result<Option<std::result::Result<Vec<Rule>, CoreFailure>>> {
        let Some(call) = &self.composite.declared.customize else {
            return Ok(None);
        };
        let metadata = &parent.metadata;
        if let Some(policy) = &call.in_process {
            let rules = self
                .policies
                .rules(policy, call, request, metadata, self.now);
            return Ok(Some(rules.await?));
        }
        Ok(match &self.hook {
            Some(hook) => Some(hook.rules(call, request, metadata).await),
            None => None,
        })
    }

    async fn related(&self, rules: &[Rule]) -> Result<Vec<Related>> {
        match self.cluster {
            Some(cluster) => related(cluster, rules).await,
            None if rules.is_empty() => Ok(Vec::new()),
            None => Err(Failure::new(
                "the function reads related objects, which only a cluster has",
            )
            .next("run the command without --parent, in a cluster")),
        }
    }

    /// Returns the known facts about a parent with a function behind HTTP.
    async fn untold(&self, call: &Call, request: &Value) -> Outcome {
        let kinds = request["children"].as_object().into_iter().flatten();
        let children = kinds.flat_map(|(kind, children)| {
            let (kind, _) = kind.split_once('.').unwrap_or((kind, ""));
            let names = children.as_object().into_iter().flatten();
            names.map(move |(name, _)| format!("{kind} {name}"))
        });
        let metadata = &request["parent"]["metadata"];
        Outcome::Untold {
            why: format!(
                "its function is behind HTTP at {}, which only the operator calls: it may not be \
                 reachable from here, and a call may have effects",
                call.url
            ),
            children: children.collect(),
            instants: ends::instants(&request["parent"], self.now),
            trouble: match self.cluster {
                Some(cluster) => trouble(cluster, &self.composite.declared, metadata).await,
                None => None,
            },
        }
    }
}

/// Returns the result for facts that only the operator can determine.
fn unknown(want: Want) -> (Want, rights::Found) {
    let why = || CoreFailure::transient("Unknown", "only the operator knows the authors");
    let (lacks, rules) = (Err(why()), Err(why()));
    (want, rights::Found { lacks, rules })
}

fn build_outcome(
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

/// Returns the reason why the plan is not carried out.
pub(crate) fn withheld(composite: &Declaration, declared: &Declared) -> Option<Withheld> {
    let status = composite.standing();
    let accepted = status.and_then(|status| conditions::find(&status.conditions, ACCEPTED));
    let waits = accepted.is_some_and(|condition| condition.reason == DELETION_LIMIT_EXCEEDED);
    match declared.dry_run {
        true => Some(Withheld::DryRun),
        false => waits.then_some(Withheld::DeletionLimitExceeded),
    }
}

/// Returns the last error of a parent, if the user may read its events.
async fn trouble(cluster: &Cluster, declared: &Declared, metadata: &Value) -> Option<Trouble> {
    let (name, uid) = (metadata["name"].as_str()?, metadata["uid"].as_str()?);
    let namespace = metadata["namespace"].as_str().unwrap_or("default");
    let events = Api::<Event>::namespaced(cluster.client.clone(), namespace);
    let selector = ListParams::default().fields(&format!("regarding.name={name},type=Warning"));
    let events = cluster.answer(events.list(&selector)).await.ok()?;
    let begin = format!("{} (", declared.name);
    let own = events.iter().filter(|event| {
        let regarding = event.regarding.as_ref();
        let is_its = regarding.is_some_and(|object| object.uid.as_deref() == Some(uid));
        let note = event.note.as_deref();
        is_its && note.is_some_and(|note| note.starts_with(&begin))
    });
    composites::newest(own)
}

/// Returns the kinds of a composite.
pub(crate) async fn family(cluster: &Cluster, declared: &Declared) -> Result<Family> {
    let parent = placed(cluster, &declared.parent).await?;
    let mut children = Vec::new();
    for (name, method) in &declared.children {
        children.push((placed(cluster, name).await?, *method));
    }
    Ok(Family { parent, children })
}

/// Lists all objects of the kinds of children where a parent's children may be.
async fn children(cluster: &Cluster, family: &Family, parent: &DynamicObject) -> Result<Vec<Live>> {
    let mut live = Vec::new();
    for (kind, _) in &family.children {
        let api = match family.parent.cluster_scoped || kind.cluster_scoped {
            true => Api::all_with(cluster.client.clone(), &kind.resource),
            false => objects(cluster, kind),
        };
        let list = cluster.answer(api.list(&ListParams::default())).await?;
        let uid = parent.metadata.uid.as_deref();
        // An object of another controller is not a child, and there may be many.
        let may_be_own = |object: &DynamicObject| {
            let owner = oz_api::labels::controller(&object.metadata);
            owner.is_none_or(|owner| uid == Some(&owner.uid[..]))
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
