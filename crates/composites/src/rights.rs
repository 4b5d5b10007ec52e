//! Children that grant rights: roles and their bindings, and the other privileged kinds. The API server checks the
//! account that writes them. oz also checks each author of their parent, so that no author gains through a function a
//! right to actions that the author may not perform directly. The same rule applies to objects that a parent adopts,
//! since its function may delete them.
//! See docs/adr/0023-who-had-a-hand-in-a-parent.md.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::core::{ApiResource, DynamicObject};
use oz_api::{RBAC_GROUP, Requester, RoleKind, RoleReference, encode, example_com, labels};
use oz_core::access::seal::Keys;
use oz_core::access::stamp::{self, StampError};
use oz_core::controller::{Child, Failure, Key, Live, Step};
use oz_core::transient::{Policy, on_role, privileged, review};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::HandedError;
use super::kind::group;
use super::owner::Owner;

/// The maximum number of authors of one parent.
pub const MOST_AUTHORS: usize = 8;
/// Interval between two checks of rights that an author lacked.
pub(super) const CHECK_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// A check that is required before a child that grants rights is written, or before a child is adopted or deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// The authors of the parent. Each of them requires the permission.
    pub authors: Vec<Requester>,
    /// The namespace of the child; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// The action on the child.
    pub act: Act,
}

/// An action on a child.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// The binding of this role.
    Bind(RoleReference),
    /// The writing of this role, with these rules.
    Write(RoleReference, Vec<PolicyRule>),
    /// The creation, change, deletion or adoption of an object.
    Touch(Target, &'static [&'static str]),
}

/// An object on which an author requires rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the kind.
    pub resource: String,
    /// The name of the object; `None` for one that the API server names.
    pub name: Option<String>,
}

impl Target {
    fn new(resource: &ApiResource, name: Option<String>) -> Self {
        Self {
            group: resource.group.clone(),
            resource: resource.plural.clone(),
            name,
        }
    }
}

/// The results of a check.
#[derive(Clone, Debug)]
pub struct Found {
    /// The first author who lacks the permission.
    pub lacks: Result<Option<String>, Failure>,
    /// The rules of the role that is bound; `None` if the role does not exist.
    pub rules: Result<Option<Vec<PolicyRule>>, Failure>,
}

/// The decision about the children that grant rights.
pub(super) enum Judged {
    /// The decision requires these checks first.
    Ask(Vec<Want>),
    /// The children that are not written, and the reason.
    Refused(BTreeSet<Key>, Option<Failure>),
}

impl Act {
    /// Returns the permissions that the action requires, in a namespace or in the whole cluster.
    fn rights(&self, namespace: Option<&str>) -> Vec<ResourceAttributes> {
        match self {
            Self::Bind(role) => vec![on_role(namespace, role, "bind")],
            Self::Write(role, _) => vec![on_role(namespace, role, "escalate")],
            Self::Touch(target, verbs) => verbs
                .iter()
                .map(|verb| ResourceAttributes {
                    namespace: namespace.map(ToOwned::to_owned),
                    verb: Some((*verb).to_owned()),
                    group: Some(target.group.clone()),
                    resource: Some(target.resource.clone()),
                    name: target.name.clone(),
                    ..ResourceAttributes::default()
                })
                .collect(),
        }
    }

    /// Returns the failure for an author who lacks the permission.
    fn lacks(&self, author: &str) -> Failure {
        let (reason, right) = match self {
            Self::Bind(role) => (
                "MayNotBind",
                format!(
                    "bind {} {} themselves (verb bind on the role)",
                    role.kind, role.name
                ),
            ),
            Self::Write(role, _) => (
                "MayNotEscalate",
                format!(
                    "escalate {} {} themselves (verb escalate on the role)",
                    role.kind, role.name
                ),
            ),
            Self::Touch(target, verbs) => {
                let verbs = verbs.join(" and ");
                let group = match target.group.as_str() {
                    "" => String::new(),
                    group => format!(".{group}"),
                };
                let resource = &target.resource;
                let right = match &target.name {
                    Some(name) => format!("{verbs} {resource}{group} {name} themselves"),
                    None => format!("{verbs} {resource}{group} themselves"),
                };
                ("MayNotModify", right)
            }
        };
        let message = format!(
            "{author}, an author of the parent, may not {right}, and so no function may do it for \
                them"
        );
        Failure::invalid(reason, message)
    }
}

impl Want {
    /// Returns the access reviews for the API server, of each author.
    pub fn reviews(&self) -> impl Iterator<Item = (&Requester, SubjectAccessReview)> {
        let rights = self.act.rights(self.namespace.as_deref());
        self.authors.iter().flat_map(move |author| {
            let rights = rights.clone().into_iter();
            rights.map(move |right| (author, review(author, right)))
        })
    }

