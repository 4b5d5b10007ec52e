//! The output of `ozctl` about composites, on the cluster in which the operator runs them.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::hooks::config_maps;
use super::world::{OTHER_POLICIES, World};
use crate::support::*;

const POLICY: &str = r#"package faces

children[child] {
    time.now_ns() < time.parse_rfc3339_ns(input.parent.spec.validUntil)
    child := {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": input.parent.metadata.name},
        "data": {"value": input.parent.spec.value},
    }
}
"#;

#[tokio::test]
async fn explained_plan_of_parent_matches_operator() -> Result<()> {
    oz().await?;
    let world = World::set("faces", "InPlace", |composite| {
        let url = format!("http://opa.{OTHER_POLICIES}:8181/v0/data/faces");
        composite["spec"]["hooks"]["sync"]["webhook"]["url"] = json!(url);
    })
    .await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.fixture.admin.clone(), OTHER_POLICIES);
    let map = json!({"metadata": {"name": "faces"}, "data": {"faces.rego": POLICY}});
    apply_as(&maps, map).await?;
    world.condition("Running", "True").await?;
    let until = Timestamp::now() + SignedDuration::from_hours(1);
    let spec = json!({"validUntil": until.to_string(), "value": "x"});
    world.fleet("one", &spec).await?;
    world.value("one", "x").await?;
    // Steps that the operator has done are not planned again, though its seal cannot be verified here.
    eventually("nothing to be left to do", CONDITION_TIMEOUT, async || {
        let (code, told) = world.ozctl(&["explain", "fleets.test.example.org/one"])?;
        let one = &told["composites"][0];
        let is_settled = code == Some(0) && one["plan"]["stages"] == json!([]);
        ensure!(is_settled, "{code:?} {told}");
        assert_eq!(one["function"], format!("data.faces in {OTHER_POLICIES}"));
        let timeline = &one["timeline"];
        assert_eq!(timeline[0]["at"], json!(until), "{timeline}");
        assert_eq!(timeline[0]["go"], json!(["ConfigMap one"]), "{timeline}");
        Ok(Some(()))
    })
    .await?;
    let (_, listed) = world.ozctl(&["composites", "faces"])?;
    assert_eq!(
        listed["function"],
        format!("data.faces in {OTHER_POLICIES}")
    );
    assert_eq!(listed["parents"], 1);
    assert_eq!(listed["lastError"], Value::Null);
    Ok(())
}

#[tokio::test]
async fn explain_of_http_function_reports_known_state_without_plan() -> Result<()> {
    let function = oz().await?.hooks.add("untold", config_maps);
    let world = World::set("untold", "InPlace", |_| {}).await?;
    world
        .fleet("one", &json!({"names": ["a"], "value": "x"}))
        .await?;
    world.value("a", "x").await?;
    function.answer_with(500);
    world.change("one", &json!({"value": "y"})).await?;
    world.event("SyncError").await?;
    let (code, told) = world.ozctl(&["explain", "fleets/one"])?;
    assert_eq!(code, Some(1), "{told}");
    let one = &told["composites"][0];
    ensure!(
        one["planUnknown"]
            .as_str()
            .is_some_and(|why| why.contains("behind HTTP")),
        "{told}"
    );
    assert_eq!(one["children"], json!(["ConfigMap a"]));
    let note = one["lastError"]["message"].as_str().unwrap_or_default();
    ensure!(note.starts_with("untold ("), "{told}");
    let (_, listed) = world.ozctl(&["composites", "untold"])?;
    ensure!(
        listed["lastError"]["reason"] == "SyncError" && listed["parents"] == 1,
        "{listed}"
    );
    function.answer_with(0);
    world.value("a", "y").await.map(drop)
}
