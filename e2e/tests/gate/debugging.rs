//! `kubectl debug` through the gate: containers are added, other requests are refused, and no user adds one past the
//! gate. A test on a real node shows that the container runs and that a user attaches to it.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use oz_api::{DebugConfig, ExecAccessTemplate, Operation};
use oz_core::connect::cut::MARK;
use oz_e2e::{GATED, Scene, exec_request, gate_template, records_in, refused};
use oz_testkit::{CONDITION_TIMEOUT, eventually, fixtures};
use oz_trail::{Action, Record};
use serde_json::{Value, json};

use crate::Whole;
use crate::passing::said;

/// Returns the template [`GATED`] with Debug alone, and the fixture's image.
fn debug_template() -> ExecAccessTemplate {
    let mut template = gate_template();
    let config = &mut template.spec.access_config;
    config.operations = vec![Operation::Debug];
    config.debug = Some(DebugConfig {
        images: vec![fixtures::IMAGE.to_owned(), "example.test/tools/*".into()],
    });
    template
}

/// Returns the containers that were added to a pod.
async fn added(scene: &Scene, pod: &str) -> Result<Vec<Value>> {
    let pod = serde_json::to_value(scene.api::<Pod>().get(pod).await?)?;
    let added = pod["spec"]["ephemeralContainers"].as_array();
    Ok(added.cloned().unwrap_or_default())
}

/// Adds a container as kubectl does by default, once the gate has its rights.
async fn adds(scene: &Scene, pod: &str, words: &[&str]) -> Result<()> {
    eventually("a container to be added", CONDITION_TIMEOUT, async || {
        let command = [&["debug", pod, "--attach=false"], words].concat();
        let output = scene.through_gate("alice", "mine", &command).output()?;
        Ok(output.status.success().then_some(()))
    })
    .await
}

#[tokio::test]
async fn kubectl_debug_adds_what_the_template_lists_on_record_and_nothing_else() -> Result<()> {
    let whole = Whole::with("debugging", &debug_template()).await?;
    let scene = &whole.scene;
    scene.enforce().await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "10m")).await?;
    let pod = granted.pod();

    adds(
        scene,
        &pod,
        &[
            "--image",
            fixtures::IMAGE,
            "--container",
            "mine",
            "--target",
            fixtures::CONTAINER,
            "-i",
            "--",
            "sh",
        ],
    )
    .await?;
    adds(
        scene,
        &pod,
        &[
            "--image=example.test/tools/net:1",
            "--profile=restricted",
            "--container=other",
        ],
    )
    .await?;
    let there = added(scene, &pod).await?;
    let named = |name: &str| there.iter().find(|one| one["name"] == name);
    assert!(there.len() == 2 && named("other").is_some(), "{there:?}");
    let uid = granted.request.metadata.uid.clone().context("no UID")?;
    let mark = json!([{ "name": MARK, "value": uid }]);
    assert!(there.iter().all(|one| one["env"] == mark), "{there:?}");
    let mine = named("mine").context("it was not added")?;
    assert_eq!(mine["targetContainerName"], fixtures::CONTAINER);

    on_record(&whole)?;
    refuses_all_else(scene, &pod).await
}

/// Checks that the first added container is recorded, with its user.
fn on_record(whole: &Whole) -> Result<()> {
    let scene = &whole.scene;
    let opened: Vec<Record> = records_in(&whole.system.webhook.process)?
        .into_iter()
        .filter(|one| one.action == Action::SessionOpened && one.request.namespace == scene.name())
        .collect();
    let first = opened.first().context("nothing on record")?;
    let detail = |key: &str| first.details.get(key).map(String::as_str);
    assert_eq!(
        first.user.as_ref().map(|user| user.user.as_str()),
        Some("alice")
    );
    assert_eq!(detail("way"), Some("ephemeral container"));
    assert_eq!(detail("added"), Some("mine"));
    assert_eq!(detail("image"), Some(fixtures::IMAGE));
    assert_eq!(detail("target"), Some(fixtures::CONTAINER));
    assert!(detail("commandDigest").is_some(), "{first:?}");
    Ok(())
}

/// Checks that the gate refuses all other containers, connections and lists.
async fn refuses_all_else(scene: &Scene, pod: &str) -> Result<()> {
    let other = scene
        .pods
        .iter()
        .filter_map(|one| one.metadata.name.clone());
    let other = { other }.find(|name| name != pod).context("one pod")?;
    let image = format!("--image={}", fixtures::IMAGE);
    let attach = |container: &'static str| vec!["attach", pod, "-c", container];
    for (words, why) in [
        (
            vec!["debug", pod, "--image=evil.test/app:1"],
            "is not among those of template gated",
        ),
        (
            vec!["debug", pod, &image, "--profile=sysadmin"],
            "privileged",
        ),
        (
            vec!["debug", pod, &image, "--profile=netadmin"],
            "NET_ADMIN grants more",
        ),
        (
            vec!["debug", pod, &image, "--target=another"],
            "not to another",
        ),
        (vec!["debug", &other, &image], "not for pod"),
        (
            vec!["debug", pod, &image, "--copy-to=mine"],
            "is not forwarded",
        ),
        (attach(fixtures::CONTAINER), "not Attach"),
        (vec!["exec", pod, "--", "true"], "not Exec"),
        (vec!["get", "pods"], "is not forwarded"),
    ] {
        let output = scene.through_gate("alice", "mine", &words).output()?;
        assert!(!output.status.success(), "{words:?}");
        assert!(said(&output).contains(why), "{words:?}: {}", said(&output));
    }
    assert_eq!(added(scene, pod).await?.len(), 2);

    // kubectl waits for the pod by its name; the gate allows only that name.
    let named = |name: &str| format!("--field-selector=metadata.name={name}");
    for (name, good) in [(pod, true), (&other, false)] {
        let words = ["get", "pods", "-o", "name", &named(name)];
        let output = scene.through_gate("alice", "mine", &words).output()?;
        assert_eq!(output.status.success(), good, "{}", said(&output));
    }

    // Past the gate no user adds a container, regardless of the right to patch pods.
    let direct = scene
        .kubectl("alice", &["debug", pod, &image, "--attach=false"])
        .output()?;
    assert!(said(&direct).contains("forbidden"), "{}", said(&direct));
    Ok(())
}

#[tokio::test]
async fn the_gates_own_account_adds_nothing_without_a_ticket() -> Result<()> {
    let whole = Whole::with("ticketless", &debug_template()).await?;
    let scene = &whole.scene;
    scene.enforce().await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "10m")).await?;
    let pod = granted.pod();
    adds(scene, &pod, &["--image", fixtures::IMAGE]).await?;
    let account = "system:serviceaccount:oz-system:oz-gate";
    let groups = ["system:serviceaccounts", "system:serviceaccounts:oz-system"];
    scene.cluster.issue_kubeconfig(account, &groups)?;
    let pods = kube::Api::<Pod>::namespaced(scene.cluster.client(account).await?, scene.name());
    let container =
        json!({"spec": {"ephemeralContainers": [{"name": "around", "image": fixtures::IMAGE}]}});
    let patch = Patch::Strategic(container);
    let answer = pods
        .patch_ephemeral_containers(&pod, &PatchParams::default(), &patch)
        .await;
    let why = refused(answer)?;
    assert!(why.contains("without the gate"), "{why}");
    assert_eq!(added(scene, &pod).await?.len(), 1);
    Ok(())
}
