//! Children that the API server stores otherwise than they are applied: it drops empty values of some fields.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::world::{World, bound, role};
use crate::support::*;

/// Returns a Deployment without pods, with a variable that the API server stores without its empty value.
fn deployment(request: &Value) -> Value {
    let spec = &request["parent"]["spec"];
    let labels = json!({"app": "stored"});
    let env = json!([{"name": "EMPTY", "value": ""}, {"name": "VALUE", "value": spec["value"]}]);
    let containers = json!([{"name": "app", "image": "app:1", "env": env}]);
    json!({
        "status": {"round": spec["round"]},
        "children": [{
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "app"},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
            },
        }],
    })
}

/// Waits until the Deployment has this value.
async fn valued(deployments: &Api<Deployment>, value: &str) -> Result<()> {
    let what = format!("the Deployment to have {value}");
    eventually(&what, CONDITION_TIMEOUT, async || {
        let Some(found) = deployments.get_opt("app").await? else {
            return Ok(None);
        };
        let found = serde_json::to_value(found)?;
        let env = &found["spec"]["template"]["spec"]["containers"][0]["env"];
        ensure!(
            env[0]["value"].is_null(),
            "the empty value is stored: {env}"
        );
        Ok((env[1]["value"] == value).then_some(()))
    })
    .await
}

/// Waits until the function has responded for this round of the Fleet.
async fn round(world: &World, round: u32) -> Result<()> {
    let what = format!("round {round}");
    eventually(&what, CONDITION_TIMEOUT, async || {
        let status = world.fleets().get("one").await?.data["status"].clone();
        Ok((status["round"] == round).then_some(()))
    })
    .await
}

#[tokio::test]
async fn child_with_a_value_that_the_api_server_drops_is_not_written_after_a_restart() -> Result<()>
{
    let sync = oz().await?.hooks.add("stored", deployment);
    let world = World::set("stored", "InPlace", |composite| {
        composite["spec"]["childResources"][0]["apiVersion"] = json!("apps/v1");
        composite["spec"]["childResources"][0]["resource"] = json!("deployments");
    })
    .await?;
    let admin = world.fixture.admin.clone();
    let rules = json!([{
        "apiGroups": ["apps"], "resources": ["deployments"],
        "verbs": ["list", "watch", "create", "patch", "delete"],
    }]);
    let roles = Api::<ClusterRole>::all(admin.clone());
    apply_as(&roles, role("composites-deployments", &rules)).await?;
    let bindings = Api::<ClusterRoleBinding>::all(admin.clone());
    let binding = bound("composites-deployments", "oz-composites");
    apply_as(&bindings, binding).await?;
    world.condition("Running", "True").await?;
    let deployments = Api::<Deployment>::namespaced(admin, world.fixture.name());
    let spec = |value: &str, round: u32| json!({"value": value, "round": round});
    world.fleet("one", &spec("x", 1)).await?;
    valued(&deployments, "x").await?;
    world.change("one", &spec("y", 2)).await?;
    valued(&deployments, "y").await?;
    round(&world, 2).await?;

    // A changed annotation starts the composite again.
    let mark = world.fixture.cluster.audit().mark()?;
    let touched = Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
    let parameters = PatchParams::default();
    let composites = world.composites();
    composites.patch("stored", &parameters, &touched).await?;
    eventually(
        "the composite to be started again",
        CONDITION_TIMEOUT,
        async || {
            let controller = &sync.last()["controller"];
            Ok((controller["metadata"]["annotations"]["touched"] == "yes").then_some(()))
        },
    )
    .await?;
    world.change("one", &spec("y", 3)).await?;
    round(&world, 3).await?;
    let entries = world.fixture.cluster.audit().since(mark)?;
    let entries = entries.in_namespace(world.fixture.name());
    let entries = entries.by_user("system:serviceaccount:oz-system:oz-composites");
    let writes: Vec<String> = entries
        .writes()
        .iter()
        .filter(|entry| entry.resource == "deployments")
        .map(|entry| format!("{} {}", entry.verb, entry.request_uri))
        .collect();
    ensure!(writes.is_empty(), "{writes:?}");

    // A change by another client is reverted.
    let other = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [
        {"name": "app", "env": [{"name": "VALUE", "value": "z"}]},
    ]}}}}));
    deployments.patch("app", &parameters, &other).await?;
    valued(&deployments, "y").await
}
