//! The output of `ozctl` about RegoControllers.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::world::World;
use crate::support::*;

/// A policy in the first version of the language: the second has no such heads.
const POLICY: &str = r#"package controller

children[child] {
    time.now_ns() < time.parse_rfc3339_ns(input.parent.spec.validUntil)
    child := {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": input.parent.metadata.name},
    }
}
"#;

#[tokio::test]
async fn a_parent_is_explained_by_the_policy_that_the_operator_runs_and_as_it_runs_it() -> Result<()>
{
    oz().await?;
    let world = World::set_rego("rego-face", |rego| {
        rego["spec"]["policy"] = json!({"inline": POLICY, "language": "v0", "strict": true});
        rego["spec"]["limits"] = json!({"evaluation": "1s"});
        rego["spec"]["mode"] = json!("DryRun");
    })
    .await?;
    let until = Timestamp::now() + SignedDuration::from_hours(1);
    world
        .fleet("one", &json!({"validUntil": until.to_string()}))
        .await?;
    let status = world
        .status("the operator to run it", |status| status.parents == Some(1))
        .await?;
    let (code, told) = world.ozctl(&["explain", "fleets.test.example.org/one"])?;
    ensure!(code == Some(0), "{told}");
    let one = &told["composites"][0];
    assert_eq!(one["kind"], "RegoController");
    assert_eq!(one["withheld"], "DryRun");
    let steps = one["plan"]["stages"].to_string();
    ensure!(steps.contains(r#""kind":"ConfigMap","metadata""#), "{told}");
    assert_eq!(one["timeline"][0]["at"], json!(until));
    assert_eq!(one["timeline"][0]["go"], json!(["ConfigMap one"]));
    let policy = &one["policy"];
    assert_eq!(policy["language"], "v0");
    assert_eq!(policy["digest"], json!(status.policy_digest));
    ensure!(
        world.config_maps().get_opt("one").await?.is_none(),
        "explaining writes nothing, nor does a dry run"
    );

    // The language of the RegoController decides: the same text is invalid in the other.
    world
        .patch(json!({"spec": {"policy": {"language": "v1"}}}))
        .await?;
    world
        .condition_because("Accepted", "False", "PolicyInvalid")
        .await?;
    let (code, told) = world.ozctl(&["explain", "fleets.test.example.org/one"])?;
    let plan = &told["composites"][0]["plan"];
    ensure!(
        code == Some(1) && plan["obstacle"].to_string().contains("does not compile"),
        "{told}"
    );
    eventually("the doctor to name it", CONDITION_TIMEOUT, async || {
        let (code, told) = world.ozctl(&["doctor"])?;
        let findings = told["findings"].as_array().into_iter().flatten();
        let mut wrong = findings.filter(|one| one["verdict"] == "wrong");
        let is_named = |one: &Value| {
            let message = one["message"].as_str().unwrap_or_default();
            one["check"] == "composites"
                && message.contains("RegoController rego-face: PolicyInvalid: ")
        };
        Ok((code == Some(1) && wrong.any(is_named)).then_some(()))
    })
    .await
}
