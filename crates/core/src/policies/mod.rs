//! The ValidatingAdmissionPolicies with which the API server itself enforces rules that must hold without any
//! process of oz (deploy/policies): their desired form in a cluster, and the faults of existing ones.
//! See docs/adr/0012-policies-are-the-second-lock.md.

mod normalized;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
};
use oz_api::names;
use serde::Deserialize;

/// The file from which the chart creates its policies.
const FILE: &str = include_str!("../../../../charts/oz/files/policies.json");

/// The names of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The prefix of the names of its objects.
    pub name: String,
    /// The namespace of the installation.
    pub namespace: String,
    /// The break-glass groups.
    pub break_glass: Vec<String>,
    /// Whether harness runs are enabled, and with them their policies.
    pub harness: bool,
    /// Whether composites are enabled, and with them their policies.
    pub composites: bool,
}

impl Installation {
    /// Returns the value of a variable of the policies in this installation, if it differs between
    /// installations.
    fn expression(&self, variable: &str) -> Option<String> {
        let account = || {
            let name = format!("{}-{variable}", self.name);
            names::service_account(&self.namespace, &name).into()
        };
        let value: serde_json::Value = match variable {
            "operator" | "webhook" | "broker" | "gate" => account(),
            "installation" => self.name.as_str().into(),
            "ownNamespace" => self.namespace.as_str().into(),
            // The configuration may contain an empty text, which is no group.
            "breakGlass" => {
                let groups = self.break_glass.iter().filter(|group| !group.is_empty());
                groups.cloned().collect()
            }
            _ => return None,
        };
        // JSON's strings and lists are also valid in CEL.
        Some(value.to_string())
    }
}

/// An admission policy and its binding, which have the same name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Policy {
    /// Name of both.
    pub name: String,
    /// Admission policy.
    pub policy: ValidatingAdmissionPolicySpec,
    /// Binding of the admission policy.
    pub binding: ValidatingAdmissionPolicyBindingSpec,
    /// The feature that must be enabled for the policy to exist; `None` if it always exists.
    #[serde(default)]
    feature: Option<Feature>,
}

/// A feature that an installation can enable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Feature {
    Composites,
    Harness,
}

#[derive(Deserialize)]
struct File {
    policies: Vec<Policy>,
}

impl Policy {
    /// Returns the admission policies of an installation.
    ///
    /// # Errors
    /// Only if the compiled-in file is invalid.
    pub fn all(installation: &Installation) -> Result<Vec<Self>, serde_json::Error> {
        let File { mut policies } = serde_json::from_str(FILE)?;
        policies.retain(|one| match one.feature {
            None => true,
            Some(Feature::Composites) => installation.composites,
            Some(Feature::Harness) => installation.harness,
        });
        for one in &mut policies {
            one.name = format!("{}-{}", installation.name, one.name);
            one.binding.policy_name = Some(one.name.clone());
            for variable in one.policy.variables.iter_mut().flatten() {
                if let Some(expression) = installation.expression(&variable.name) {
                    variable.expression = expression;
                }
            }
        }
        Ok(policies)
    }

