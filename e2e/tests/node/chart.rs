//! The chart and the image where they belong: pods of a real node, reached through Services. Installed
//! by Helm, used, upgraded while people ask for access, rolled back, uninstalled with nothing left.
//! `make e2e-chart` builds the image first, which takes a release build; `make e2e-node` leaves this out.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::Api;
use kube::api::{ListParams, PostParams};
use oz_core::api::Phase;
use oz_e2e::{
    NAMESPACE, Scene, TEMPLATE, chart, exec_request, helm, pod_request, repository, run, unregister,
};
use oz_testkit::{Cluster, eventually};
use serde_json::json;

use crate::alone;
use crate::exec::exec;

const SOON: Duration = Duration::from_secs(60);
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// The archive of the image, or none where it was not built.
fn archive() -> Result<Option<PathBuf>> {
    let version = env!("CARGO_PKG_VERSION");
    let path = repository().join(format!("dist/oz-{version}-{ARCHITECTURE}.oci.tar"));
    if path.is_file() {
        return Ok(Some(path));
    }
    ensure!(
        std::env::var_os("OZ_REQUIRE_ALL").is_none(),
        "there is no image: run `cargo xtask image`"
    );
    writeln!(
        std::io::stderr(),
        "testkit: skipped: there is no image; `cargo xtask image` makes it"
    )?;
    Ok(None)
}

fn with_helm(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let mut helm = helm(cluster)?;
    helm.args(arguments);
    match run(helm) {
        Ok(said) => Ok(said),
        Err(error) => {
            let mut show = cluster.kubectl("admin");
            let namespace = format!("--namespace={NAMESPACE}");
            show.args(["describe", "pods", &namespace]);
            let pods = run(show).unwrap_or_default();
            let mut logs = cluster.kubectl("admin");
            logs.args(["logs", &namespace, "--prefix", "--tail=30"]);
            logs.args(["--selector=app.kubernetes.io/instance=oz"]);
            let logs = run(logs).unwrap_or_default();
            bail!("{error:#}\n{pods}\n{logs}")
        }
    }
}

/// Asks for access again and again until told to stop. Gives how often, and every refusal.
async fn ask_on(
    scene: &Scene,
    stop: &AtomicBool,
    asked: &AtomicUsize,
) -> Result<(usize, Vec<String>)> {
    let alice = scene.requests("alice").await?;
    let mut refusals = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        let request = exec_request(&format!("again-{number}"), TEMPLATE, "1h");
        // One of ten is kept and gets access; a dry-run is stamped and judged all the same.
        let parameters = PostParams {
            dry_run: number % 10 != 0,
            ..PostParams::default()
        };
        if let Err(error) = alice.api().create(&parameters, &request).await {
            refusals.push(error.to_string());
        }
    }
    Ok((asked.load(Ordering::Relaxed), refusals))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the image: make e2e-chart"]
