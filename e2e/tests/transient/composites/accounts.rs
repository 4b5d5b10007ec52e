//! Composites that name an account: the account that reads and writes for them, and the expiry of their children by
//! annotation.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use serde_json::json;

use super::hooks::config_maps;
use super::world::{OTHER_ACCOUNT, World, bound, role};
use crate::support::*;

#[tokio::test]
async fn a_composite_has_the_rights_of_the_account_that_it_names_and_the_window_of_its_annotations()
-> Result<()> {
    oz().await?.hooks.add("accounts", config_maps);
    let world = World::set("accounts", "InPlace", |composite| {
        composite["metadata"]["annotations"] = json!({
            "oz.wizardofoz.co/run-as": format!("oz-system/{OTHER_ACCOUNT}"),
            "oz.wizardofoz.co/window-until": ".spec.until",
        });
    })
    .await?;
    // It lacks the rights of the other account.
    let message = world
        .condition_because("Permitted", "False", "PermissionMissing")
        .await?;
    ensure!(
        message.contains(OTHER_ACCOUNT) && message.contains("fleets"),
        "{message}"
    );
    let rules = json!([
        {"apiGroups": ["test.example.org"], "resources": ["fleets"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": ["test.example.org"], "resources": ["fleets/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "create", "patch", "delete"]},
    ]);
    let admin = &world.fixture.admin;
    apply_as(
        &Api::<ClusterRole>::all(admin.clone()),
        role("others", &rules),
    )
    .await?;
    let binding = bound("others", OTHER_ACCOUNT);
    apply_as(&Api::<ClusterRoleBinding>::all(admin.clone()), binding).await?;
    world.condition("Running", "True").await?;
    let until = Timestamp::now() + SignedDuration::from_secs(6);
    let spec = json!({"names": ["a"], "value": "x", "until": until.to_string()});
    world.fleet("one", &spec).await?;
    world.value("a", "x").await?;
    let status = world.composites().get("accounts").await?.status;
    let account = status.unwrap_or_default().account;
    assert_eq!(account, Some(format!("oz-system/{OTHER_ACCOUNT}")));
    world.gone("a").await?;
    ensure!(Timestamp::now() >= until, "it went too early");
    Ok(())
}
