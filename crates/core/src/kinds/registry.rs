//! The list of all kinds, for code that identifies kinds by name.
//! See docs/adr/0043-identities-and-one-registry.md.

use std::any::TypeId;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::ApiResource;
use oz_api::kind::{Family, Kind, Role};

/// Runs a block for each kind of a role: `for_each_kind!(requests R => { … })`, with `R` for the type. The
/// roles are `requests`, `templates`, `bindings`, those of them as they were `published`, `approvals`,
/// `reviews`, `locks`, `policies` and `records`; `runs`, `workspaces`, `run_policies` and `run_templates` of
/// harness runs; and `composites`. `requested` are all kinds that users request, `of_access` all with
/// [`Rules`](crate::kinds::Rules), and `every` are all kinds of the registry.
#[macro_export]
macro_rules! for_each_kind {
    (requests $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [ExecAccessRequest PodAccessRequest]);
    };
    (templates $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [ExecAccessTemplate PodAccessTemplate]);
    };
    (bindings $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [TransientRoleBinding TransientClusterRoleBinding]);
    };
    (published $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [example_com::RoleBinding example_com::ClusterRoleBinding]);
    };
    (approvals $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [AccessRequestApproval]);
    };
    (locks $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [AccessLock]);
    };
    (policies $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [AccessPolicy]);
    };
    (reviews $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [AccessReview]);
    };
    (records $kind:ident => $body:block) => {
        {
            type $kind = $crate::types::AuditEvent;
            $body
        }
    };
    (runs $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [harness::HarnessRun]);
    };
    (workspaces $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [harness::Workspace]);
    };
    (run_policies $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [harness::BrokerPolicy]);
    };
    (run_templates $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [harness::HarnessTemplate harness::ClusterHarnessTemplate]);
    };
    (composites $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [composite::CompositeController rego::RegoController]);
    };
    (requested $kind:ident => $body:block) => {
        $crate::for_each_kind!(requests $kind => $body);
        $crate::for_each_kind!(bindings $kind => $body);
        $crate::for_each_kind!(published $kind => $body);
        $crate::for_each_kind!(runs $kind => $body);
        $crate::for_each_kind!(workspaces $kind => $body);
    };
    (of_access $kind:ident => $body:block) => {
        $crate::for_each_kind!(requests $kind => $body);
        $crate::for_each_kind!(templates $kind => $body);
        $crate::for_each_kind!(bindings $kind => $body);
        $crate::for_each_kind!(approvals $kind => $body);
        $crate::for_each_kind!(locks $kind => $body);
        $crate::for_each_kind!(policies $kind => $body);
        $crate::for_each_kind!(reviews $kind => $body);
        $crate::for_each_kind!(records $kind => $body);
        $crate::for_each_kind!(published $kind => $body);
    };
    (every $kind:ident => $body:block) => {
        $crate::for_each_kind!(of_access $kind => $body);
        $crate::for_each_kind!(runs $kind => $body);
        $crate::for_each_kind!(workspaces $kind => $body);
        $crate::for_each_kind!(run_policies $kind => $body);
        $crate::for_each_kind!(run_templates $kind => $body);
        $crate::for_each_kind!(composites $kind => $body);
    };
    (@ $kind:ident $body:block []) => {};
    (@ $kind:ident $body:block [$module:ident::$first:ident $($more:tt)*]) => {
        {
            type $kind = $crate::types::oz_api::$module::$first;
            $body
        }
        $crate::for_each_kind!(@ $kind $body [$($more)*]);
    };
    (@ $kind:ident $body:block [$first:ident $($more:ident)*]) => {
        {
            type $kind = $crate::types::oz_api::$first;
            $body
        }
        $crate::for_each_kind!(@ $kind $body [$($more)*]);
    };
}

/// The properties of a kind, available without an object of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether the kind is namespaced.
    pub namespaced: bool,
    /// The part of oz to which the kind belongs.
    pub family: Family,
    /// The purpose of the kind.
    pub role: Role,
    /// The name of the kind's controller: unique, in lower case.
    pub name: &'static str,
    /// The short names.
    pub short_names: &'static [&'static str],
    /// The finalizer that oz has on its objects.
    pub finalizer: Option<&'static str>,
    definition: fn() -> Option<CustomResourceDefinition>,
}

impl Entry {
    /// Creates the entry of one kind.
    #[must_use]
    pub fn from_type<K: Kind>() -> Self {
        Self {
            resource: ApiResource::erase::<K>(&()),
            namespaced: TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>(),
            family: K::FAMILY,
            role: K::ROLE,
            name: K::NAME,
            short_names: K::short_names(),
            finalizer: K::FINALIZER,
            definition: K::definition,
        }
    }

    /// Returns the definition, as it is installed; `None` if oz does not install it.
    #[must_use]
    pub fn definition(&self) -> Option<CustomResourceDefinition> {
        (self.definition)()
    }

    /// Checks whether the kind is one of access, also as it was published.
    #[must_use]
    pub fn is_of_access(&self) -> bool {
        matches!(self.family, Family::Access | Family::Published)
    }

