//! Composites that do not run, and the reports about them.

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use oz_testkit::CONDITION_TIMEOUT;
use serde_json::json;

use super::hooks::config_maps;
use super::world::World;
use crate::support::*;

#[tokio::test]
async fn invalid_composite_reports_cause_and_does_not_stop_others() -> Result<()> {
    oz().await?.hooks.add("beside", config_maps);
    let rolling = World::set("rolling", "RollingInPlace", |composite| {
        composite["spec"]["parentResource"]["apiVersion"] =
            json!("admissionregistration.k8s.io/v1");
        composite["spec"]["hooks"]["sync"]["webhook"]["timeout"] = json!("soon");
    })
    .await?;
    let message = rolling.condition("Accepted", "False").await?;
    for part in [
        "spec.childResources[0].updateStrategy.method: RollingInPlace is not supported",
        "reserved",
        "timeout",
    ] {
        ensure!(message.contains(part), "{message}");
    }
    let missing = World::set("missing", "InPlace", |composite| {
        composite["spec"]["childResources"] = json!([
            {"apiVersion": "v1", "resource": "crowns"},
            {"apiVersion": "test.example.org/v1", "resource": "thrones"},
        ]);
    })
    .await?;
    let message = missing.condition("Accepted", "False").await?;
    for kind in ["crowns in v1", "thrones.test.example.org"] {
        let said = format!("the API server has no {kind}");
        ensure!(message.contains(&said), "{message}");
    }
    let homeless = World::set("homeless", "InPlace", |composite| {
        composite["spec"]["hooks"]["sync"]["webhook"]["url"] = json!("http://nowhere:8080/sync");
    })
    .await?;
    let message = homeless
        .condition_because("Accepted", "False", "HookHostUnknown")
        .await?;
    ensure!(
        message.contains("spec.hooks.sync.webhook")
            && message.contains("http://nowhere.NAMESPACE/sync"),
        "{message}"
    );
    let native = World::set("native", "InPlace", |composite| {
        composite["spec"]["parentResource"] = json!({
            "apiVersion": "example.com/v1", "resource": "transientrolebindings",
        });
    })
    .await?;
    let message = native.condition("Accepted", "False").await?;
    ensure!(message.contains("transient.serveExampleCom"), "{message}");

    let beside = World::set("beside", "InPlace", |_| {}).await?;
    beside
        .fleet("one", &json!({"names": ["a"], "value": "x"}))
        .await?;
    beside.value("a", "x").await.map(drop)
}

#[tokio::test]
async fn a_missing_right_is_named_as_a_rule_and_the_composite_runs_once_it_is_there() -> Result<()>
{
    let hooks = &oz().await?.hooks;
    hooks.add("unpermitted", |_| json!({"children": []}));
    let world = World::set("unpermitted", "InPlace", |composite| {
        composite["spec"]["childResources"][0]["apiVersion"] = json!("batch/v1");
        composite["spec"]["childResources"][0]["resource"] = json!("jobs");
    })
    .await?;
    let message = world.condition("Permitted", "False").await?;
    ensure!(
        message.contains(r#"{"apiGroups":["batch"],"resources":["jobs"],"verbs":["create","delete","list","patch","watch"]}"#),
        "{message}"
    );
    ensure!(message.contains("oz-system/oz-composites"), "{message}");
    let rules = json!([{
        "apiGroups": ["batch"], "resources": ["jobs"],
        "verbs": ["create", "delete", "list", "patch", "watch"],
    }]);
    let admin = world.fixture.admin.clone();
    let role = json!({"metadata": {"name": "composites-jobs"}, "rules": rules});
    apply_as(&Api::<ClusterRole>::all(admin.clone()), role).await?;
    let binding = json!({
        "metadata": {"name": "composites-jobs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "composites-jobs"},
        "subjects": [{"kind": "ServiceAccount", "name": "oz-composites", "namespace": "oz-system"}],
    });
    apply_as(&Api::<ClusterRoleBinding>::all(admin), binding).await?;
    let _ = CONDITION_TIMEOUT;
    world.condition("Running", "True").await.map(drop)
}
