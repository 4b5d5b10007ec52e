//! Access to pods without oz: every right to it from a RoleBinding or a ClusterRoleBinding without
//! a grant. Such rights are not errors, but the rights that a hostile grantee left behind are among
//! them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Resource};
use oz_api::Phase;
use oz_core::access::grant::shared_name;
use oz_core::connect::copied;
use oz_core::for_each_kind;
use oz_core::transient::Kind;
use oz_trail::RequestRef;
use serde::de::DeserializeOwned;

use super::finding::{Check, Finding, name};
use crate::cluster::Cluster;
use crate::failure::Result;

/// The maximum number of bindings that are shown, and of subjects and pods of each.
const SHOWN: usize = 20;
const SHOWN_OF_EACH: usize = 3;
/// The maximum length of a name that is shown whole.
const LONGEST: usize = 80;
/// The maximum number of objects of a kind that are read.
const LOOKED_AT: usize = 20_000;

/// Namespace (none: of the cluster) and name.
type Key = (Option<String>, String);

/// The objects that were read.
#[derive(Default)]
struct Rbac {
    roles: BTreeMap<Key, Vec<PolicyRule>>,
    bindings: Vec<Binding>,
    /// The objects that oz binds for the existing requests and transient bindings.
    ours: BTreeSet<Key>,
    /// The cluster has more objects than are read.
    cut_short: bool,
}

struct Binding {
    key: Key,
    role: RoleRef,
    subjects: Vec<Subject>,
}

pub(super) async fn rights(cluster: &Cluster, oz: &str) -> Result<Finding> {
    Ok(summarize(&read(cluster).await?, oz))
}

async fn read(cluster: &Cluster) -> Result<Rbac> {
    let mut rbac = Rbac::default();
    let cut_short = &mut rbac.cut_short;
    for role in all::<Role>(cluster, cut_short).await? {
        let rules = role.rules.into_iter().flatten().collect();
        rbac.roles.insert(key(&role.metadata)?, rules);
    }
    for role in all::<ClusterRole>(cluster, cut_short).await? {
        let rules = role.rules.into_iter().flatten().collect();
        rbac.roles.insert(key(&role.metadata)?, rules);
    }
    for one in all::<RoleBinding>(cluster, cut_short).await? {
        rbac.bindings.push(Binding {
            key: key(&one.metadata)?,
            role: one.role_ref,
            subjects: one.subjects.into_iter().flatten().collect(),
        });
    }
    for one in all::<ClusterRoleBinding>(cluster, cut_short).await? {
        rbac.bindings.push(Binding {
            key: key(&one.metadata)?,
            role: one.role_ref,
            subjects: one.subjects.into_iter().flatten().collect(),
        });
    }
    for_each_kind!(bindings B => {
        for one in all::<B>(cluster, cut_short).await? {
            let status = Kind::status(&one);
            if status.is_some_and(|status| status.phase == Phase::Active) {
                rbac.ours.insert(key(one.meta())?);
            }
        }
    });
    for_each_kind!(requests R => { rbac.ours.extend(grants::<R>(cluster).await?) });
    Ok(rbac)
}

fn key(metadata: &ObjectMeta) -> Result<Key> {
    Ok((metadata.namespace.clone(), name(metadata)?.to_owned()))
}

/// Returns all objects of a kind, page by page, up to the maximum.
async fn all<K>(cluster: &Cluster, cut_short: &mut bool) -> Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api = Api::<K>::all(cluster.client.clone());
    let (found, more) = cluster
        .pages(&api, ListParams::default(), LOOKED_AT)
        .await?;
    *cut_short |= more;
    Ok(found)
}

/// Returns the bindings of grants. Their names suffice: a name is unique, but any user can write
/// labels.
async fn grants<K>(cluster: &Cluster) -> Result<Vec<Key>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api = Api::<K>::all(cluster.client.clone());
    let all = ListParams::default();
    let list = cluster.answer(api.list_metadata(&all)).await?;
    let child = |owner: ObjectMeta| {
        let request = RequestRef::new_object(&K::kind(&()), &owner);
        (owner.namespace, shared_name(&request))
    };
    let owners = list.items.into_iter().map(|one| one.metadata);
    Ok(owners.map(child).collect())
}

