//! Denials, by the API server itself, by the webhook, and at the moment of binding.

use anyhow::Result;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_api::Phase;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn invalid_binding_is_refused_with_field_path() -> Result<()> {
    let fixture = Fixture::set("nonsense").await?;
    let hour = json!({"duration": "1h"});
    let with = |pointer: &str, value: Value| {
        let mut object = binding("a", &hour);
        if let Some(field) = object.pointer_mut(pointer) {
            *field = value;
        }
        object
    };
    for (object, said) in [
        (
            binding("a", &json!({"validUntil": "tomorrow"})),
            "spec.validUntil",
        ),
        (
            binding("a", &json!({"validFrom": "1", "duration": "1h"})),
            "spec.validFrom",
        ),
        (binding("a", &json!({"duration": "-1h"})), "spec.duration"),
        (binding("a", &json!({"duration": "0s"})), "spec.duration"),
        (
            binding("a", &json!({})),
            "exactly one of validUntil and duration",
        ),
        (
            binding("a", &json!({"validUntil": from_now(9), "duration": "1h"})),
            "exactly one of validUntil and duration",
        ),
        (
            binding(
                "a",
                &json!({"validFrom": from_now(9), "validUntil": from_now(8)}),
            ),
            "must be later than validFrom",
        ),
        (
            binding("a", &json!({"validUntil": from_now(-9)})),
            "must be in the future",
        ),
        (
            binding("a", &json!({"duration": "61m"})),
            "longer than the 1h",
        ),
        (with("/spec/subjects", json!([])), "spec.subjects"),
        (
            with(
                "/spec/subjects/0",
                json!({"kind": "ServiceAccount", "name": "a"}),
            ),
            "a ServiceAccount needs its namespace",
        ),
    ] {
        let told = fixture.refused("lea", &object).await?;
        assert!(told.contains(said), "{object}: {told}");
    }
    Ok(())
}

#[tokio::test]
async fn user_may_not_bind_through_oz_beyond_own_rights() -> Result<()> {
    let fixture = Fixture::set("rights").await?;
    let view = binding("a", &json!({"duration": "1h"}));
    let told = fixture.refused("ina", &view).await?;
    assert!(told.contains("ina may not bind ClusterRole view"), "{told}");
    // The role is not on the list, though the lead may bind it.
    let role = |name: &str| {
        let mut object = view.clone();
        object["spec"]["roleRef"]["name"] = json!(name);
        object
    };
    let told = fixture.refused("lea", &role("cluster-admin")).await?;
    assert!(told.contains("cannot be bound through oz"), "{told}");
    // The role is on the list by a pattern, but has a right to secrets.
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let roles = Api::<ClusterRole>::all(fixture.admin.clone());
    let powerful = json!({"metadata": {"name": "team-powerful"}, "rules": rules.clone()});
    apply_as(&roles, powerful).await?;
    let told = fixture.refused("lea", &role("team-powerful")).await?;
    assert!(told.contains("secrets"), "{told}");
    // The same holds for a Role of the namespace.
    let roles = Api::<Role>::namespaced(fixture.admin.clone(), fixture.name());
    let powerful = json!({"metadata": {"name": "team-powerful"}, "rules": rules});
    apply_as(&roles, powerful).await?;
    let mut here = role("team-powerful");
    here["spec"]["roleRef"]["kind"] = json!("Role");
    let told = fixture.refused("lea", &here).await?;
    assert!(told.contains("secrets"), "{told}");
    Ok(())
}

#[tokio::test]
async fn role_with_added_power_before_window_is_not_bound() -> Result<()> {
    let fixture = Fixture::set("edited").await?;
    let roles = Api::<ClusterRole>::all(fixture.admin.clone());
    let role = |resource: &str| {
        json!({
            "metadata": {"name": "team-late"},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}],
        })
    };
    apply_as(&roles, role("pods")).await?;
    let mut object = binding("late", &json!({"validFrom": from_now(4), "duration": "1h"}));
    object["spec"]["roleRef"]["name"] = json!("team-late");
    fixture.create(&object).await?;
    apply_as(&roles, role("secrets")).await?;
    let status = fixture.phase("late", Phase::Denied).await?;
    assert_eq!(condition(&status, "Ready"), "False (RoleTooPowerful)");
    assert!(fixture.made().get_opt("late").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn spec_of_binding_is_immutable() -> Result<()> {
    let fixture = Fixture::set("immutable").await?;
    fixture
        .create(&binding(
            "fixed",
            &json!({"validFrom": from_now(900), "duration": "1h"}),
        ))
        .await?;
    let admin =
        Api::<oz_api::TransientRoleBinding>::namespaced(fixture.admin.clone(), fixture.name());
    for (change, said) in [
        (json!({"spec": {"roleRef": {"name": "edit"}}}), "immutable"),
        (json!({"spec": {"duration": "2h"}}), "immutable"),
        (
            json!({"metadata": {"finalizers": null}}),
            "only oz removes oz.wizardofoz.co/revoke",
        ),
    ] {
        let patch = Patch::Merge(&change);
        let answer = admin.patch("fixed", &PatchParams::default(), &patch).await;
        let Err(kube::Error::Api(status)) = answer else {
            anyhow::bail!("{change} was let in");
        };
        assert!(
            status.message.contains(said),
            "{change}: {}",
            status.message
        );
    }
    Ok(())
}
