//! Attempts by the author of a Rego policy, and by users who may write the ConfigMap with the policy.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use super::Neighbour;
use crate::composites::POLICIES;
use crate::regos::World;
use crate::support::*;

/// Writing a Rego policy with nested loops, a text that doubles at each step, or unlimited nesting: the operator aborts
/// or denies it, and evaluates other policies.
#[tokio::test]
async fn a_policy_that_is_a_bomb() -> Result<()> {
    let beside = Neighbour::set("bombs").await?;
    let twice = |from: &str, to: &str| format!("{to} := concat(\"\", [{from}, {from}])\n");
    let mut doubling = "package controller\n\nv0 := \"xxxxxxxxxxxxxxxx\"\n".to_owned();
    for step in 0..40 {
        doubling += &twice(&format!("v{step}"), &format!("v{}", step + 1));
    }
    doubling += "children := [v40]\n";
    let loops = "package controller\n\nchildren := [x | some a in numbers.range(1, 100000); \
                 some b in numbers.range(1, 100000); x := a * b; x == 0.5]\n";
    let nested = format!(
        "package controller\n\nchildren := {}{}\n",
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    for (name, text) in [
        ("bomb-loops", loops),
        ("bomb-doubles", &doubling),
        ("bomb-nests", &nested),
    ] {
        let world = World::set_rego(name, |rego| {
            rego["spec"]["policy"] = json!({"inline": text})
        });
        let world = world.await?;
        world.fleet("one", &json!({"value": "x"})).await?;
        let told = world.refusal("one").await?;
        ensure!(!told.is_empty(), "{name}");
    }
    beside.goes_on().await
}

/// Calling the network, the process or a random source from a Rego policy: the policy does not compile, and a condition
/// names the function and its line.
#[tokio::test]
async fn a_policy_that_asks_elsewhere() -> Result<()> {
    for (name, call) in [
        (
            "asks-http",
            "http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1\"})",
        ),
        ("asks-runtime", "opa.runtime().env"),
        ("asks-chance", "rand.intn(\"x\", 10)"),
        ("asks-uuid", "uuid.rfc4122(\"x\")"),
    ] {
        let text =
            format!("package controller\n\nchildren := []\n\nstatus := {{\"said\": {call}}}\n");
        let world = World::set_rego(name, |rego| {
            rego["spec"]["policy"] = json!({"inline": text})
        });
        let world = world.await?;
        let message = world
            .condition_because("Accepted", "False", "PolicyInvalid")
            .await?;
        let (function, _) = call.split_once('(').unwrap_or_default();
        ensure!(
            message.contains(function) && message.contains("spec.policy.inline:5"),
            "{message}"
        );
    }
    Ok(())
}

/// A Rego policy that negates, compares and looks up a missing field.
const MISSING: &str = r#"package controller

named contains "always"

named contains "negated-call" if not startswith(input.parent.spec.missing, "a")

named contains "negated-comparison" if not input.parent.spec.missing > 3

named contains "looked-up" if "nobody", input.parent.spec.missing in {"somebody": 1}

named contains "denied" if (input.parent.spec.missing in input.parent.spec.absent) == false

children contains {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} if some name in named
"#;

/// Omitting a field of a parent that a Rego policy negates, compares or looks up: dependent expressions are undefined,
/// as in OPA, and the policy returns no child for them.
#[tokio::test]
async fn a_field_that_is_left_out() -> Result<()> {
    oz().await?;
    let world = World::set_rego("left-out", |rego| {
        rego["spec"]["policy"] = json!({"inline": MISSING});
    })
    .await?;
    world.fleet("one", &json!({"value": "x"})).await?;
    let maps = world.config_maps();
    eventually(
        "the child that is always named",
        CONDITION_TIMEOUT,
        async || Ok(maps.get_opt("always").await?.map(drop)),
    )
    .await?;
    for name in ["negated-call", "negated-comparison", "looked-up", "denied"] {
        ensure!(maps.get_opt(name).await?.is_none(), "{name}");
    }
    Ok(())
}

/// Replacing the text in the ConfigMap so that the Rego policy returns no child: the operator deletes no children
/// beyond the limit until a user accepts the change, and the sealed expiry remains in force.
#[tokio::test]
async fn a_config_map_that_is_exchanged() -> Result<()> {
    oz().await?;
    let maps: Api<ConfigMap> = Api::namespaced(Fixture::set("exchange").await?.admin, POLICIES);
    let policy = |text: &str| {
        let data = json!({"policy": text});
        apply_as(
            &maps,
            json!({"metadata": {"name": "exchange"}, "data": data}),
        )
    };
    policy(&crate::regos::ONE.replace("status :=", "x :=")).await?;
    let world = World::set_rego("exchange", |rego| {
        let reference = json!({"namespace": POLICIES, "name": "exchange", "key": "policy"});
        rego["spec"]["policy"] = json!({"configMapRef": reference});
        rego["spec"]["window"] = json!({"until": ".spec.until"});
        rego["spec"]["limits"] = json!({"deletions": 1});
    })
    .await?;
    let until = Timestamp::now() + SignedDuration::from_secs(20);
    for name in ["one", "two", "three"] {
        let until = match name {
            "one" => until,
            _ => until + SignedDuration::from_hours(1),
        };
        let spec = json!({"value": "x", "until": until.to_string()});
        world.fleet(name, &spec).await?;
        world.child(name).await?;
    }
    world
        .status("the policy to be trusted", |status| {
            status.accepted_digest.is_some()
        })
        .await?;
    policy("package controller\n\nchildren := []\n").await?;
    world
        .condition_because("Accepted", "False", "DeletionLimitExceeded")
        .await?;
    for name in ["two", "three"] {
        ensure!(world.config_maps().get_opt(name).await?.is_some(), "{name}");
    }
    world.gone("one").await?;
    ensure!(Timestamp::now() >= until, "it went before its time");
    ensure!(world.config_maps().get_opt("two").await?.is_some());
    Ok(())
}
