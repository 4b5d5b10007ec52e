//! Upgrade from the original Oz: over its definitions and objects, with its registration still there. The test has a
//! separate cluster, since every other test begins with our objects.

mod original;

use std::process::Command;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use oz_api::{ExecAccessTemplate, Phase};
use oz_e2e::{
    Operator, Options, Scene, TEMPLATE, Webhook, conditions_line, exec_request, install,
    records_of, run,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, cargo_binary, eventually};
use oz_trail::Action;

fn may_exec(scene: &Scene, pod: &str) -> Result<bool> {
    let mut kubectl = scene.cluster.kubectl("alice");
    let pod = format!("pods/{pod}");
    kubectl.args(["auth", "can-i", "create", &pod, "--subresource=exec", "-n"]);
    let output = kubectl.arg(scene.name()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim() == "yes")
}

#[tokio::test]
async fn templates_of_the_original_stay_and_what_it_granted_is_taken_away() -> Result<()> {
    let cluster = Cluster::shared().await?;
    original::install(cluster)?;
    let scene = Scene::set(cluster, "original").await?;
    let pod = scene.pods[0].name_any();
    let exec = original::grant(&scene, "ExecAccessRequest", "debug", &pod).await?;
    let own = original::grant(&scene, "PodAccessRequest", "own", &pod).await?;
    original::register(cluster)?;
    assert!(may_exec(&scene, &pod)?);

    // This equals `helm install --take-ownership`, over the objects that the original's pods left.
    let elected = Options::default().flag("--leader-elect");
    // The operator starts first: the first process creates the objects that both need.
    install(cluster).await?;
    let operator = Operator::start(cluster, &elected).await?;
    let _webhook = Webhook::start(cluster, &Options::default()).await?;

    let alice = scene.requests("alice").await?;
    let refused = alice.phase("debug", Phase::Denied).await?;
    let why = conditions_line(&refused);
    assert!(why.contains("RequesterVerified=False (NotStamped"), "{why}");
    assert!(why.contains("create the request again"), "{why}");
    assert!(!refused.ready);
    let pods = scene.pod_requests("alice").await?;
    pods.phase("own", Phase::Denied).await?;
    for name in [&exec, &own] {
        let (role, binding) = scene.grant(name).await?;
        assert!(role.is_none() && binding.is_none(), "{name}");
    }
    eventually("the pod of its own to go", CONDITION_TIMEOUT, async || {
        let there = scene.api::<Pod>().get_opt(&own).await?;
        Ok(there.is_none().then_some(()))
    })
    .await?;
    assert!(!may_exec(&scene, &pod)?);
    assert_eq!(
        records_of(&operator.process, scene.name(), "debug")?,
        [Action::RequestDenied]
    );

    // The template is unchanged, and the operator reads it.
    eventually("the template to be ready", CONDITION_TIMEOUT, async || {
        let template = scene.api::<ExecAccessTemplate>().get(TEMPLATE).await?;
        let ready = template.status.is_some_and(|status| status.ready);
        Ok(ready.then_some(()))
    })
    .await?;

    // The original's address does not respond: no user can request access until the registration is deleted.
    let again = exec_request("again", TEMPLATE, "5m");
    assert!(alice.create(&again).await.is_err());
    let said = doctor(&scene).await?;
    for kind in [
        "mutatingwebhookconfiguration",
        "validatingwebhookconfiguration",
    ] {
        let mend = format!("kubectl delete {kind} oz-webhook");
        assert!(said.contains(&mend), "{said}");
        let mut kubectl = cluster.kubectl("admin");
        kubectl.args(["delete", kind, "oz-webhook"]);
        run(kubectl)?;
    }
    eventually(
        "requests to be taken again",
        CONDITION_TIMEOUT,
        async || Ok(Some(alice.create(&again).await?)),
    )
    .await?;
    alice.ready("again").await?;
    assert!(!doctor(&scene).await?.contains("other registrations"));
    Ok(())
}

async fn doctor(scene: &Scene) -> Result<String> {
    let mut ozctl = Command::new(cargo_binary("ozctl")?);
    ozctl
        .args(["-n", scene.name(), "doctor"])
        .env("KUBECONFIG", scene.cluster.kubeconfig("admin"))
        .env("USER", "admin");
    let output = tokio::task::spawn_blocking(move || ozctl.output()).await??;
    Ok(String::from_utf8(output.stdout)?)
}