async fn the_chart_installs_works_upgrades_and_leaves_nothing() -> Result<()> {
    let Some(archive) = archive()? else {
        return Ok(());
    };
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    cluster.import_image_archive(&archive)?;
    unregister(cluster)?;
    let mark = cluster.audit().mark()?;
    let mut namespace = cluster.kubectl("admin");
    namespace.args(["apply", "-f"]);
    namespace.arg(repository().join("deploy/rbac/namespace.yaml"));
    run(namespace)?;
    let chart = chart();
    let wait = ["--wait", "--timeout=180s"];

    // Over what other tests applied by hand.
    let install = ["install", "oz", &chart, "--take-ownership"];
    with_helm(cluster, &[&install[..], &wait].concat())?;
    with_helm(cluster, &["test", "oz", "--timeout=120s"])?;

    let scene = Scene::set(cluster, "chart").await?;
    story(cluster, &scene).await?;

    // People go on asking while every pod of oz is replaced, twice.
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let upgrades = async {
        let upgrade = [
            "upgrade",
            "oz",
            &chart,
            "--set=webhook.podAnnotations.turn=two,operator.podAnnotations.turn=two",
        ];
        let done = tokio::task::block_in_place(|| {
            with_helm(cluster, &[&upgrade[..], &wait].concat())?;
            with_helm(cluster, &[&["rollback", "oz", "1"][..], &wait].concat())
        });
        stop.store(true, Ordering::Relaxed);
        done
    };
    let asking = ask_on(&scene, &stop, &asked);
    let (upgraded, answers) = tokio::join!(upgrades, asking);
    upgraded?;
    let (asked, refusals) = answers?;
    assert!(asked > 10, "{asked}");
    assert!(refusals.is_empty(), "{asked} asked: {refusals:?}");

    // What was asked for meanwhile was given; it is taken away before oz goes.
    let alice = scene.requests("alice").await?;
    alice.ready("again-0").await?;
    with_helm(cluster, &["uninstall", "oz", "--wait", "--timeout=180s"])?;
    nothing_left(cluster, &scene).await?;

    // Its rights were enough: nothing that oz did was forbidden.
    for account in ["oz-operator", "oz-webhook", "oz-uninstall"] {
        let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
        let forbidden = cluster.audit().since(mark)?.by_user(&user);
        let forbidden = forbidden.filter(|entry| entry.code == 403);
        assert!(forbidden.is_empty(), "{forbidden:?}");
    }
    Ok(())
}

/// Asked, given, used by one and not by another, over.
async fn story(cluster: &'static Cluster, scene: &Scene) -> Result<()> {
    let alice = scene.requests("alice").await?;
    let granted = alice
        .granted(&exec_request("debug", TEMPLATE, "20s"))
        .await?;
    let pod = granted.pod();
    let hostname =
        |user: &str| exec(cluster, user, scene.name(), &[&pod, "--", "hostname"]).output();
    let by_alice = hostname("alice")?;
    assert_eq!(String::from_utf8(by_alice.stdout)?, format!("{pod}\n"));
    assert!(!hostname("bob")?.status.success());
    alice.phase("debug", Phase::Expired).await?;
    eventually("alice's next exec to be refused", SOON, async || {
        Ok((!hostname("alice")?.status.success()).then_some(()))
    })
    .await?;

    scene.pod_template("own", &json!({})).await?;
    let pods = scene.pod_requests("alice").await?;
    let own = pods.granted(&pod_request("own", "own", "10m")).await?.pod();
    let inside = exec(cluster, "alice", scene.name(), &[&own, "--", "hostname"]).output()?;
    assert_eq!(String::from_utf8(inside.stdout)?, format!("{own}\n"));
    Ok(())
}

async fn nothing_left(cluster: &Cluster, scene: &Scene) -> Result<()> {
    let client = cluster.client("admin").await?;
    let grants = ListParams::default().labels("oz.wizardofoz.co/owner-uid");
    let roles = scene.api::<Role>().list(&grants).await?.items;
    assert!(roles.is_empty(), "{roles:?}");
    let bindings = scene.api::<RoleBinding>().list(&grants).await?.items;
    assert!(bindings.is_empty(), "{bindings:?}");
    let pods = scene.api::<Pod>().list(&grants).await?.items;
    assert!(pods.is_empty(), "{pods:?}");
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    assert!(mutating.get_opt("oz").await?.is_none());
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    assert!(validating.get_opt("oz").await?.is_none());
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    for name in ["oz-signing-key", "oz-admission-ca"] {
        assert!(secrets.get_opt(name).await?.is_none(), "{name}");
    }
    let roles = Api::<ClusterRole>::all(client);
    for name in [
        "oz-operator",
        "oz-webhook",
        "oz-uninstall",
        "oz-request-access",
    ] {
        assert!(roles.get_opt(name).await?.is_none(), "{name}");
    }
    // The templates stay, with their definitions.
    let mut kept = cluster.kubectl("admin");
    kept.args(["get", "execaccesstemplate", TEMPLATE, "-oname"]);
    kept.args(["--namespace", scene.name()]);
    run(kept).context("the template is gone").map(drop)
}
