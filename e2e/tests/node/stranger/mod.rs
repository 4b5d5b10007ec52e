//! oz as a user gets it who has no checkout: images and chart from a registry, ozctl from its archive. The commands are
//! those of the guides, by Helm and by `install.yaml`.

mod release;

use anyhow::{Context as _, Result, ensure};
use oz_e2e::{
    GATED, NAMESPACE, Scene, TEMPLATE, exec_request, gate_template, repository, unregister,
};
use oz_gating::API_SERVICE;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use oz_trail::Action;

use crate::chart::{INSTANCE, WAIT, kubectl, nothing_left, records, run_helm};
use crate::exec::exec;
use crate::gate::said;
use crate::{alone, harness};
use release::{NEXT, Ozctl, Release, VERSION};

/// The folders with the manifests of everything that a test may have installed.
const FOLDERS: [&str; 4] = [
    "deploy",
    "charts/oz/files/crds",
    "charts/oz/files/harness",
    "charts/oz/files/composites",
];
/// The label of grants and of their objects.
const GRANTS: &str = "--selector=app.kubernetes.io/managed-by=oz";

/// Removes oz when it is dropped, also after a failure: the tests after this one start their own oz, and no other may
/// exist.
struct Removal(&'static Cluster);

impl Drop for Removal {
    fn drop(&mut self) {
        if let Err(error) = pristine(self.0) {
            eprintln!("failed to remove oz after the test: {error:#}");
        }
    }
}

/// Removes every object of oz that this or another test has left.
fn pristine(cluster: &Cluster) -> Result<()> {
    let namespace = format!("--namespace={NAMESPACE}");
    // A running webhook would register itself again.
    let deployments = ["delete", "deployments", "--all", &namespace];
    kubectl(cluster, &deployments)?;
    let pods = ["delete", "pods", "--all", "--now", &namespace];
    kubectl(cluster, &pods)?;
    // While it exists without a gate, no namespace can be deleted.
    let gate = ["delete", "apiservice", API_SERVICE, "--ignore-not-found"];
    kubectl(cluster, &gate)?;
    unregister(cluster)?;
    let files = FOLDERS.map(|folder| {
        let path = repository().join(folder);
        format!("--filename={}", path.display())
    });
    let delete = [
        "delete",
        "--recursive",
        "--ignore-not-found",
        "--timeout=240s",
    ];
    let files = files.each_ref().map(String::as_str);
    kubectl(cluster, &[&delete[..], &files].concat())
        .map(drop)
        .context("failed to remove what other tests have installed")
}

#[tokio::test(flavor = "multi_thread")]
async fn release_is_installed_used_upgraded_and_removed_as_its_users_do() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let release = Release::publish(cluster).await?;
    let ozctl = release.ozctl()?;
    let _removal = Removal(cluster);
    by_helm(&release, &ozctl).await?;
    by_manifest(&release, &ozctl).await
}

/// Installs, upgrades and uninstalls oz with Helm, from the registry.
async fn by_helm(release: &Release, ozctl: &Ozctl) -> Result<()> {
    let cluster = release.cluster;
    pristine(cluster)?;
    let chart = release.chart();
    let from_registry =
        |version: &'static str| [chart.as_str(), "--version", version, "--plain-http"];
    let install = ["install", "oz", "--create-namespace"];
    let install = [&install[..], &from_registry(VERSION), &WAIT].concat();
    run_helm(cluster, release.helm()?, &install)?;
    images_are_of(release)?;
    run_helm(cluster, release.helm()?, &["test", "oz", "--timeout=240s"])?;

    let scene = Scene::set(cluster, "stranger").await?;
    scene.people_may_look().await?;
    ozctl.lets_alice_in(&scene).await?;
    let pod = keeps_access(&scene).await?;

    release.push_next()?;
    let upgrade = [
        "upgrade",
        "oz",
        "--reset-then-reuse-values",
        "--set=gate.enabled=true,gate.replicas=1,harness.enabled=true",
    ];
    let upgrade = [&upgrade[..], &from_registry(NEXT), &WAIT].concat();
    run_helm(cluster, release.helm()?, &upgrade)?;
    images_are_of(release)?;
    ensure!(
        has_access(&scene, &pod)?,
        "the upgrade revoked alice's access to pod {pod}"
    );
    ozctl.lets_alice_in(&scene).await?;
    passes_gate(ozctl, &scene).await?;
    let runs = harness::first_runs(cluster).await?;
    harness::nothing_is_left(&runs).await?;

    let uninstall = [&["uninstall", "oz"][..], &WAIT].concat();
    run_helm(cluster, release.helm()?, &uninstall)?;
    nothing_left(cluster, &scene).await?;
    ensure!(
        !has_access(&scene, &pod)?,
        "alice has access to pod {pod} after the removal"
    );
    Ok(())
}

