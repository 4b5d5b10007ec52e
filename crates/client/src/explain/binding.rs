//! An explanation of a transient binding: its terms, its status, and the rules as they apply now. The plan is the
//! operator's own, for such an object created now. The list of roles that may be bound is in the operator's
//! configuration: if it is not known, the explanation states that.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use oz_api::{BindingStatus, Phase, Requester, RoleKind, RoleReference};
use oz_core::access::extra::Extra;
use oz_core::access::policy::Judgement;
use oz_core::access::stamp;
use oz_core::controller::{Controller, Failure as CoreFailure, Plan};
use oz_core::lifecycle::window::has_come;
use oz_core::transient::{
    BindableRoles, Binding, Facts, Kind, Listed, Lookup, Policy, Position, RolePattern,
    StoredBinding, Terms, Transient, may_bind,
};

use super::extra;
use super::operator::{Configured, Source};
use super::policies::{self, Judged};
use super::unsaved::{Unsaved, keys};
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::locks;

/// A rule, as it applies now. `None` if that cannot be determined from here.
pub struct Rule {
    /// The name of the rule.
    pub name: &'static str,
    /// True if the rule holds.
    pub holds: Option<bool>,
    /// The reason.
    pub message: String,
}

impl Rule {
    fn new(name: &'static str, holds: Option<bool>, message: impl Into<String>) -> Self {
        Self {
            name,
            holds,
            message: message.into(),
        }
    }
}

/// The explanation of a transient binding.
pub struct Explanation {
    /// The object, without its managed fields.
    pub view: View,
    /// True if the role is bound, or would be bound.
    pub holds: bool,
    /// The requester.
    pub requester: Requester,
    /// The extra attributes of the requester that access policies read.
    pub extra: Extra,
    /// The rules, and whether they hold.
    pub rules: Vec<Rule>,
    /// The plan; `None` if its input cannot be read.
    pub plan: Option<Plan>,
    /// The source of the operator's configuration.
    pub configuration: Source,
}

/// The data of an object.
pub struct View {
    /// Kind.
    pub kind: String,
    /// `None` for the whole cluster.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// The terms, if they are valid.
    pub terms: Option<Terms>,
    /// The status.
    pub status: Option<BindingStatus>,
}

/// Explains a binding.
pub async fn explain<K: Kind>(
    cluster: &Cluster,
    configured: &Configured,
    object: &K,
) -> Result<Explanation> {
    let now = Timestamp::now();
    let binding = object.stored()?;
    // The requester in the webhook's stamp; only the operator can verify the stamp, and its status reports the result.
    let requester = stamp::read(binding.metadata)
        .and_then(|text| serde_json::from_str::<Requester>(text).ok())
        .unwrap_or_default();
    let mut rules = Vec::new();
    let mut plan = None;
    match &binding.terms {
        Err(violations) => {
            let wrong = |one| Rule::new("spec", Some(false), format!("{one}"));
            rules.extend(violations.iter().map(wrong));
        }
        Ok(terms) => {
            let policy = policy(configured, &binding, terms)?;
            rules.push(window(terms, &binding, now));
            let content = content(cluster, terms, binding.namespace()).await;
            let permits = policy.permits(terms, binding.namespace(), binding.created());
            let listed = *permits.as_ref().unwrap_or(&Listed::ByPattern);
            let listed = if configured.is_known() {
                listed
            } else {
                Listed::ByPattern
            };
            let place = binding.namespace();
            rules.push(role(&terms.role, listed, place, content.as_ref()));
            let may = may(cluster, &requester, binding.namespace(), &terms.role).await;
            rules.push(right(&requester, &terms.role, may.as_ref()));
            rules.push(list(configured, permits));
            let locks = locks::seen(cluster).await;
            let access = terms.access(&requester, binding.namespace());
            let lock = locks.against(&access, now);
            rules.extend(lock.map(|lock| Rule::new("locks", Some(false), lock.to_string())));
            let judged = policies::sealed_of(&binding);
            rules.extend(agreed(&judged, &binding, &requester));
            if let (Ok(content), Ok(may)) = (content, may) {
                let lookup = Lookup {
                    role: Ok(content),
                    may_bind: Ok(may),
                    taken: Ok(false),
                };
                let facts = Facts {
                    locks,
                    // The number of other bindings of the requester that wait cannot be determined from here.
                    waiting: Some(Vec::new()),
                    same_stamp: Some(None),
                    lookup: Some(lookup),
                    // Neither can the number of unreviewed emergencies.
                    unreviewed: Some(Ok(Vec::new())),
                    ..Facts::default()
                };
                let asks = (&requester, judged.judgement);
                plan = planned(object, policy, asks, &facts, now)?;
            }
        }
    }
    Ok(Explanation {
        holds: match binding.status.map(|status| status.phase) {
            None | Some(Phase::Pending) => rules.iter().all(|rule| rule.holds != Some(false)),
            Some(phase) => phase == Phase::Active,
        },
        view: View {
            kind: binding.kind.to_owned(),
            namespace: binding.namespace().map(ToOwned::to_owned),
            name: binding.name().to_owned(),
            status: binding.status.cloned(),
            terms: binding.terms.as_ref().ok().cloned(),
        },
        requester,
        extra: extra::sealed(binding.metadata),
        rules,
        plan,
        configuration: configured.source.clone(),
    })
}

