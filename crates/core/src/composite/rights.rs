//! Children that hand out rights: roles and their bindings. The API server judges the account that writes
//! them; oz also judges everybody who had a hand in their parent, so that nobody gets through a function what
//! they could not hand out themselves.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::core::{ApiResource, DynamicObject};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::seal::Keys;
use crate::access::stamp::{self, Requester, StampError};
use crate::api::{RBAC_GROUP, RoleKind, RoleReference};
use crate::controller::{Child, Failure, Key, Step};
use crate::encode;
use crate::labels;
use crate::transient::{Listed, Policy, may_on_role};

/// How many people may have had a hand in one parent.
pub const MOST_AUTHORS: usize = 8;

/// What has to be found out before a child is written that hands out rights.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// Who had a hand in the parent. Each of them must be allowed to do it themselves.
    pub authors: Vec<Requester>,
    /// The role that is bound or written.
    pub role: RoleReference,
    /// The namespace of the child; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// What is done with the role.
    pub act: Act,
}

/// What is done with a role.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// It is bound.
    Bind,
    /// It is written, with these rules.
    Write(Vec<PolicyRule>),
}

/// What was found out.
#[derive(Clone, Debug)]
pub struct Found {
    /// The first author who may not do it themselves.
    pub lacks: Result<Option<String>, Failure>,
    /// The rules of the role that is bound; `None` if there is no such role.
    pub rules: Result<Option<Vec<PolicyRule>>, Failure>,
}

/// What comes of the children that hand out rights.
pub(super) enum Judged {
    /// This has to be found out first.
    Ask(Vec<Want>),
    /// These are not written, and why.
    Refused(BTreeSet<Key>, Option<Failure>),
}

impl Act {
    /// Kubernetes' own verb for it, on the role.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Write(_) => "escalate",
        }
    }
}

impl Want {
    /// The questions to the API server, one for each author.
    pub fn reviews(&self) -> impl Iterator<Item = (&Requester, SubjectAccessReview)> {
        let namespace = self.namespace.as_deref();
        let review = move |author| may_on_role(author, namespace, &self.role, self.act.verb());
        let authors = self.authors.iter();
        authors.map(move |author| (author, review(author)))
    }

    /// Whether it is done, given what was found out.
    fn judge(&self, listed: Listed, found: &Found) -> Result<(), Failure> {
        let (role, verb) = (&self.role, self.act.verb());
        if let Some(author) = found.lacks.clone()? {
            let message = format!(
                "{author}, who had a hand in it, may not {verb} {} {} themselves (verb {verb} on the role), \
                 and so no function does it for them",
                role.kind, role.name
            );
            let reason = match self.act {
                Act::Bind => "MayNotBind",
                Act::Write(_) => "MayNotEscalate",
            };
            return Err(Failure::invalid(reason, message));
        }
        let bound;
        let rules = match &self.act {
            Act::Write(rules) => rules,
            Act::Bind => {
                bound = found.rules.clone()?.ok_or_else(|| {
                    let message = format!("{} {} does not exist", role.kind, role.name);
                    Failure::transient("RoleMissing", message)
                })?;
                &bound
            }
        };
        Policy::permits_content(role, listed, rules).map(drop)
    }
}

/// What the stamp of a parent is about, besides its name.
#[must_use]
pub fn stamped_kind(parent: &DynamicObject) -> String {
    let types = parent.types.clone().unwrap_or_default();
    let (group, _) = types.api_version.split_once('/').unwrap_or_default();
    title(&types.kind, group)
}

/// With its group, which no kind of oz's own is called by.
fn title(kind: &str, group: &str) -> String {
    format!("{kind}.{group}")
}

/// Digest of what a function is told of a parent by those who write it. The status is not, and neither is what
/// the API server or oz write.
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

/// Who had a hand in a parent, if that is proven.
///
/// # Errors
/// Why it is not.
pub fn authors(keys: &Keys, parent: &DynamicObject) -> Result<Vec<Requester>, StampError> {
    authors_of(keys, &stamped_kind(parent), parent)
}

