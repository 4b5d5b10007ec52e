//! The decision which children of an owner are not written or deleted, because of the rights that they grant.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;
use oz_api::{RBAC_GROUP, Requester, RoleKind, RoleReference, example_com};
use oz_core::access::stamp::StampError;
use oz_core::controller::{Child, Failure, Key, Live, Step};
use oz_core::transient::{Policy, privileged};
use serde::Deserialize;
use serde_json::Value;

use super::authors::authors_of;
use super::{Act, Found, Target, Want, taken};
use crate::answer::HandedError;
use crate::owner::Owner;

/// The decision about the children that grant rights.
pub(crate) enum Judged {
    /// The decision requires these checks first.
    Ask(Vec<Want>),
    /// The children that are not written, and the reason.
    Refused(BTreeSet<Key>, Option<Failure>),
}

/// Returns the permissions that the authors need to write a child over `live`; none if neither object grants rights.
/// `live` counts, since fields that a function omits keep their values.
fn handed(
    child: &Child,
    live: Option<&Live>,
    authors: &[Requester],
) -> Result<Vec<Want>, HandedError> {
    let is_rbac = child.resource.group == RBAC_GROUP;
    let is_privileged = privileged(&child.resource, &child.object).is_some()
        || live.is_some_and(|live| privileged(&live.resource, &live.object).is_some());
    if !is_rbac && !is_privileged {
        return Ok(Vec::new());
    }
    let metadata = &child.object.metadata;
    let want = |act| Want {
        authors: authors.to_vec(),
        namespace: metadata.namespace.clone(),
        act,
    };
    let data = &child.object.data;
    let bound = |role: &Value| {
        let role = RoleReference::deserialize(role);
        let role = role.map_err(HandedError::NoRole);
        role.map(|role| want(Act::Bind(role)))
    };
    if !is_rbac {
        let target = Target::new(&child.resource, metadata.name.clone());
        let verbs: &'static [&'static str] = match live {
            None => &["create"],
            Some(_) => &["update"],
        };
        let written = want(Act::Touch(target, verbs));
        return match data.get("roleRef") {
            Some(role) if child.resource.group == example_com::GROUP => {
                Ok(vec![written, bound(role)?])
            }
            _ => Ok(vec![written]),
        };
    }
    let kind = match child.resource.kind.as_str() {
        "RoleBinding" | "ClusterRoleBinding" => return Ok(vec![bound(&data["roleRef"])?]),
        "Role" => RoleKind::Role,
        "ClusterRole" => RoleKind::ClusterRole,
        other => {
            let kind = other.to_owned();
            return Err(HandedError::NotWritten { kind });
        }
    };
    if !data["aggregationRule"].is_null() {
        return Err(HandedError::Aggregated);
    }
    let rules = match &data["rules"] {
        Value::Null => Ok(Vec::new()),
        rules => Vec::<PolicyRule>::deserialize(rules),
    };
    let rules = rules.map_err(HandedError::NoRules)?;
    let role = RoleReference {
        api_group: RBAC_GROUP.to_owned(),
        kind,
        name: metadata.name.clone().ok_or(HandedError::Nameless)?,
    };
    Ok(vec![want(Act::Write(role, rules))])
}

/// The inputs for the decision which rights the children of an owner may grant.
pub(crate) struct Judge<'a> {
    pub(crate) owner: &'a Owner<'a>,
    pub(crate) policy: &'a Policy,
    /// The existing children.
    pub(crate) have: &'a BTreeMap<Key, &'a Live>,
}

impl Judge<'_> {
    /// Decides which of these children are not written or deleted because of the rights that they grant.
    pub(crate) fn judge<'s>(
        &self,
        steps: impl Iterator<Item = &'s Step>,
        found: &[(Want, Found)],
    ) -> Judged {
        let mut refused = BTreeSet::new();
        let mut failure = None;
        let mut asks = Vec::new();
        let authors = authors_of(self.owner);
        for step in steps {
            let Some((key, wants)) = self.wants(step, authors.as_deref().unwrap_or_default())
            else {
                continue;
            };
            let judged = wants
                .map_err(|error| Failure::invalid("ResponseInvalid", error.to_string()))
                .and_then(|wants| {
                    // Unproven authors have no permissions.
                    let _: &[Requester] = authors.as_deref().map_err(unproven)?;
                    wants
                        .into_iter()
                        .try_for_each(|want| self.one(want, found, &mut asks))
                });
            if let Err(error) = judged {
                let message = format!("{key}: {}", error.message);
                failure.get_or_insert(Failure { message, ..error });
                refused.insert(key);
            }
        }
        if asks.is_empty() {
            Judged::Refused(refused, failure)
        } else {
            Judged::Ask(asks)
        }
    }

    /// Returns the child of a step, and the checks that the step requires; `None` if it requires none.
    fn wants(
        &self,
        step: &Step,
        authors: &[Requester],
    ) -> Option<(Key, Result<Vec<Want>, HandedError>)> {
        let (key, wants) = match step {
            Step::Apply(child) => {
                let key = child.key();
                let live = self.have.get(&key).copied();
                let wants = handed(child, live, authors);
                (key, wants)
            }
            Step::Delete(target) => {
                let mut live = self.have.values();
                let live = live.find(|live| live.reference() == *target)?;
                (live.key(), Ok(taken(live, authors).into_iter().collect()))
            }
            _ => return None,
        };
        let is_nothing = wants.as_ref().is_ok_and(Vec::is_empty);
        (!is_nothing).then_some((key, wants))
    }

    fn one(
        &self,
        want: Want,
        found: &[(Want, Found)],
        asks: &mut Vec<Want>,
    ) -> Result<(), Failure> {
        if let Act::Bind(role) = &want.act {
            self.policy.permits_role(role, want.namespace.as_deref())?;
        }
        match want.answer(found) {
            Some(found) => want.judge(self.policy, found),
            None => {
                asks.push(want);
                Ok(())
            }
        }
    }
}

fn unproven(error: &StampError) -> Failure {
    let message =
        format!("it grants rights, and the author of its parent is not verified: {error}");
    Failure {
        message,
        ..error.failure()
    }
}