    /// Checks whether a word names the kind: plural, singular, kind or short name, with or without the group.
    #[must_use]
    pub fn is_called(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        let word = match word.split_once('.') {
            None => word.as_str(),
            Some((name, group)) => {
                let own = self.resource.group.as_str();
                if !own.starts_with(group) && !group.ends_with(own) {
                    return false;
                }
                name
            }
        };
        let kind = &self.resource.kind;
        word == self.resource.plural
            || word == kind.to_lowercase()
            || word == hyphenated(kind)
            || self.short_names.contains(&word)
    }
}

/// Formats a kind with hyphens: `exec-access-request`
fn hyphenated(kind: &str) -> String {
    let mut text = String::new();
    for letter in kind.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// Returns all kinds: those of access, with the published ones last, then those of harness runs and of
/// composites.
#[must_use]
pub fn all() -> Vec<Entry> {
    let mut all = Vec::new();
    for_each_kind!(every K => { all.push(Entry::from_type::<K>()) });
    all
}

/// Returns the definitions of the kinds of one part of oz, as they are installed, in the order of their names.
#[must_use]
pub fn crds(family: Family) -> Vec<CustomResourceDefinition> {
    let kinds = all().into_iter().filter(|kind| kind.family == family);
    let mut crds: Vec<_> = kinds.filter_map(|kind| kind.definition()).collect();
    crds.sort_by(|one, other| one.spec.names.kind.cmp(&other.spec.names.kind));
    crds
}

/// Finds the kind that a word names.
#[must_use]
pub fn find(word: &str) -> Option<Entry> {
    all().into_iter().find(|entry| entry.is_called(word))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_kind_goes_by_all_its_names() {
        for (words, kind) in [
            (
                &[
                    "ExecAccessRequest",
                    "execaccessrequests",
                    "exec-access-request",
                    "ear",
                    "execaccessrequests.crds.wizardofoz.co",
                    "execaccessrequests.v1alpha1.crds.wizardofoz.co",
                ][..],
                "crds.wizardofoz.co/v1alpha1 ExecAccessRequest",
            ),
            (&["trb"], "crds.wizardofoz.co/v1alpha1 TransientRoleBinding"),
            (
                &["transientrolebindings.example.com"],
                "example.com/v1 TransientRoleBinding",
            ),
            (&["oza"], "crds.wizardofoz.co/v1alpha1 AuditEvent"),
            (&["hr", "harness-run"], "paddock.dev/v1alpha1 HarnessRun"),
            (&["rego"], "crds.wizardofoz.co/v1alpha1 RegoController"),
        ] {
            for word in words {
                let found = find(word).map(|entry| entry.resource);
                let found = found.map(|it| format!("{} {}", it.api_version, it.kind));
                assert_eq!(found.as_deref(), Some(kind), "{word}");
            }
        }
        for word in ["pods", "execaccessrequests.example.com", ""] {
            assert!(find(word).is_none(), "{word}");
        }
    }

    #[test]
    fn registry_has_all_twenty_kinds_once() {
        let kinds = all().into_iter();
        let kinds: Vec<String> = kinds
            .map(|kind| format!("{}.{}", kind.resource.plural, kind.resource.group))
            .collect();
        let different: BTreeSet<&String> = kinds.iter().collect();
        assert_eq!((kinds.len(), different.len()), (20, 20), "{kinds:?}");
    }

    #[test]
    fn no_word_names_two_kinds_of_ours() {
        let ours = all().into_iter();
        let ours: Vec<Entry> = ours
            .filter(|entry| entry.family != Family::Published)
            .collect();
        assert_eq!(ours.len(), 18);
        for entry in &ours {
            assert!(entry.definition().is_some(), "{}", entry.name);
            for word in entry
                .short_names
                .iter()
                .copied()
                .chain([&*entry.resource.plural])
            {
                let called = ours.iter().filter(|entry| entry.is_called(word)).count();
                assert_eq!(called, 1, "{word}");
            }
        }
    }

    #[test]
    fn names_of_controllers_and_hooks_are_unique() {
        let names: Vec<&str> = all().iter().map(|kind| kind.name).collect();
        let different: BTreeSet<&&str> = names.iter().collect();
        assert_eq!((names.len(), different.len()), (20, 20));
    }

    #[test]
    fn entries_agree_with_their_definitions() {
        for kind in all() {
            let Some(crd) = kind.definition() else {
                assert_eq!(kind.family, Family::Published, "{}", kind.name);
                continue;
            };
            let (names, resource) = (&crd.spec.names, &kind.resource);
            assert_eq!(
                (&names.kind, &names.plural, &crd.spec.group),
                (&resource.kind, &resource.plural, &resource.group)
            );
            let short_names: Vec<&str> = names
                .short_names
                .iter()
                .flatten()
                .map(String::as_str)
                .collect();
            assert_eq!(short_names, kind.short_names, "{}", kind.name);
            assert_eq!(
                crd.spec.scope == "Namespaced",
                kind.namespaced,
                "{}",
                kind.name
            );
        }
    }
}