/// Installs oz with `kubectl apply`, and removes it by hand.
async fn by_manifest(release: &Release, ozctl: &Ozctl) -> Result<()> {
    let cluster = release.cluster;
    pristine(cluster)?;
    let manifest = release.file("install.yaml").display().to_string();
    kubectl(cluster, &["apply", "--server-side", "-f", &manifest])?;
    let namespace = format!("--namespace={NAMESPACE}");
    for deployment in ["deployment/oz-operator", "deployment/oz-webhook"] {
        let status = ["rollout", "status", deployment, &namespace];
        kubectl(cluster, &[&status[..], &["--timeout=240s"]].concat())?;
    }
    images_are_of(release)?;
    let scene = Scene::set(cluster, "manifest").await?;
    scene.people_may_look().await?;
    ozctl.lets_alice_in(&scene).await?;
    let pod = keeps_access(&scene).await?;
    ensure!(
        has_access(&scene, &pod)?,
        "alice has no access to pod {pod}"
    );

    remove_by_hand(cluster, &manifest)?;
    ensure!(
        !has_access(&scene, &pod)?,
        "alice has access to pod {pod} after the removal"
    );
    let of_oz = "roles,rolebindings,clusterroles,clusterrolebindings,pods,networkpolicies,\
                 validatingadmissionpolicies,priorityclasses";
    for selector in [INSTANCE, GRANTS] {
        let left = ["get", of_oz, selector, "--all-namespaces", "-oname"];
        is_empty(cluster, &left).await?;
    }
    let hooks = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
    is_empty(cluster, &["get", hooks, "-oname"]).await?;
    let left = [
        "get",
        "namespace",
        NAMESPACE,
        "--ignore-not-found",
        "-oname",
    ];
    is_empty(cluster, &left).await
}

/// Waits until kubectl lists no object.
async fn is_empty(cluster: &Cluster, list: &[&str]) -> Result<()> {
    let what = format!("kubectl {} to list no object", list.join(" "));
    eventually(&what, CONDITION_TIMEOUT, async || {
        let left = kubectl(cluster, list)?;
        ensure!(left.is_empty(), "left after the removal by hand: {left}");
        Ok(Some(()))
    })
    .await
}

/// Removes an installation of `install.yaml` by the commands of `docs/reference/release.md`.
fn remove_by_hand(cluster: &Cluster, manifest: &str) -> Result<()> {
    let requests = "execaccessrequests.crds.wizardofoz.co,podaccessrequests.crds.wizardofoz.co,\
                    transientrolebindings.crds.wizardofoz.co";
    let delete = ["delete", "--all", "--wait=false"];
    let all = ["--all-namespaces", requests];
    kubectl(cluster, &[&delete[..], &all].concat())?;
    let cluster_wide = ["transientclusterrolebindings.crds.wizardofoz.co"];
    kubectl(cluster, &[&delete[..], &cluster_wide].concat())?;
    let wait = ["wait", "--for=delete", "--timeout=60s", GRANTS];
    let grants = ["roles,rolebindings,pods,networkpolicies", "-A"];
    kubectl(cluster, &[&wait[..], &grants].concat())?;
    kubectl(cluster, &[&wait[..], &["clusterrolebindings"]].concat())?;
    let namespace = format!("--namespace={NAMESPACE}");
    let delete = ["delete", "deployments", INSTANCE, &namespace];
    kubectl(cluster, &delete)?;
    let ended = ["wait", "--for=delete", "--timeout=120s", "pods"];
    kubectl(cluster, &[&ended[..], &[INSTANCE, &namespace]].concat())?;
    let hooks = "mutatingwebhookconfiguration,validatingwebhookconfiguration";
    kubectl(cluster, &["delete", hooks, "oz"])?;
    let delete = ["delete", "--ignore-not-found", "--timeout=240s"];
    kubectl(cluster, &[&delete[..], &["-f", manifest]].concat()).map(drop)
}

/// Checks that the pods of oz run images of the registry.
fn images_are_of(release: &Release) -> Result<()> {
    let namespace = format!("--namespace={NAMESPACE}");
    let images = "-ojsonpath={.items[*].spec.containers[*].image}";
    let images = kubectl(
        release.cluster,
        &["get", "pods", INSTANCE, &namespace, images],
    )?;
    let mut names = images.split_whitespace();
    ensure!(
        !images.is_empty() && names.all(|name| release.has_image(name)),
        "pods of oz run other images than those of the release: {images}"
    );
    Ok(())
}

/// Grants alice access that lasts until oz is removed, and returns the pod.
async fn keeps_access(scene: &Scene) -> Result<String> {
    let alice = scene.requests("alice").await?;
    let request = exec_request("kept", TEMPLATE, "2h");
    Ok(alice.granted(&request).await?.pod())
}

/// Checks whether alice gets into a pod by kubectl.
fn has_access(scene: &Scene, pod: &str) -> Result<bool> {
    let mut exec = exec(
        scene.cluster,
        "alice",
        scene.name(),
        &[pod, "--", "hostname"],
    );
    Ok(exec.output()?.status.success())
}

/// Checks that the released ozctl opens a session through the gate, which records the end of the session.
async fn passes_gate(ozctl: &Ozctl, scene: &Scene) -> Result<()> {
    scene.template(&gate_template()).await?;
    let target = format!("template/{GATED}");
    let words = ["exec", &target, "--", "sh", "-c", "exit 7"];
    eventually(
        "alice's session through the gate",
        CONDITION_TIMEOUT,
        async || {
            let output = ozctl.run(scene, "alice", &words).await?;
            ensure!(output.status.code() == Some(7), "{}", said(&output));
            Ok(Some(()))
        },
    )
    .await?;
    eventually(
        "the gate's record of the session",
        CONDITION_TIMEOUT,
        async || {
            let mut records = records(scene.cluster)?.into_iter();
            let has_ended = records.any(|record| {
                record.action == Action::SessionEnded
                    && record.request.namespace == scene.name()
                    && record
                        .details
                        .get("exitCode")
                        .is_some_and(|code| code == "7")
            });
            Ok(has_ended.then_some(()))
        },
    )
    .await
}
