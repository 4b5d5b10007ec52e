//! Access policies for all templates, from the request to the grant, and their audit records.

use anyhow::{Context as _, Result};
use jiff::SignedDuration;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use oz_api::{AccessPolicy, Phase, conditions};
use oz_core::access::policy::status::READY;
use oz_e2e::{
    Person, Scene, System, TEMPLATE, agreed, answer_to, approval_rule, are_asked, at_most,
    conditions_line, deny, exec_request, policy, repository, run, with_policies,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::AuditEvent;
use serde_json::{Value, json};

use crate::alone;
use crate::support::clean;

const BOB: Person = Person::new("bob", &["approvers"]);
const ANSWERS: &str = "accessrequestapprovals";

#[tokio::test]
async fn the_example_applies_and_is_ready() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "example").await?;
    let example = repository().join("examples/policy.yaml");
    let kubectl = |verb: &str| {
        let mut kubectl = cluster.kubectl("admin");
        kubectl.args([verb, "-f"]).arg(&example);
        run(kubectl)
    };
    kubectl("apply")?;
    let names = ["no-interns-in-production", "production-at-night"];
    for name in names {
        ready(&scene, name).await?;
    }
    kubectl("delete")?;
    for name in names {
        are_asked(&scene, name, false).await?;
    }
    Ok(())
}

/// Waits until the operator reports that a policy is ready.
async fn ready(scene: &Scene, name: &str) -> Result<()> {
    let policies = Api::<AccessPolicy>::all(scene.admin.clone());
    eventually("the policy to be ready", CONDITION_TIMEOUT, async || {
        let status = policies.get(name).await?.status.unwrap_or_default();
        let ready = conditions::find(&status.conditions, READY);
        let told = ready.map(|ready| ready.message.clone());
        anyhow::ensure!(status.ready, "{told:?}");
        Ok(Some(()))
    })
    .await
}