/// Returns the judgement of the access policies at the creation, if there is one, or if the binding is an emergency.
fn agreed(judged: &Judged, binding: &Binding<'_>, requester: &Requester) -> Vec<Rule> {
    let (judgement, ask) = (judged.judgement.as_ref(), binding.ask());
    if judgement.is_none() && !ask.emergency {
        return Vec::new();
    }
    let policies = match binding.permitted(judgement, requester) {
        Err(denial) => Rule::new("policies", Some(false), denial.message),
        Ok(()) => Rule::new("policies", Some(true), judged.effect()),
    };
    // An emergency requires no approvals.
    let required = judgement.filter(|judgement| judgement.approval.is_some() && !ask.emergency);
    let approval = required.map(|_| match &judged.missing {
        Some(missing) => Rule::new("approval", Some(false), missing),
        None => Rule::new("approval", None, "approvals are required"),
    });
    std::iter::once(policies).chain(approval).collect()
}

/// Returns the operator's policy for bindings. If the configuration is not known, it allows only this role.
fn policy(configured: &Configured, binding: &Binding<'_>, terms: &Terms) -> Result<Policy> {
    if configured.is_known() {
        return Ok(configured.settings.policy.clone());
    }
    let entry = match (terms.role.kind, binding.namespace()) {
        (RoleKind::Role, Some(namespace)) => format!("{namespace}/{}", terms.role.name),
        _ => terms.role.name.clone(),
    };
    let entry: RolePattern = entry
        .parse()
        .map_err(|error| Failure::new(format!("{error}")))?;
    Ok(Policy {
        roles: BindableRoles(vec![entry]),
        longest: SignedDuration::MAX,
        longest_in: BTreeMap::new(),
        longest_lead: SignedDuration::MAX,
        most_waiting: 0,
        own_namespace: String::new(),
    })
}

fn list(configured: &Configured, permits: Result<Listed, CoreFailure>) -> Rule {
    if !configured.is_known() {
        return Rule::new(
            "list",
            None,
            "the section transient of the configuration lists the bindable roles, with the maximum \
                window and lead",
        );
    }
    match permits {
        Ok(_) => Rule::new("list", Some(true), "oz may bind it, for as long as this"),
        Err(failure) => Rule::new("list", Some(false), failure.message),
    }
}

/// Rounds an instant to seconds, for messages.
fn seconds(at: Timestamp) -> Timestamp {
    at.round(jiff::Unit::Second).unwrap_or(at)
}

