//! The list of roles that may be bound through oz. An entry names one role, or ends in `*`; only the full name permits
//! a role that could be used to escalate privileges.

use std::fmt;
use std::str::FromStr;

use oz_api::{RBAC_GROUP, RoleKind, RoleReference};

/// An entry of the list: `view` is a ClusterRole, `shop/deployer` a Role of namespace shop; both parts may end in `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolePattern {
    /// Pattern for the namespace; `None` for a ClusterRole.
    namespace: Option<String>,
    /// Pattern for the name.
    name: String,
}

/// The reason why a text is not a valid entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a role: write NAME for a ClusterRole or NAMESPACE/NAME for a Role; `*` only at the end of either"
)]
pub struct RolePatternError(String);

impl FromStr for RolePattern {
    type Err = RolePatternError;

    fn from_str(text: &str) -> Result<Self, RolePatternError> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        let good = |part: &str| {
            let body = part.strip_suffix('*').unwrap_or(part);
            !part.is_empty() && !body.contains(['*', '/', '%', ',', ' '])
        };
        if !good(name) || !namespace.is_none_or(good) {
            return Err(RolePatternError(text.to_owned()));
        }
        Ok(Self {
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for RolePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(formatter, "{namespace}/")?;
        }
        formatter.write_str(&self.name)
    }
}

impl RolePattern {
    fn covers(&self, role: &RoleReference, namespace: Option<&str>) -> bool {
        let place = match (role.kind, &self.namespace) {
            (RoleKind::ClusterRole, None) => true,
            (RoleKind::Role, Some(pattern)) => {
                namespace.is_some_and(|namespace| matches(pattern, namespace))
            }
            _ => false,
        };
        place && matches(&self.name, &role.name)
    }

    /// Checks whether the entry is the full name of the role, in any number of namespaces. The name of a role can be
    /// `*`, but the entry `*` is always a pattern.
    fn names(&self, role: &RoleReference) -> bool {
        !self.name.ends_with('*') && self.name == role.name
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => pattern == text,
    }
}

/// The match of a role with the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// No entry matches.
    No,
    /// A pattern matches: the role may be bound if it cannot be used to escalate privileges.
    ByPattern,
    /// An entry names the role: it may be bound with any content.
    ByName,
}

/// The list of bindable roles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindableRoles(pub Vec<RolePattern>);

impl BindableRoles {
    /// Checks whether the list is empty, so that no role can be bound.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the listed roles, each with its namespace if that is known; `None` if an entry is a pattern for names.
    #[must_use]
    pub fn named(&self) -> Option<Vec<(Option<&str>, RoleReference)>> {
        let named = self.0.iter().map(|pattern| {
            let namespace = pattern.namespace.as_deref();
            let role = RoleReference {
                api_group: RBAC_GROUP.to_owned(),
                kind: match namespace {
                    None => RoleKind::ClusterRole,
                    Some(_) => RoleKind::Role,
                },
                name: pattern.name.clone(),
            };
            let namespace = namespace.filter(|namespace| !namespace.ends_with('*'));
            (!pattern.name.ends_with('*')).then_some((namespace, role))
        });
        named.collect()
    }

    /// Returns the match of a role with the list; `namespace` is that of the binding.
    #[must_use]
    pub fn listed(&self, role: &RoleReference, namespace: Option<&str>) -> Listed {
        let mut listed = Listed::No;
        for pattern in &self.0 {
            if pattern.covers(role, namespace) {
                if pattern.names(role) {
                    return Listed::ByName;
                }
                listed = Listed::ByPattern;
            }
        }
        listed
    }
}

impl fmt::Display for BindableRoles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use oz_api::RBAC_GROUP;

    use super::*;

    fn list(entries: &[&str]) -> BindableRoles {
        BindableRoles(entries.iter().map(|entry| entry.parse().unwrap()).collect())
    }

    fn role(kind: RoleKind, name: &str) -> RoleReference {
        RoleReference {
            api_group: RBAC_GROUP.to_owned(),
            kind,
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_role_is_bindable_by_its_name_or_by_a_pattern() {
        use Listed::{ByName, ByPattern, No};
        use RoleKind::{ClusterRole, Role};
        for (entries, kind, name, namespace, listed) in [
            (&[][..], ClusterRole, "view", Some("shop"), No),
            (&["view"], ClusterRole, "view", Some("shop"), ByName),
            (&["view"], ClusterRole, "view", None, ByName),
            (&["view"], ClusterRole, "viewer", None, No),
            (&["view"], Role, "view", Some("shop"), No),
            (&["shop/view"], Role, "view", Some("shop"), ByName),
            (&["shop/view"], Role, "view", Some("shop-2"), No),
            (&["shop/view"], ClusterRole, "view", Some("shop"), No),
            (&["shop*/view"], Role, "view", Some("shop-2"), ByName),
            (&["*/view"], Role, "view", Some("any"), ByName),
            (&["*/*"], Role, "view", Some("any"), ByPattern),
            (&["*/*"], ClusterRole, "view", Some("any"), No),
            (&["*"], ClusterRole, "cluster-admin", None, ByPattern),
            (&["*"], ClusterRole, "*", None, ByPattern),
            (
                &["*", "cluster-admin"],
                ClusterRole,
                "cluster-admin",
                None,
                ByName,
            ),
            (&["team-*"], ClusterRole, "team-a", None, ByPattern),
            (&["team-*"], ClusterRole, "a-team", None, No),
            (&["system:*"], ClusterRole, "system:node", None, ByPattern),
        ] {
            let found = list(entries).listed(&role(kind, name), namespace);
            assert_eq!(found, listed, "{entries:?} {kind} {name} in {namespace:?}");
        }
    }

    #[test]
    fn nonsense_is_no_entry() {
        for text in [
            "", "/", "a/", "/a", "a*b", "*a", "a/b/c", "a b", "a**", "a%",
        ] {
            assert!(text.parse::<RolePattern>().is_err(), "{text:?}");
        }
        assert_eq!(list(&["view", "shop/a*"]).to_string(), "view, shop/a*");
    }
}
