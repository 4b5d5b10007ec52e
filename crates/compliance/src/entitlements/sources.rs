//! The entitlements that the objects and configuration of oz define: templates, approval rules, emergencies, roles that
//! may be bound for a limited time, transient bindings with windows that open later, break-glass groups.

use jiff::Timestamp;
use oz_api::harness::{ClusterHarnessTemplate, HarnessTemplate, HarnessTemplateSpec};
use oz_api::kind::Kind as _;
use oz_api::{
    AccessConfig, AccessPolicy, AccessPolicySpec, ApprovalRule, EmergencyConfig, Escalation,
    IdentityError, Name, Namespace,
};
use oz_core::kinds::AccessTemplate;
use oz_core::transient::{Closes, StoredBinding};

use super::{EVERYWHERE, Entitlement, EntitlementKind, SubjectKind};

/// The permission of a harness run.
const RUNS: &str = "start harness runs";
/// The permission of a transient binding.
const BINDINGS: &str = "bind roles";

/// Returns the entitlements that a template defines: to request access, and to approve the requests of others.
///
/// # Errors
/// If the template has no namespace: its entitlements would be those in all namespaces.
pub fn of_template<T: AccessTemplate>(template: &T) -> Result<Vec<Entitlement>, IdentityError> {
    let config = template.config();
    let namespace = template.meta().namespace.as_deref();
    let namespace = namespace.ok_or_else(|| IdentityError::Missing {
        name: template.name().to_owned(),
        field: "metadata.namespace",
    })?;
    let source = format!("{} {namespace}/{}", T::title(), template.name());
    let mut permits: Vec<String> = template
        .hands_out()
        .iter()
        .map(ToString::to_string)
        .collect();
    permits.sort();
    let limits = limits(config);
    let allowed = subjects(&config.allowed_groups, &config.allowed_users);
    let allowed = allowed.map(|(kind, name)| Entitlement {
        way: EntitlementKind::Request,
        namespace: namespace.to_owned(),
        kind,
        subject: name.clone(),
        permits: permits.clone(),
        objects: Vec::new(),
        source: source.clone(),
        limits: limits.clone(),
    });
    let mut found: Vec<Entitlement> = allowed.collect();
    let emergency = config.emergency.iter();
    found.extend(emergency.flat_map(|config| of_emergency(config, (namespace, &source), &permits)));
    let approval = config.approval.iter();
    found.extend(
        approval.flat_map(|config| of_rules(&config.rules, (namespace, &source), &permits)),
    );
    Ok(found)
}

/// Returns the entitlements that a harness template of a namespace defines: to approve the runs of others, and to declare
/// runs emergencies. A template that inherits also has those of its base, which apply to all namespaces.
///
/// # Errors
/// If the template has no namespace or name.
pub fn of_harness_template(template: &HarnessTemplate) -> Result<Vec<Entitlement>, IdentityError> {
    let namespace = Namespace::from_metadata(&template.metadata)?.as_str();
    let name = Name::from_metadata(&template.metadata)?;
    let source = format!("{} {namespace}/{name}", HarnessTemplate::title());
    Ok(of_runs(&template.spec, (namespace, &source)))
}

/// Returns the entitlements that a harness template of the cluster defines.
///
/// # Errors
/// If the template has no name.
pub fn of_cluster_harness_template(
    template: &ClusterHarnessTemplate,
) -> Result<Vec<Entitlement>, IdentityError> {
    let name = Name::from_metadata(&template.metadata)?;
    let source = format!("{} {name}", ClusterHarnessTemplate::title());
    Ok(of_runs(&template.spec.0, (EVERYWHERE, &source)))
}

fn of_runs(template: &HarnessTemplateSpec, place: (&str, &str)) -> Vec<Entitlement> {
    let permits = [RUNS.to_owned()];
    let approval = template.approval.iter();
    let approve = approval.flat_map(|config| of_rules(&config.rules, place, &permits));
    let emergency = template.emergency.iter();
    let emergency = emergency.filter(|_| template.base_template_ref.is_none());
    let emergency = emergency.flat_map(|config| of_emergency(config, place, &permits));
    approve.chain(emergency).collect()
}

