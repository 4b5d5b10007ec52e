//! The entitlements that the objects and configuration of oz define: templates, approval rules, roles that may be bound
//! for a limited time, transient bindings with windows that open later, groups for emergencies.

use jiff::Timestamp;
use oz_api::{AccessConfig, ApprovalRule, Escalation, IdentityError};
use oz_core::kinds::AccessTemplate;
use oz_core::transient::{Closes, StoredBinding};

use super::{EVERYWHERE, Entitlement, EntitlementKind, SubjectKind};

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
    let of = |way, kind, subject: &String, source: &str, limits: &str| Entitlement {
        way,
        namespace: namespace.to_owned(),
        kind,
        subject: subject.clone(),
        permits: permits.clone(),
        objects: Vec::new(),
        source: source.to_owned(),
        limits: limits.to_owned(),
    };
    let (group, user) = (SubjectKind::Group, SubjectKind::User);
    let limits = limits(config);
    let mut found = Vec::new();
    let groups = config.allowed_groups.iter();
    found.extend(groups.map(|name| of(EntitlementKind::Request, group, name, &source, &limits)));
    let users = config.allowed_users.iter();
    found.extend(users.map(|name| of(EntitlementKind::Request, user, name, &source, &limits)));
    if let Some(emergency) = &config.emergency {
        let source = format!("{source}, emergency");
        let limits = format!(
            "without approvals, for at most {}; reviewed afterwards",
            emergency.max_duration
        );
        let groups = emergency.groups.iter();
        found.extend(
            groups.map(|name| of(EntitlementKind::Emergency, group, name, &source, &limits)),
        );
        let users = emergency.users.iter();
        found
            .extend(users.map(|name| of(EntitlementKind::Emergency, user, name, &source, &limits)));
    }
    for rule in config.approval.iter().flat_map(|approval| &approval.rules) {
        let ApprovalRule {
            name,
            groups,
            users,
            approvals,
            notify: _,
            escalation,
        } = rule;
        let source = format!("{source}, rule {name}");
        let limits = format!("{approvals} must approve; nobody for themselves");
        if let Some(Escalation {
            after,
            groups,
            users,
            ..
        }) = escalation
        {
            let limits = format!("{limits}; after {after}");
            let named = groups.iter().map(|name| (group, name));
            let named = named.chain(users.iter().map(|name| (user, name)));
            found
                .extend(named.map(|(kind, name)| {
                    of(EntitlementKind::Approve, kind, name, &source, &limits)
                }));
        }
        let groups = groups.iter();
        found
            .extend(groups.map(|name| of(EntitlementKind::Approve, group, name, &source, &limits)));
        let users = users.iter();
        found.extend(users.map(|name| of(EntitlementKind::Approve, user, name, &source, &limits)));
    }
    Ok(found)
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