    /// Decides whether the action is permitted, by the results of the check.
    pub(super) fn judge(&self, policy: &Policy, found: &Found) -> Result<(), Failure> {
        if let Some(author) = found.lacks.clone()? {
            return Err(self.act.lacks(&author));
        }
        let namespace = self.namespace.as_deref();
        let bound;
        let (role, listed, rules) = match &self.act {
            Act::Touch(..) => return Ok(()),
            Act::Write(role, rules) => (role, policy.roles.listed(role, namespace), rules),
            Act::Bind(role) => {
                bound = found.rules.clone()?.ok_or_else(|| {
                    let message = format!("{} {} does not exist", role.kind, role.name);
                    Failure::transient("RoleMissing", message)
                })?;
                (role, policy.permits_role(role, namespace)?, &bound)
            }
        };
        Policy::permits_content(role, listed, rules, namespace).map(drop)
    }

    /// Returns whether each author has the permission; `None` if the check was not made yet.
    pub(super) fn is_allowed(&self, found: &[(Self, Found)]) -> Option<bool> {
        Some(matches!(self.answer(found)?.lacks, Ok(None)))
    }

    /// Returns the results of this check; `None` if the check was not made yet.
    pub(super) fn answer<'f>(&self, found: &'f [(Self, Found)]) -> Option<&'f Found> {
        let mut answers = found.iter();
        let (_, found) = answers.find(|(asked, _)| asked == self)?;
        Some(found)
    }
}

/// Returns the check whether each author may have an object adopted: its function may then change and delete it.
pub(super) fn adoption(authors: &[Requester], live: &Live) -> Want {
    let metadata = &live.object.metadata;
    let target = Target::new(&live.resource, metadata.name.clone());
    Want {
        authors: authors.to_vec(),
        namespace: metadata.namespace.clone(),
        act: Act::Touch(target, &["update", "delete"]),
    }
}

/// Returns the kind that the stamp of a parent covers, in addition to its name.
#[must_use]
pub fn stamped_kind(parent: &DynamicObject) -> String {
    match &parent.types {
        Some(types) => title(&types.kind, group(&types.api_version)),
        None => title("", ""),
    }
}

/// Returns the name of a kind with its group, which differs from the names of oz's own kinds.
fn title(kind: &str, group: &str) -> String {
    format!("{kind}.{group}")
}

/// Returns the digest of the content of a parent that its authors write and its function receives. The digest excludes
/// the status, and the content that the API server or oz write.
#[must_use]
pub fn digest(parent: &DynamicObject) -> String {
    let mut content = parent.data.clone();
    if let Some(fields) = content.as_object_mut() {
        fields.remove("status");
    }
    let metadata = &parent.metadata;
    let texts = |texts: &Option<std::collections::BTreeMap<String, String>>| -> Value {
        let texts = texts.iter().flatten();
        let others = texts.filter(|(name, _)| !labels::is_own(name));
        others
            .map(|(name, value)| (name.clone(), Value::from(value.clone())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    encode::digest(&json!({
        "content": content,
        "labels": texts(&metadata.labels),
        "annotations": texts(&metadata.annotations),
    }))
}

/// Returns the authors of a parent, if they are proven.
///
/// # Errors
/// If the authors are not proven. The error states the reason.
pub fn authors(keys: &Keys, parent: &DynamicObject) -> Result<Vec<Requester>, StampError> {
    let kind = stamped_kind(parent);
    stamp::authors(keys, &kind, &parent.metadata, &digest(parent))
}

/// Returns the authors of an owner, if they are proven.
pub(super) fn authors_of(owner: &Owner<'_>) -> Result<Vec<Requester>, StampError> {
    let kind = &owner.rules.family.parent.resource;
    let kind = title(&kind.kind, &kind.group);
    let object = owner.object;
    stamp::authors(owner.rules.keys, &kind, &object.metadata, &digest(object))
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

/// Returns the check that the deletion of a child requires, because its function does not return it or it is recreated.
/// An object that only grants rights is always deleted, so that no user keeps a right because an author lacks the
/// permission to revoke it.
pub(super) fn taken(live: &Live, authors: &[Requester]) -> Option<Want> {
    let kind = privileged(&live.resource, &live.object)?;
    let metadata = &live.object.metadata;
    let target = Target::new(&live.resource, metadata.name.clone());
    (!kind.is_revoked_by_deletion()).then(|| Want {
        authors: authors.to_vec(),
        namespace: metadata.namespace.clone(),
        act: Act::Touch(target, &["delete"]),
    })
}

/// The inputs for the decision which rights the children of an owner may grant.
pub(super) struct Judge<'a> {
    pub(super) owner: &'a Owner<'a>,
    pub(super) policy: &'a Policy,
    /// The existing children.
    pub(super) have: &'a BTreeMap<Key, &'a Live>,
}

impl Judge<'_> {
    /// Decides which of these children are not written or deleted because of the rights that they grant.
    pub(super) fn judge<'s>(
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
