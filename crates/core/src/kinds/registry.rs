//! The list of all kinds, for code that identifies kinds by name.

use std::any::TypeId;

use jiff::Timestamp;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::ApiResource;
use serde_json::Value;

use super::{Kind, Role};
use crate::validate::Violation;

/// Runs a block for each kind of a role: `for_each_kind!(requests R => { … })`, with `R` for the type. The
/// roles are `requests`, `templates`, `bindings`, those of them as they were `published`, `approvals`,
/// `reviews`, `locks`, `policies` and `records`; and `requested` are all kinds that users request.
#[macro_export]
macro_rules! for_each_kind {
    (requests $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [ExecAccessRequest PodAccessRequest]);
    };
    (requested $kind:ident => $body:block) => {
        $crate::for_each_kind!(requests $kind => $body);
        $crate::for_each_kind!(bindings $kind => $body);
        $crate::for_each_kind!(published $kind => $body);
        $crate::for_each_kind!(@ $kind $body [harness::HarnessRun harness::Workspace]);
    };
    (templates $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [ExecAccessTemplate PodAccessTemplate]);
    };
    (bindings $kind:ident => $body:block) => {
        $crate::for_each_kind!(@ $kind $body [TransientRoleBinding TransientClusterRoleBinding]);
    };
    (published $kind:ident => $body:block) => {
        {
            type $kind = $crate::types::oz_api::example_com::RoleBinding;
            $body
        }
        {
            type $kind = $crate::types::oz_api::example_com::ClusterRoleBinding;
            $body
        }
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
    (@ $kind:ident $body:block []) => {};
    (@ $kind:ident $body:block [harness::$first:ident $($more:tt)*]) => {
        {
            type $kind = $crate::types::oz_api::harness::$first;
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
    /// The purpose of the kind.
    pub role: Role,
    /// The short names.
    pub short_names: &'static [&'static str],
    /// The finalizer that oz has on its objects.
    pub finalizer: Option<&'static str>,
    definition: fn() -> Option<CustomResourceDefinition>,
    check: fn(Value, Timestamp) -> Result<Vec<Violation>, String>,
}

impl Entry {
    /// Creates the entry of one kind.
    #[must_use]
    pub fn of<K: Kind>() -> Self {
        Self {
            resource: ApiResource::erase::<K>(&()),
            namespaced: TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>(),
            role: K::ROLE,
            short_names: K::short_names(),
            finalizer: K::FINALIZER,
            definition: K::definition,
            check: |object, now| match serde_json::from_value::<K>(object) {
                Ok(object) => Ok(object.violations(now)),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    /// Returns the definition; `None` if oz does not install it.
    #[must_use]
    pub fn definition(&self) -> Option<CustomResourceDefinition> {
        (self.definition)()
    }

    /// Returns the violations of an object that is created `now`.
    ///
    /// # Errors
    /// The reason why the value is not an object of this kind.
    pub fn check(&self, object: Value, now: Timestamp) -> Result<Vec<Violation>, String> {
        (self.check)(object, now)
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

/// Returns all kinds: oz's own kinds, and then the published ones.
#[must_use]
pub fn all() -> Vec<Entry> {
    let mut all = Vec::new();
    for_each_kind!(requests K => { all.push(Entry::of::<K>()) });
    for_each_kind!(templates K => { all.push(Entry::of::<K>()) });
    for_each_kind!(bindings K => { all.push(Entry::of::<K>()) });
    for_each_kind!(approvals K => { all.push(Entry::of::<K>()) });
    for_each_kind!(locks K => { all.push(Entry::of::<K>()) });
    for_each_kind!(policies K => { all.push(Entry::of::<K>()) });
    for_each_kind!(reviews K => { all.push(Entry::of::<K>()) });
    for_each_kind!(records K => { all.push(Entry::of::<K>()) });
    for_each_kind!(published K => { all.push(Entry::of::<K>()) });
    all
}

/// Finds the kind that a word names.
#[must_use]
pub fn named(word: &str) -> Option<Entry> {
    all().into_iter().find(|entry| entry.is_called(word))
}

#[cfg(test)]
mod tests {
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
        ] {
            for word in words {
                let found = named(word).map(|entry| entry.resource);
                let found = found.map(|it| format!("{} {}", it.api_version, it.kind));
                assert_eq!(found.as_deref(), Some(kind), "{word}");
            }
        }
        for word in ["pods", "execaccessrequests.example.com", ""] {
            assert!(named(word).is_none(), "{word}");
        }
    }

    #[test]
    fn no_word_names_two_kinds_of_ours() {
        let ours = all()
            .into_iter()
            .filter(|entry| entry.definition().is_some());
        let ours: Vec<Entry> = ours.collect();
        assert_eq!(ours.len(), 11);
        for entry in &ours {
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
        let mut names = Vec::new();
        for_each_kind!(requests K => { names.push(K::NAME) });
        for_each_kind!(templates K => { names.push(K::NAME) });
        for_each_kind!(bindings K => { names.push(K::NAME) });
        for_each_kind!(published K => { names.push(K::NAME) });
        for_each_kind!(approvals K => { names.push(K::NAME) });
        for_each_kind!(locks K => { names.push(K::NAME) });
        for_each_kind!(policies K => { names.push(K::NAME) });
        for_each_kind!(reviews K => { names.push(K::NAME) });
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), count), (12, 12));
    }
}
