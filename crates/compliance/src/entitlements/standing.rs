//! The entitlements by RBAC: every right of access to pods that a binding grants to a subject. Wildcards are
//! interpreted as Kubernetes does, and aggregated ClusterRoles are resolved to the roles of which they consist.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Selector, SelectorExt as _};
use oz_api::{IdentityError, Name, labels};
use oz_core::connect::copied;

use super::{EVERYWHERE, Entitlement, EntitlementKind, SubjectKind};

/// Namespace (none for cluster-wide objects) and name.
pub type Key = (Option<String>, String);

/// A rule of a role, and the ClusterRole from which it is aggregated, if that is another.
struct Given {
    rule: PolicyRule,
    from: Option<String>,
}

struct Binding {
    key: Key,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// The RBAC objects that were read.
#[derive(Default)]
pub struct Rbac {
    roles: BTreeMap<Key, Vec<Given>>,
    bindings: Vec<Binding>,
    granted: BTreeSet<Key>,
}

fn key(metadata: &ObjectMeta) -> Result<Key, IdentityError> {
    let name = Name::from_metadata(metadata)?;
    Ok((metadata.namespace.clone(), name.to_string()))
}

impl Rbac {
    /// Adds the Roles.
    ///
    /// # Errors
    /// If one has no name.
    pub fn roles(&mut self, roles: Vec<Role>) -> Result<(), IdentityError> {
        for role in roles {
            let rules = role.rules.into_iter().flatten();
            let given = rules.map(|rule| Given { rule, from: None }).collect();
            self.roles.insert(key(&role.metadata)?, given);
        }
        Ok(())
    }

    /// Adds the ClusterRoles, all at once, since some are aggregated from others.
    ///
    /// # Errors
    /// If one has no name.
    pub fn cluster_roles(&mut self, roles: &[ClusterRole]) -> Result<(), IdentityError> {
        let all: Result<Vec<_>, _> = roles
            .iter()
            .map(|role| Ok((Name::from_metadata(&role.metadata)?, role)))
            .collect();
        let all = all?;
        for (name, role) in &all {
            let name = name.to_string();
            let mut given = Vec::new();
            collect(role, &all, &mut BTreeSet::from([name.clone()]), &mut given);
            // The aggregation controller writes the aggregated rules among the role's own rules.
            let theirs: Vec<PolicyRule> = given.iter().map(|one| one.rule.clone()).collect();
            let own = role.rules.iter().flatten();
            let own = own.filter(|rule| !theirs.contains(rule)).cloned();
            given.extend(own.map(|rule| Given { rule, from: None }));
            self.roles.insert((None, name), given);
        }
        Ok(())
    }

    /// Adds the RoleBindings.
    ///
    /// # Errors
    /// If one has no name.
    pub fn role_bindings(&mut self, bindings: Vec<RoleBinding>) -> Result<(), IdentityError> {
        let bindings = bindings.into_iter();
        self.bind(bindings.map(|one| (one.metadata, one.role_ref, one.subjects)))
    }

    /// Adds the ClusterRoleBindings.
    ///
    /// # Errors
    /// If one has no name.
    pub fn cluster_role_bindings(
        &mut self,
        bindings: Vec<ClusterRoleBinding>,
    ) -> Result<(), IdentityError> {
        let bindings = bindings.into_iter();
        self.bind(bindings.map(|one| (one.metadata, one.role_ref, one.subjects)))
    }

    fn bind(
        &mut self,
        bindings: impl Iterator<Item = (ObjectMeta, RoleRef, Option<Vec<Subject>>)>,
    ) -> Result<(), IdentityError> {
        for (metadata, role, subjects) in bindings {
            self.bindings.push(Binding {
                key: key(&metadata)?,
                role,
                subjects: subjects.into_iter().flatten().collect(),
            });
        }
        Ok(())
    }

    /// Marks the bindings of grants and transient bindings: their rights expire.
    pub fn granted(&mut self, bindings: impl IntoIterator<Item = Key>) {
        self.granted.extend(bindings);
    }

    /// Returns every right of access to pods.
    #[must_use]
    pub fn into_pods(&self) -> Vec<Entitlement> {
        self.rights(|rule, cluster| {
            let mut permits: BTreeSet<String> = copied::entries(rule)
                .into_iter()
                .map(|entry| format!("{} pods/{}", entry.verb, entry.subresource))
                .collect();
            // Nodes are cluster-wide objects.
            if cluster && copied::into_nodes(rule) {
                permits.insert("nodes/proxy".to_owned());
            }
            permits
        })
    }