/// Returns the records of an action about an object of this name.
async fn records(scene: &Scene, action: &str, name: &str) -> Result<Vec<Value>> {
    let events = Api::<AuditEvent>::all(scene.admin.clone());
    let listed = events.list(&ListParams::default()).await?;
    let specs: Vec<Value> = listed
        .iter()
        .map(|event| json!(event.spec))
        .filter(|spec| spec["action"] == action && spec["request"]["name"] == name)
        .collect();
    Ok(specs)
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story")]
async fn policies_refuse_shorten_and_have_others_agree_and_are_on_record() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "policies").await?;
    scene.may_approve("approvers").await?;
    let namespace = scene.name().to_owned();
    let all = [
        policy(&scene, "short", "true", at_most("10m")),
        policy(
            &scene,
            "long",
            "request.duration > duration('1h')",
            deny("ask for less"),
        ),
        policy(
            &scene,
            "agree",
            "request.name.startsWith('agreed')",
            agreed(approval_rule("security", &["bob"], &[], 1)),
        ),
    ];
    let policies = Api::<AccessPolicy>::all(scene.admin.clone());
    let (short, agree) = (format!("{namespace}-short"), format!("{namespace}-agree"));
    // Only the first matches the probe; the others exist before the first request.
    with_policies(&scene, &all[..1], async || {
        for policy in &all[1..] {
            policies.create(&Default::default(), policy).await?;
        }
        for policy in &all {
            let name = policy.metadata.name.as_deref().unwrap_or_default();
            ready(&scene, name).await?;
        }
        let alice = scene.requests("alice").await?;
        eventually("a long one to be refused", CONDITION_TIMEOUT, async || {
            let long = exec_request("long", TEMPLATE, "2h");
            let Err(kube::Error::Api(status)) = alice.create(&long).await else {
                alice.api().delete("long", &DeleteParams::default()).await?;
                return Ok(None);
            };
            anyhow::ensure!(
                status.message.contains("ask for less"),
                "{}",
                status.message
            );
            Ok(Some(()))
        })
        .await?;
        let plain = alice
            .granted(&exec_request("plain", TEMPLATE, "30m"))
            .await?;
        let (from, until) = (
            plain.request.metadata.creation_timestamp.clone(),
            plain.status().expires_at,
        );
        let length = until
            .context("no end")?
            .duration_since(from.context("no time")?.0);
        assert_eq!(length, SignedDuration::from_mins(10));
        let granted = records(&scene, "AccessGranted", "plain").await?;
        let named = granted[0]["details"]["policies"]
            .as_str()
            .unwrap_or_default();
        assert!(named.starts_with(&format!("{short} sha256:")), "{named}");

        alice
            .create(&exec_request("agreed", TEMPLATE, "5m"))
            .await?;
        let waits = alice.until("agreed", "to wait for bob", |status| {
            status.approval.is_some()
        });
        let waiting = waits.await?;
        let line = conditions_line(&waiting.status.clone().unwrap_or_default());
        assert!(
            line.contains(&format!("waiting for {agree}/security: bob may")),
            "{line}"
        );
        let answer = answer_to(&waiting, "yes", true)?;
        BOB.create(&scene.admin, &namespace, ANSWERS, &answer)
            .await?;
        assert_eq!(alice.ready("agreed").await?.status().phase, Phase::Active);
        let created = records(&scene, "RequestCreated", "agreed").await?;
        let named = created[0]["details"]["policies"]
            .as_str()
            .unwrap_or_default();
        assert!(named.contains(&agree) && named.contains(&short), "{named}");
        Ok(())
    })
    .await?;
    for policy in &all[1..] {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        policies.delete(name, &DeleteParams::default()).await?;
        are_asked(&scene, name, false).await?;
    }
    let refusals = records(&scene, "RequestDenied", "long").await?;
    assert!(
        refusals.iter().any(|it| it["reason"] == "PolicyDenied"),
        "{refusals:?}"
    );
    let changes = records(&scene, "PolicyChanged", &short).await?;
    let mut reasons: Vec<_> = changes
        .iter()
        .filter_map(|it| it["reason"].as_str())
        .collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["Created", "Deleted"]);
    assert!(
        changes.iter().all(|it| it["user"]["user"] == "admin"),
        "{changes:?}"
    );
    // The policies no longer exist, and the access lasts as long as it was requested for.
    let alice = scene.requests("alice").await?;
    let later = exec_request("later", TEMPLATE, "3h");
    let later = alice.granted(&later).await?;
    assert_eq!(later.status().phase, Phase::Active);
    Ok(())
}

#[tokio::test]
async fn labels_of_the_namespace_and_grants_that_last_are_known_to_policies() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "labels").await?;
    let own = format!(
        "namespaceLabels['kubernetes.io/metadata.name'] == '{}'",
        scene.name()
    );
    let labelled = policy(&scene, "labels", &own, at_most("20m"));
    let one = policy(&scene, "one", "size(active) > 0", deny("one at a time"));
    let policies = Api::<AccessPolicy>::all(scene.admin.clone());
    with_policies(&scene, &[labelled], async || {
        let alice = scene.requests("alice").await?;
        alice
            .granted(&exec_request("first", TEMPLATE, "10m"))
            .await?;
        policies.create(&Default::default(), &one).await?;
        eventually(
            "a second one to be refused",
            CONDITION_TIMEOUT,
            async || {
                let second = exec_request("second", TEMPLATE, "5m");
                let Err(kube::Error::Api(status)) = alice.create(&second).await else {
                    alice
                        .api()
                        .delete("second", &DeleteParams::default())
                        .await?;
                    return Ok(None);
                };
                anyhow::ensure!(
                    status.message.contains("one at a time"),
                    "{}",
                    status.message
                );
                Ok(Some(()))
            },
        )
        .await
    })
    .await?;
    let name = one.metadata.name.as_deref().unwrap_or_default();
    policies.delete(name, &DeleteParams::default()).await?;
    are_asked(&scene, name, false).await
}