fn authors_of(
    keys: &Keys,
    kind: &str,
    parent: &DynamicObject,
) -> Result<Vec<Requester>, StampError> {
    stamp::authors(keys, kind, &parent.metadata, &digest(parent))
}

/// What a child hands out; `None` if it hands out no rights.
fn handed(child: &Child, authors: &[Requester]) -> Option<Result<Want, String>> {
    if child.resource.group != RBAC_GROUP {
        return None;
    }
    let metadata = &child.object.metadata;
    let want = |role, act| Want {
        authors: authors.to_vec(),
        role,
        namespace: metadata.namespace.clone(),
        act,
    };
    let data = &child.object.data;
    let kind = match child.resource.kind.as_str() {
        "RoleBinding" | "ClusterRoleBinding" => {
            let role = RoleReference::deserialize(&data["roleRef"]);
            let role = role.map_err(|error| format!("has a roleRef that is none: {error}"));
            return Some(role.map(|role| want(role, Act::Bind)));
        }
        "Role" => RoleKind::Role,
        "ClusterRole" => RoleKind::ClusterRole,
        other => return Some(Err(format!("is a {other}, which no function writes"))),
    };
    if !data["aggregationRule"].is_null() {
        let message = "has an aggregationRule: nobody knows what it will permit";
        return Some(Err(message.to_owned()));
    }
    let rules = match &data["rules"] {
        Value::Null => Ok(Vec::new()),
        rules => Vec::<PolicyRule>::deserialize(rules),
    };
    let rules = rules.map_err(|error| format!("has rules that are none: {error}"));
    let name = metadata.name.clone().unwrap_or_default();
    let role = RoleReference {
        api_group: RBAC_GROUP.to_owned(),
        kind,
        name,
    };
    Some(rules.map(|rules| want(role, Act::Write(rules))))
}

/// By what it is judged which rights the children of a parent may hand out.
pub(super) struct Judge<'a> {
    pub(super) policy: &'a Policy,
    pub(super) keys: &'a Keys,
    /// The kind of parent.
    pub(super) kind: &'a ApiResource,
}

impl Judge<'_> {
    /// Which of these children are not written because of the rights that they hand out.
    pub(super) fn judge(
        &self,
        parent: &DynamicObject,
        applies: &[Step],
        found: Option<&[(Want, Found)]>,
    ) -> Judged {
        let mut refused = BTreeSet::new();
        let mut failure = None;
        let mut asks = Vec::new();
        let kind = title(&self.kind.kind, &self.kind.group);
        let authors = authors_of(self.keys, &kind, parent);
        let children = applies.iter().filter_map(|step| match step {
            Step::Apply(child) => Some(child),
            _ => None,
        });
        for child in children {
            let known = authors.as_deref().unwrap_or_default();
            let Some(handed) = handed(child, known) else {
                continue;
            };
            let judged = handed
                .map_err(|error| Failure::invalid("AnswerInvalid", error))
                .and_then(|want| {
                    // Who is not known may do nothing.
                    let _: &[Requester] = authors.as_deref().map_err(unproven)?;
                    let namespace = want.namespace.as_deref();
                    let listed = match &want.act {
                        Act::Bind => self.policy.permits_role(&want.role, namespace)?,
                        Act::Write(_) => self.policy.roles.listed(&want.role, namespace),
                    };
                    let Some(found) = found else {
                        asks.push(want);
                        return Ok(());
                    };
                    let answers = found.iter().find(|(asked, _)| *asked == want);
                    let (_, found) = answers.ok_or_else(|| {
                        Failure::transient("Changed", "it changed while it was judged")
                    })?;
                    want.judge(listed, found)
                });
            if let Err(error) = judged {
                let message = format!("{}: {}", child.key(), error.message);
                failure.get_or_insert(Failure { message, ..error });
                refused.insert(child.key());
            }
        }
        if asks.is_empty() {
            Judged::Refused(refused, failure)
        } else {
            Judged::Ask(asks)
        }
    }
}

fn unproven(error: &StampError) -> Failure {
    let message = format!("it hands out rights, and who made its parent is not proven: {error}");
    Failure::invalid(error.reason(), message)
}