/// Returns the entitlements that an access policy defines: to approve the requests, transient bindings and harness runs
/// of others, and to declare transient bindings emergencies.
///
/// # Errors
/// If the access policy has no name.
pub fn of_policy(policy: &AccessPolicy) -> Result<Vec<Entitlement>, IdentityError> {
    let name = Name::from_metadata(&policy.metadata)?;
    let AccessPolicySpec { r#match, then, .. } = &policy.spec;
    if then.deny.is_some() {
        return Ok(Vec::new());
    }
    let source = format!("{} {name}", AccessPolicy::title());
    let place = (EVERYWHERE, source.as_str());
    let all = ["get access to pods", BINDINGS, RUNS].map(ToOwned::to_owned);
    let approval = then.approval.iter();
    let approve = approval.flat_map(|config| of_rules(&config.rules, place, &all));
    let approve = approve.map(|one| Entitlement {
        limits: format!("{}; where {}", one.limits, r#match),
        ..one
    });
    let bindings = [BINDINGS.to_owned()];
    let emergency = then.emergency.iter();
    let emergency = emergency.flat_map(|config| of_emergency(config, place, &bindings));
    let emergency = emergency.map(|one| Entitlement {
        limits: format!(
            "{}; with the verb bind on the role; where {} and no other AccessPolicy prevents it",
            one.limits, r#match
        ),
        ..one
    });
    Ok(approve.chain(emergency).collect())
}

/// Returns the entitlements of the users and groups in these approval rules of a source.
fn of_rules(
    rules: &[ApprovalRule],
    (namespace, source): (&str, &str),
    permits: &[String],
) -> Vec<Entitlement> {
    let mut found = Vec::new();
    for rule in rules {
        let ApprovalRule {
            name,
            groups,
            users,
            approvals,
            notify: _,
            escalation,
        } = rule;
        let mut add = |groups: &[String], users: &[String], limits: &str| {
            found.extend(subjects(groups, users).map(|(kind, subject)| Entitlement {
                way: EntitlementKind::Approve,
                namespace: namespace.to_owned(),
                kind,
                subject: subject.clone(),
                permits: permits.to_vec(),
                objects: Vec::new(),
                source: format!("{source}, rule {name}"),
                limits: limits.to_owned(),
            }));
        };
        let limits = format!("{approvals} must approve; nobody for themselves");
        add(groups, users, &limits);
        if let Some(Escalation {
            after,
            groups,
            users,
            ..
        }) = escalation
        {
            add(groups, users, &format!("{limits}; after {after}"));
        }
    }
    found
}

/// Returns these groups, then these users, with their kinds.
fn subjects<'a>(
    groups: &'a [String],
    users: &'a [String],
) -> impl Iterator<Item = (SubjectKind, &'a String)> {
    let groups = groups.iter().map(|name| (SubjectKind::Group, name));
    groups.chain(users.iter().map(|name| (SubjectKind::User, name)))
}

/// Returns the entitlements of the users and groups that may declare an emergency by these settings of a source.
fn of_emergency(
    config: &EmergencyConfig,
    (namespace, source): (&str, &str),
    permits: &[String],
) -> Vec<Entitlement> {
    subjects(&config.groups, &config.users)
        .map(|(kind, name)| Entitlement {
            way: EntitlementKind::Emergency,
            namespace: namespace.to_owned(),
            kind,
            subject: name.clone(),
            permits: permits.to_vec(),
            objects: Vec::new(),
            source: format!("{source}, emergency"),
            limits: format!(
                "without approvals, for at most {}; reviewed afterwards",
                config.max_duration
            ),
        })
        .collect()
}

/// Returns the conditions between a request and access.
fn limits(config: &AccessConfig) -> String {
    let mut limits = vec![format!("for at most {}", config.max_duration)];
    if let Some(approval) = &config.approval {
        let rules: Vec<&str> = approval.rules.iter().map(|rule| &rule.name[..]).collect();
        let mut limit = format!("approved by {}", rules.join(" and "));
        if let Some(when) = &approval.when {
            limit.extend([" where ", when]);
        }
        if !approval.unless.is_empty() {
            let checks: Vec<&str> = approval.unless.iter().map(|it| &it.check[..]).collect();
            limit.extend([" unless on call by ", &checks.join(" or ")]);
        }
        limits.push(limit);
    }
    if !config.allow_service_accounts {
        limits.push("no service accounts".to_owned());
    }
    limits.join("; ")
}

/// Returns the entitlement of this group to every pod, as `source` defines it.
#[must_use]
pub fn break_glass(group: &str, source: &str) -> Entitlement {
    Entitlement {
        way: EntitlementKind::BreakGlass,
        namespace: EVERYWHERE.to_owned(),
        kind: SubjectKind::Group,
        subject: group.to_owned(),
        permits: vec!["connect to pods of enforcing namespaces".to_owned()],
        objects: Vec::new(),
        source: source.to_owned(),
        limits: "as far as RBAC lets them".to_owned(),
    }
}

/// Returns the subjects of a transient binding if its window opens after `now`.
#[must_use]
pub fn waiting(binding: &StoredBinding<'_>, now: Timestamp) -> Vec<Entitlement> {
    let (Ok(terms), Some(_)) = (&binding.terms, binding.waiting(now)) else {
        return Vec::new();
    };
    let opens = terms.opens(binding.created());
    let namespace = binding.namespace().filter(|name| !name.is_empty());
    let source = match namespace {
        None => format!("{} {}", binding.kind, binding.name()),
        Some(namespace) => format!("{} {namespace}/{}", binding.kind, binding.name()),
    };
    let until = match terms.closes {
        Closes::At(until) => format!("until {until}"),
        Closes::After(duration) => format!("for {duration}"),
    };
    let subjects = terms.subjects.iter();
    subjects
        .filter_map(|subject| {
            let own = subject.namespace.as_deref().filter(|own| !own.is_empty());
            Some(Entitlement {
                way: EntitlementKind::Waiting,
                namespace: namespace.unwrap_or(EVERYWHERE).to_owned(),
                kind: subject.kind.parse().ok()?,
                subject: match own {
                    None => subject.name.clone(),
                    Some(own) => format!("{own}/{}", subject.name),
                },
                permits: vec![format!("{} {}", terms.role.kind, terms.role.name)],
                objects: Vec::new(),
                source: source.clone(),
                limits: format!("from {opens} {until}"),
            })
        })
        .collect()
}

/// Returns the entitlement of `holder`, who may request transient bindings, to request one of this role.
#[must_use]
pub fn bindable(holder: &Entitlement, role: &str, source: &str) -> Entitlement {
    Entitlement {
        way: EntitlementKind::TransientBinding,
        permits: vec![format!("bind {role}")],
        source: format!("{}; {source}", holder.source),
        limits: "with the verb bind on the role".to_owned(),
        ..holder.clone()
    }
}

/// Returns the entitlement of `holder`, who may create harness runs, to start one. Templates do not restrict it further.
#[must_use]
pub fn startable(holder: &Entitlement) -> Entitlement {
    Entitlement {
        way: EntitlementKind::Request,
        permits: vec![RUNS.to_owned()],
        limits: "by a template of the namespace or of the cluster; with the approvals that it and \
                 the AccessPolicies require"
            .to_owned(),
        ..holder.clone()
    }
}
