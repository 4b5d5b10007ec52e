//! The rights that a declaration requires, as roles.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Manager, RegistrationMode, register::labelled};
use crate::{certificate::CertSource, registration::eirinix};

impl Manager {
    /// Returns the rights that this declaration requires, as a `List` of a Role for the manager's namespace
    /// and a ClusterRole, both named after the fingerprint, without bindings: for a chart, a review, or
    /// `kubectl apply -f -`, which accepts JSON. Add the rights for the calls that handlers and tasks make.
    ///
    /// ```no_run
    /// # fn print(manager: &oz_admission::Manager) {
    /// println!("{:#}", manager.rbac());
    /// # }
    /// ```
    pub fn rbac(&self) -> Value {
        let name = self.declared.fingerprint.as_ref();
        let rbac = "rbac.authorization.k8s.io/v1";
        let metadata = json!({"name": name, "namespace": self.declared.namespace});
        json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": self.rules_here()},
            {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name},
                "rules": self.rules_everywhere()},
        ]})
    }

    fn rules_here(&self) -> Vec<Value> {
        let declared = &self.declared;
        let mut rules = Vec::new();
        if declared.serves() {
            match &declared.certificates {
                CertSource::SelfSigned(policy) => {
                    let name = policy.secret_name(&declared.fingerprint);
                    let verbs = ["get", "list", "watch", "update", "delete"];
                    rules.push(rule("", &["secrets"], &[&name], &verbs));
                    rules.push(rule("", &["secrets"], &[], &["create"]));
                }
                CertSource::Secret { name } => {
                    rules.push(rule("", &["secrets"], &[name], &["get", "list", "watch"]));
                }
                CertSource::Files { .. } => {}
            }
        }
        if self.competes {
            let leases = "coordination.k8s.io";
            let name = declared.fingerprint.as_ref();
            rules.push(rule(leases, &["leases"], &[name], &["get", "update"]));
            rules.push(rule(leases, &["leases"], &[], &["create"]));
        }
        rules.extend(self.watched(true));
        rules
    }

    /// Returns the rules for the resources of watchers and caches, in the manager's namespace or elsewhere.
    fn watched(&self, here: bool) -> impl Iterator<Item = Value> {
        let own = Some(self.declared.namespace.as_str());
        let watchers = self.watchers.iter().map(|(watcher, _)| {
            let (group, plural) = watcher.resource();
            (watcher.namespace(), group, plural)
        });
        let caches = self.caches.iter().map(|cache| {
            let namespace = cache.namespace.as_deref();
            (namespace, cache.group.as_str(), cache.plural.as_str())
        });
        let watched: BTreeSet<_> = watchers
            .chain(caches)
            .filter(|(namespace, ..)| (*namespace == own) == here)
            .map(|(_, group, plural)| (group, plural))
            .collect();
        watched
            .into_iter()
            .map(|(group, plural)| rule(group, &[plural], &[], &["list", "watch"]))
    }

    fn rules_everywhere(&self) -> Vec<Value> {
        const GROUP: &str = "admissionregistration.k8s.io";
        const BOTH: [&str; 2] = [
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
        ];
        let declared = &self.declared;
        let name = declared.fingerprint.as_ref();
        let mut rules = Vec::new();
        if declared.serves() && declared.mode == RegistrationMode::Maintain {
            let verbs = ["get", "list", "watch", "patch", "update", "delete"];
            rules.push(rule(GROUP, &BOTH, &[name], &verbs));
            rules.push(rule(GROUP, &BOTH, &[], &["create", "list"]));
            let names = labelled(declared);
            let names: Vec<_> = names.keys().map(String::as_str).collect();
            if !names.is_empty() {
                let verbs = ["get", "list", "watch", "patch"];
                rules.push(rule("", &["namespaces"], &names, &verbs));
            }
            if self.replaces_eirinix {
                let name = eirinix::configuration_name(name);
                rules.push(rule(GROUP, &BOTH[..1], &[&name], &["get", "delete"]));
            }
        } else if declared.serves() {
            rules.push(rule(GROUP, &BOTH, &[name], &["get"]));
        }
        if !declared.conversions.is_empty() {
            let definitions = declared.conversions.iter();
            let definitions: Vec<_> = definitions.map(|it| it.definition.as_str()).collect();
            let verbs: &[&str] = match declared.mode {
                RegistrationMode::Maintain => &["get", "list", "watch", "patch"],
                RegistrationMode::Never => &["get"],
            };
            let group = "apiextensions.k8s.io";
            rules.push(rule(
                group,
                &["customresourcedefinitions"],
                &definitions,
                verbs,
            ));
        }
        rules.extend(self.watched(false));
        rules.push(rule(
            "events.k8s.io",
            &["events"],
            &[],
            &["create", "patch"],
        ));
        rules
    }
}

fn rule(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}