fn window(terms: &Terms, binding: &StoredBinding<'_>, now: Timestamp) -> Rule {
    if let Some(why) = terms.never() {
        return Rule::new("window", Some(false), why);
    }
    let status = binding.status;
    let end = status.and_then(|status| status.expires_at);
    match terms.position(now, binding.created()) {
        _ if end.is_some_and(|end| has_come(now, end)) => {
            Rule::new("window", Some(false), "it has ended")
        }
        Position::After => Rule::new("window", Some(false), "it has ended"),
        Position::Before(opens) => Rule::new(
            "window",
            Some(true),
            format!("it opens at {}", seconds(opens)),
        ),
        Position::Inside(until) => {
            let until = end.unwrap_or(until);
            Rule::new(
                "window",
                Some(true),
                format!("it is open until {}", seconds(until)),
            )
        }
    }
}

fn role(
    role: &RoleReference,
    listed: Listed,
    namespace: Option<&str>,
    content: Result<&Option<Vec<PolicyRule>>, &Failure>,
) -> Rule {
    let title = format!("{} {}", role.kind, role.name);
    match content {
        Err(why) => Rule::new(
            "role",
            None,
            format!("{title} cannot be read: {}", why.message()),
        ),
        Ok(None) => Rule::new("role", Some(false), format!("there is no {title}")),
        Ok(Some(rules)) => match Policy::permits_content(role, listed, rules, namespace) {
            Ok(_) => Rule::new(
                "role",
                Some(true),
                format!("{title} has no dangerous rights"),
            ),
            Err(why) => Rule::new("role", None, why.message),
        },
    }
}

fn right(requester: &Requester, role: &RoleReference, may: Result<&bool, &Failure>) -> Rule {
    let (user, title) = (&requester.user, format!("{} {}", role.kind, role.name));
    match may {
        _ if user.is_empty() => Rule::new("requester", Some(false), "the requester is unknown"),
        Err(why) => Rule::new("requester", None, format!("unknown: {}", why.message())),
        Ok(true) => Rule::new("requester", Some(true), format!("{user} may bind {title}")),
        Ok(false) => Rule::new(
            "requester",
            Some(false),
            format!("{user} may not bind {title}"),
        ),
    }
}

async fn content(
    cluster: &Cluster,
    terms: &Terms,
    namespace: Option<&str>,
) -> Result<Option<Vec<PolicyRule>>> {
    let name = &terms.role.name;
    let rules = match (terms.role.kind, namespace) {
        (RoleKind::Role, Some(namespace)) => {
            let api = Api::<Role>::namespaced(cluster.client.clone(), namespace);
            cluster
                .answer(api.get_opt(name))
                .await?
                .map(|role| role.rules)
        }
        _ => {
            let api = Api::<ClusterRole>::all(cluster.client.clone());
            cluster
                .answer(api.get_opt(name))
                .await?
                .map(|role| role.rules)
        }
    };
    Ok(rules.map(|rules| rules.into_iter().flatten().collect()))
}

async fn may(
    cluster: &Cluster,
    requester: &Requester,
    namespace: Option<&str>,
    role: &RoleReference,
) -> Result<bool> {
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let review = may_bind(requester, namespace, role);
    let answer = cluster
        .answer(reviews.create(&PostParams::default(), &review))
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Returns the operator's plan for such an object, if it were created now; `None` if a fact is missing.
fn planned<K: Kind>(
    object: &K,
    policy: Policy,
    (requester, judgement): (&Requester, Option<Judgement>),
    facts: &Facts,
    now: Timestamp,
) -> Result<Option<Plan>> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let view = object.stored()?;
    let mut value = serde_json::to_value(object).map_err(|error| failed(&error))?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    let mut unsaved: K = serde_json::from_value(value).map_err(|error| failed(&error))?;
    let metadata = Unsaved {
        requester,
        kind: view.kind.to_owned(),
        namespace: view.namespace(),
        name: view.name(),
        spec_digest: view.spec_digest.clone(),
        at: now,
        judgement,
    };
    *unsaved.meta_mut() = ObjectMeta {
        finalizers: object.meta().finalizers.clone(),
        ..metadata.metadata()?
    };
    let controller = Transient::<K>::new(keys(), Arc::new(policy));
    let decision = controller.decide(now, &unsaved, facts, &[]).decided();
    Ok(decision.map(|decision| decision.plan))
}