fn summarize(rbac: &Rbac, oz: &str) -> Finding {
    let mut lines: Vec<String> = rbac
        .bindings
        .iter()
        .filter_map(|binding| line(rbac, binding, oz))
        .collect();
    lines.sort();
    let count = lines.len();
    let more = count.saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    let mut text = match count {
        0 => "no binding grants access to pods without oz".to_owned(),
        1 => "1 binding grants access to pods without oz".to_owned(),
        _ => format!("{count} bindings grant access to pods without oz"),
    };
    text.push_str(" (left out: system:masters, nodes, kube-system and oz itself");
    text.push_str(if rbac.cut_short {
        "; there is more RBAC than was read)"
    } else {
        ")"
    });
    if !lines.is_empty() {
        text.push_str(": ");
        text.push_str(&lines.join("; "));
    }
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    Check::StandingRights.good(text)
}

/// Returns a line such as `Group devs by RoleBinding shop/edit: create pods/exec`, if the binding
/// grants access.
fn line(rbac: &Rbac, binding: &Binding, oz: &str) -> Option<String> {
    if rbac.ours.contains(&binding.key) {
        return None;
    }
    let (namespace, name) = &binding.key;
    let of = match binding.role.kind.as_str() {
        "ClusterRole" => None,
        _ => namespace.clone(),
    };
    let rules = rbac.roles.get(&(of, binding.role.name.clone()))?;
    let (mut ways, mut pods, mut every) = (BTreeSet::new(), BTreeSet::new(), false);
    for rule in rules {
        // Nodes are in no namespace.
        if namespace.is_none() && copied::into_nodes(rule) {
            every = true;
            ways.insert("nodes/proxy");
        }
        let entries = copied::entries(rule);
        if entries.is_empty() {
            continue;
        }
        let names = rule.resource_names.as_deref().unwrap_or(&[]);
        every |= names.is_empty();
        pods.extend(names.iter().map(|name| escape_name(name)));
        ways.extend(entries.iter().map(|one| one.subresource));
    }
    let subjects = binding.subjects.iter();
    let others = subjects.filter(|subject| !is_of_system(subject, oz));
    let who: Vec<String> = others.map(whom).collect();
    if ways.is_empty() || who.is_empty() {
        return None;
    }
    let ways: Vec<&str> = ways.into_iter().collect();
    let which = if every {
        String::new()
    } else {
        format!(" of {}", some(&Vec::from_iter(pods)))
    };
    let name = escape_name(name);
    let place = match namespace {
        Some(namespace) => format!("RoleBinding {namespace}/{name}"),
        None => format!("ClusterRoleBinding {name}"),
    };
    Some(format!(
        "{place}: {} ({}{which})",
        some(&who),
        ways.join(", ")
    ))
}

/// Checks whether a subject belongs to the system or to oz.
fn is_of_system(subject: &Subject, oz: &str) -> bool {
    let (name, namespace) = (&subject.name[..], subject.namespace.as_deref());
    match subject.kind.as_str() {
        "ServiceAccount" => namespace.is_some_and(|it| it == "kube-system" || it == oz),
        "Group" => ["system:masters", "system:nodes"].contains(&name),
        _ => ["system:kube-controller-manager", "system:kube-scheduler"].contains(&name),
    }
}

fn whom(subject: &Subject) -> String {
    let name = escape_name(&subject.name);
    match (subject.kind.as_str(), &subject.namespace) {
        ("ServiceAccount", Some(namespace)) => format!("ServiceAccount {namespace}/{name}"),
        ("ServiceAccount", None) => format!("ServiceAccount /{name}"),
        (kind, _) => format!("{} {name}", escape_name(kind)),
    }
}

fn some(all: &[String]) -> String {
    let named = all.iter().take(SHOWN_OF_EACH).cloned().collect::<Vec<_>>();
    match all.len().saturating_sub(SHOWN_OF_EACH) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Returns a printable form of a name that other users chose: without cursor movements, and of
/// limited length.
fn escape_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect();
    if name.chars().count() > LONGEST {
        return format!("{plain}…");
    }
    plain
}

#[cfg(test)]
mod tests;
