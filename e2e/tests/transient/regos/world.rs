//! One RegoController with its namespace: Fleets as parents, ConfigMaps as children.

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use oz_api::rego::RegoController;
use serde_json::{Value, json};

/// A policy in which each parent has a ConfigMap of its name.
pub(crate) const ONE: &str = r#"package controller

children contains {
    "apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"name": input.parent.metadata.name},
    "data": {"value": input.parent.spec.value},
}

status := {"children": count(children)}
"#;

/// A policy in which no parent has any child.
pub(super) const NONE: &str = "package controller\n\nchildren := []\n";

/// Returns a RegoController with Fleets of its label as parents.
pub(super) fn rego(name: &str) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "RegoController",
        "metadata": {"name": name},
        "spec": {
            "parent": {
                "apiVersion": "test.example.org/v1", "resource": "fleets",
                "labelSelector": {"matchLabels": {"fleet": name}},
            },
            "children": [{"apiVersion": "v1", "resource": "configmaps"}],
            "policy": {"inline": ONE},
            "runAs": {"namespace": "oz-system", "serviceAccount": "oz-composites"},
        },
    })
}

/// A RegoController with its namespace.
pub(crate) type World = crate::composites::World<RegoController>;

impl World {
    /// Creates a namespace, and the RegoController after `change`.
    pub(crate) async fn set_rego(name: &str, change: impl FnOnce(&mut Value)) -> Result<Self> {
        Self::declare(name, rego(name), change).await
    }

    /// Changes the RegoController.
    pub(super) async fn patch(&self, patch: Value) -> Result<()> {
        let parameters = PatchParams::default();
        let patch = Patch::Merge(patch);
        self.composites()
            .patch(&self.name, &parameters, &patch)
            .await?;
        Ok(())
    }

    /// Replaces the policy.
    pub(super) async fn policy(&self, text: &str) -> Result<()> {
        self.patch(json!({"spec": {"policy": {"inline": text}}}))
            .await
    }
}