    /// Returns the subjects that may do this with objects of this resource.
    #[must_use]
    pub fn holders(&self, verb: &str, group: &str, resource: &str) -> Vec<Entitlement> {
        let has = |all: Option<&Vec<String>>, wanted: &str| {
            let mut all = all.into_iter().flatten();
            all.any(|one| one == wanted || one == "*")
        };
        self.rights(|rule, _| {
            let holds = has(Some(&rule.verbs), verb)
                && has(rule.api_groups.as_ref(), group)
                && has(rule.resources.as_ref(), resource)
                // For RBAC, an object that does not exist yet has no name.
                && rule.resource_names.as_ref().is_none_or(Vec::is_empty);
            match holds {
                true => BTreeSet::from([format!("{verb} {resource}")]),
                false => BTreeSet::new(),
            }
        })
    }

    /// Returns the rights that `permits` finds in the rules of each binding.
    fn rights(&self, permits: impl Fn(&PolicyRule, bool) -> BTreeSet<String>) -> Vec<Entitlement> {
        let mut found = Vec::new();
        for binding in &self.bindings {
            let (namespace, name) = &binding.key;
            let of = match binding.role.kind.as_str() {
                "ClusterRole" => None,
                _ => namespace.clone(),
            };
            let Some(rules) = self.roles.get(&(of, binding.role.name.clone())) else {
                continue;
            };
            let mut ways: BTreeMap<(Option<&String>, Vec<String>), BTreeSet<String>> =
                BTreeMap::new();
            for Given { rule, from } in rules {
                let permits = permits(rule, namespace.is_none());
                if permits.is_empty() {
                    continue;
                }
                let objects = rule.resource_names.iter().flatten().cloned();
                let mut objects: Vec<String> = objects.collect();
                objects.sort();
                objects.dedup();
                ways.entry((from.as_ref(), objects))
                    .or_default()
                    .extend(permits);
            }
            let place = match namespace {
                Some(namespace) => format!("RoleBinding {namespace}/{name}"),
                None => format!("ClusterRoleBinding {name}"),
            };
            let way = match self.granted.contains(&binding.key) {
                true => EntitlementKind::Granted,
                false => EntitlementKind::Standing,
            };
            for ((from, objects), permits) in ways {
                let role = format!("{} {}", binding.role.kind, binding.role.name);
                let source = match from {
                    Some(from) => format!("{place}: {role}, by ClusterRole {from}"),
                    None => format!("{place}: {role}"),
                };
                let subjects = binding.subjects.iter().filter_map(subject);
                found.extend(subjects.map(|(kind, subject)| Entitlement {
                    way,
                    namespace: namespace.as_deref().unwrap_or(EVERYWHERE).to_owned(),
                    kind,
                    subject,
                    permits: permits.iter().cloned().collect(),
                    objects: objects.clone(),
                    source: source.clone(),
                    limits: String::new(),
                }));
            }
        }
        found
    }
}

/// Collects the rules of the roles from which a ClusterRole is aggregated, recursively.
fn collect(
    role: &ClusterRole,
    roles: &[(Name<'_>, &ClusterRole)],
    seen: &mut BTreeSet<String>,
    given: &mut Vec<Given>,
) {
    let aggregation = role.aggregation_rule.iter();
    let selectors = aggregation.flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
    for selector in selectors {
        // An invalid selector selects no role, as in the aggregation controller.
        let Ok(selector) = Selector::try_from(selector.clone()) else {
            continue;
        };
        for (name, other) in roles {
            let name = name.to_string();
            if !selector.matches(labels::of_object(&other.metadata)) || !seen.insert(name.clone()) {
                continue;
            }
            let rules = other.rules.iter().flatten().cloned();
            let from = Some(name);
            let before = given.len();
            collect(other, roles, seen, given);
            let theirs: Vec<PolicyRule> =
                given[before..].iter().map(|one| one.rule.clone()).collect();
            given.extend(
                rules
                    .filter(|rule| !theirs.contains(rule))
                    .map(|rule| Given {
                        rule,
                        from: from.clone(),
                    }),
            );
        }
    }
}

/// Returns a subject as Kubernetes interprets it; `None` for an unknown kind, which grants no rights.
fn subject(subject: &Subject) -> Option<(SubjectKind, String)> {
    let kind: SubjectKind = subject.kind.parse().ok()?;
    let name = match kind {
        SubjectKind::ServiceAccount => match &subject.namespace {
            Some(namespace) => format!("{namespace}/{}", subject.name),
            None => format!("/{}", subject.name),
        },
        SubjectKind::User | SubjectKind::Group => subject.name.clone(),
    };
    Some((kind, name))
}