    /// Returns the fault of the policy and the binding of this name in a cluster, if there is one: a difference in
    /// meaning, not in spelling.
    #[must_use]
    pub fn fault(
        &self,
        policy: Option<&ValidatingAdmissionPolicySpec>,
        binding: Option<&ValidatingAdmissionPolicyBindingSpec>,
    ) -> Option<&'static str> {
        let is_other = |found| normalized::policy(found) != normalized::policy(&self.policy);
        let is_bound_otherwise =
            |found| normalized::binding(found) != normalized::binding(&self.binding);
        match (policy, binding) {
            (None, _) => Some("is missing"),
            (Some(found), _) if is_other(found) => Some("was changed"),
            (_, None) => Some("has no effect: its binding does not exist"),
            (_, Some(found)) if is_bound_otherwise(found) => Some("has a binding that was changed"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use k8s_openapi::api::admissionregistration::v1::{
        ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    };
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use serde_json::Value;

    use super::*;

    fn installation() -> Installation {
        Installation {
            name: "access-oz".to_owned(),
            namespace: "access".to_owned(),
            break_glass: vec!["menders".to_owned(), String::new()],
            harness: true,
            composites: true,
        }
    }

    /// Returns the plurals of oz's kinds that have a status subresource.
    fn with_a_status() -> impl Iterator<Item = String> {
        let all = crate::kinds::all().into_iter();
        let all = all.filter_map(|kind| kind.definition());
        let has_one = |crd: &CustomResourceDefinition| {
            let mut versions = crd.spec.versions.iter();
            versions.any(|version| {
                let subresources = version.subresources.as_ref();
                subresources.is_some_and(|it| it.status.is_some())
            })
        };
        all.filter(has_one).map(|crd| crd.spec.names.plural)
    }

    #[test]
    fn status_of_every_kind_is_written_by_oz_alone() {
        let policies = Policy::all(&installation()).unwrap();
        let statuses = policies
            .iter()
            .filter(|policy| policy.name.contains("status"));
        let guarded: Vec<String> = statuses
            .filter_map(|policy| policy.policy.match_constraints.as_ref())
            .flat_map(|constraints| constraints.resource_rules.iter().flatten())
            .flat_map(|rule| rule.resources.iter().flatten().cloned())
            .collect();
        for plural in with_a_status() {
            let status = format!("{plural}/status");
            assert!(guarded.contains(&status), "{status} is not in {guarded:?}");
        }
    }

    #[test]
    fn policies_name_the_accounts_and_groups_of_their_installation() {
        let policies = Policy::all(&installation()).unwrap();
        assert!(!policies.is_empty());
        for policy in &policies {
            assert!(policy.name.starts_with("access-oz-"));
            assert_eq!(policy.binding.policy_name.as_ref(), Some(&policy.name));
            for variable in policy.policy.variables.iter().flatten() {
                let expected = match variable.name.as_str() {
                    "operator" => r#""system:serviceaccount:access:access-oz-operator""#,
                    "webhook" => r#""system:serviceaccount:access:access-oz-webhook""#,
                    "broker" => r#""system:serviceaccount:access:access-oz-broker""#,
                    "gate" => r#""system:serviceaccount:access:access-oz-gate""#,
                    "installation" => r#""access-oz""#,
                    "ownNamespace" => r#""access""#,
                    "breakGlass" => r#"["menders"]"#,
                    _ => continue,
                };
                assert_eq!(variable.expression, expected, "{}", policy.name);
            }
        }
    }

    /// Reads the admission policies and bindings in a folder and its subfolders, as an administrator applies them.
    fn by_hand(
        folder: &Path,
    ) -> Vec<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)> {
        let entries = std::fs::read_dir(folder).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let read = |path: PathBuf| {
            if path.is_dir() {
                return by_hand(&path);
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            let [policy, binding] = &documents[..] else {
                panic!("{} has no two documents", path.display());
            };
            let policy = serde_json::from_value(policy.clone()).unwrap();
            let binding = serde_json::from_value(binding.clone()).unwrap();
            vec![(policy, binding)]
        };
        paths.flat_map(read).collect()
    }

    #[test]
    fn admission_policy_applied_by_hand_has_no_fault() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/policies");
        let files = by_hand(Path::new(folder));
        let expected = Policy::all(&Installation {
            name: "oz".to_owned(),
            namespace: "oz-system".to_owned(),
            break_glass: vec!["system:masters".to_owned()],
            harness: true,
            composites: true,
        });
        let expected = expected.unwrap();
        assert_eq!(files.len(), expected.len());
        for (policy, binding) in files {
            let name = policy.metadata.name.unwrap();
            let known = expected.iter().find(|one| one.name == name);
            let fault = known.map(|one| one.fault(policy.spec.as_ref(), binding.spec.as_ref()));
            assert_eq!(fault, Some(None), "{name}");
        }
    }

    /// The API server evaluates a policy once for each parameter.
    #[test]
    fn no_policy_is_asked_once_for_each_grant() {
        for Policy {
            name,
            policy,
            binding,
            ..
        } in Policy::all(&installation()).unwrap()
        {
            let Some(kind) = policy.param_kind else {
                continue;
            };
            assert_eq!(kind.kind.as_deref(), Some("Role"), "{name}");
            let selector = binding.param_ref.and_then(|parameters| parameters.selector);
            let left_out = selector.and_then(|selector| selector.match_expressions);
            let left_out = left_out.unwrap_or_default();
            let of_grants = left_out
                .iter()
                .find(|one| one.key == oz_api::labels::GRANT_ROLE);
            assert_eq!(of_grants.unwrap().operator, "DoesNotExist", "{name}");
        }
    }

    #[test]
    fn policies_of_harness_runs_stand_where_there_are_any() {
        let names = |harness: bool| -> Vec<String> {
            let installation = Installation {
                harness,
                ..installation()
            };
            let policies = Policy::all(&installation).unwrap();
            policies.into_iter().map(|policy| policy.name).collect()
        };
        let (with, without) = (names(true), names(false));
        let of_runs = |name: &&String| name.contains("-harness-");
        assert!(with.iter().filter(of_runs).count() >= 4, "{with:?}");
        assert_eq!(without.iter().filter(of_runs).count(), 0, "{without:?}");
    }

    #[test]
    fn missing_or_weakened_admission_policy_is_reported() {
        let policies = Policy::all(&installation()).unwrap();
        let policy = &policies[0];
        let (spec, binding) = (&policy.policy, &policy.binding);
        assert_eq!(policy.fault(Some(spec), Some(binding)), None);
        assert!(policy.fault(None, Some(binding)).is_some());
        assert!(policy.fault(Some(spec), None).is_some());
        let mut open = spec.clone();
        open.failure_policy = Some("Ignore".to_owned());
        assert_eq!(
            policy.fault(Some(&open), Some(binding)),
            Some("was changed")
        );
        let mut warns = binding.clone();
        warns.validation_actions = Some(vec!["Warn".to_owned()]);
        assert!(policy.fault(Some(spec), Some(&warns)).is_some());
    }
}
