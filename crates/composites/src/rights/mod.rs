//! Children that grant rights: roles and their bindings, and the other privileged kinds. The API server checks the
//! account that writes them. oz also checks each author of their parent, so that no author gains through a function a
//! right to actions that the author may not perform directly. The same rule applies to objects that a parent adopts,
//! since its function may delete them.
//! See docs/adr/0023-who-had-a-hand-in-a-parent.md.

mod authors;
mod judge;

use jiff::SignedDuration;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::core::ApiResource;
use oz_api::{Requester, RoleReference};
use oz_core::controller::{Failure, Live};
use oz_core::transient::{Policy, on_role, privileged, review};

pub(super) use self::authors::authors_of;
pub use self::authors::{authors, digest, stamped_kind};
pub(super) use self::judge::{Judge, Judged};

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
