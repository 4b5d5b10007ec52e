//! The chart and the image in their environment: pods of a real node, reached through Services. Helm installs, upgrades
//! while users request access, rolls back, and uninstalls without leaving objects.

mod values;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, PostParams};
use oz_api::names::LEASE;
use oz_api::{Phase, TransientRoleBinding};
use oz_e2e::agents::DENIED_RANGES;
use oz_e2e::{
    NAMESPACE, Scene, TEMPLATE, chart, exec_request, forbidden, helm, image_archive, left,
    pod_request, repository, run, unregister, unregister_hooks,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use oz_trail::{Action, Record};
use serde_json::json;
use tempfile::NamedTempFile;

use crate::exec::exec;
use crate::{alone, harness, interception};

pub(crate) const WAIT: [&str; 2] = ["--wait", "--timeout=240s"];
pub(crate) const INSTANCE: &str = "--selector=app.kubernetes.io/instance=oz";

/// Runs kubectl as the administrator.
pub(crate) fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(arguments);
    run(kubectl)
}

fn with_helm(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    run_helm(cluster, helm(cluster)?, arguments)
}

/// Runs helm; its failure includes the state of the pods.
pub(crate) fn run_helm(cluster: &Cluster, mut helm: Command, arguments: &[&str]) -> Result<String> {
    helm.args(arguments);
    run(helm).or_else(|error| {
        let namespace = format!("--namespace={NAMESPACE}");
        let pods = kubectl(cluster, &["describe", "pods", &namespace]).unwrap_or_default();
        let logs = ["logs", &namespace, "--prefix", "--tail=30", INSTANCE];
        let logs = kubectl(cluster, &logs).unwrap_or_default();
        bail!("{error:#}\n{pods}\n{logs}")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_installs_works_upgrades_and_leaves_nothing() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let outcome = installed(cluster).await;
    if outcome.is_err() {
        // The tests after this one start their own oz, and no other may exist.
        let deployments = ["delete", "deployments", "--all", "--wait", "-n", NAMESPACE];
        kubectl(cluster, &deployments)?;
        unregister(cluster)?;
    }
    outcome
}

async fn installed(cluster: &'static Cluster) -> Result<()> {
    cluster.import_image_archive(&image_archive()?)?;
    unregister(cluster)?;
    let mark = cluster.audit().mark()?;
    let namespace = repository().join("deploy/rbac/00-namespace.yaml");
    // The namespace enforces the Pod Security standard `restricted`: it rejects pods with more rights.
    kubectl(cluster, &["apply", "-f", &namespace.display().to_string()])?;
    let chart = chart();

    // Helm installs over the objects that other tests applied by hand.
    let authority = upstream_authority(cluster).await?;
    let denied = format!(
        "--set=harness.seedDeniedRanges={{{}}}",
        DENIED_RANGES.join(",")
    );
    let install = [
        "install",
        "oz",
        &chart,
        "--take-ownership",
        "--set=transient.bindableRoles={view},harness.enabled=true,gate.enabled=true,gate.replicas=1",
        &denied,
    ];
    with_helm(cluster, &[&install[..], &WAIT].concat())?;
    with_helm(cluster, &["test", "oz", "--timeout=240s"])?;
    the_image_holds_ozctl(cluster)?;

    let scene = Scene::set(cluster, "chart").await?;
    story(cluster, &scene).await?;
    leader_dies(cluster, &scene).await?;
    let authority = authority.path().display().to_string();
    values::act_after_upgrade(cluster, &authority).await?;
    harness::runs(cluster).await?;

    // Users continue to request access while every pod of oz is replaced, twice.
    let stop = AtomicBool::new(false);
    let asking = ask_on(&scene, &stop);
    let upgrades = async {
        let done = tokio::task::spawn_blocking(move || {
            let upgrade = [
                "upgrade",
                "oz",
                &chart,
                "--reuse-values",
                "--set=webhook.podAnnotations.turn=two,operator.podAnnotations.turn=two",
            ];
            with_helm(cluster, &[&upgrade[..], &WAIT].concat())?;
            with_helm(cluster, &[&["rollback", "oz", "1"][..], &WAIT].concat())
        })
        .await;
        stop.store(true, Ordering::Relaxed);
        done?
    };
    let (answers, upgraded) = tokio::join!(asking, upgrades);
    upgraded?;
    let (asked, refusals) = answers?;
    assert!(asked > 10, "{asked}");
    assert!(refusals.is_empty(), "{asked} asked: {refusals:?}");

    let dead = Instant::now();
    without_oz(cluster, async || scene.locks_hold("oz").await).await?;
    eprintln!("the policies without oz took {:.1?}", dead.elapsed());

    // Existing access is revoked before oz is uninstalled.
    let alice = scene.requests("alice").await?;
    alice.granted(&exec_request("last", TEMPLATE, "1h")).await?;
    with_helm(cluster, &[&["uninstall", "oz"][..], &WAIT].concat())?;
    nothing_left(cluster, &scene).await?;

    // The rights of oz suffice: none of its requests was forbidden.
    let accounts = ["oz-operator", "oz-webhook", "oz-broker", "oz-uninstall"];
    let forbidden = forbidden(cluster, mark, &accounts)?;
    assert!(forbidden.is_empty(), "{forbidden:?}");
    Ok(())
}

/// Writes the authority of the upstream of agents to a file.
async fn upstream_authority(cluster: &'static Cluster) -> Result<NamedTempFile> {
    let file = NamedTempFile::new()?;
    std::fs::write(&file, &interception::upstream(cluster).await?.authority)?;
    Ok(file)
}

/// Runs `then` while no process of oz runs and its webhooks are unregistered; then starts oz again.
async fn without_oz(cluster: &Cluster, then: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let namespace = format!("--namespace={NAMESPACE}");
    let deployments = ["deployments", INSTANCE, &namespace];
    kubectl(
        cluster,
        &[&["scale", "--replicas=0"], &deployments[..]].concat(),
    )?;
    kubectl(cluster, &["delete", "pods", INSTANCE, &namespace, "--now"])?;
    unregister_hooks(cluster)?;
    then().await?;
    kubectl(
        cluster,
        &[&["scale", "--replicas=2"], &deployments[..]].concat(),
    )?;
    let status = ["rollout", "status", "--timeout=120s"];
    kubectl(cluster, &[&status[..], &deployments].concat()).map(drop)
}

/// Requests access repeatedly until `stop` is set; each tenth request is no dry-run, is granted, and is deleted again.
/// Returns the number of requests, and every refusal.
async fn ask_on(scene: &Scene, stop: &AtomicBool) -> Result<(usize, Vec<String>)> {
    let alice = scene.requests("alice").await?;
    let (mut asked, mut refusals) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        asked += 1;
        let name = format!("again-{asked}");
        let in_earnest = asked % 10 == 0;
        // oz stamps and judges a dry-run as well.
        let parameters = PostParams {
            dry_run: !in_earnest,
            ..PostParams::default()
        };
        let request = exec_request(&name, TEMPLATE, "1h");
        match alice.api().create(&parameters, &request).await {
            Ok(_) if in_earnest => {
                alice.ready(&name).await?;
                alice.api().delete(&name, &DeleteParams::default()).await?;
            }
            Ok(_) => {}
            Err(error) => refusals.push(error.to_string()),
        }
    }
    Ok((asked, refusals))
}

/// Checks that the third program of the image runs in the empty root, too.
fn the_image_holds_ozctl(cluster: &Cluster) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("--image=localhost/oz:{version}");
    let pod = ["run", "ozctl", &image, "--restart=Never", "--command", "--"];
    kubectl(cluster, &[&pod[..], &["/ozctl", "--version"]].concat())?;
    let ended = "--for=jsonpath={.status.phase}=Succeeded";
    kubectl(cluster, &["wait", ended, "pod/ozctl", "--timeout=120s"])?;
    let said = kubectl(cluster, &["logs", "ozctl"])?;
    assert!(said.contains(version), "{said}");
    kubectl(cluster, &["delete", "pod", "ozctl", "--now"]).map(drop)
}

/// Checks a whole story: a request is granted, its user connects, another user does not, a third user is denied, the
/// grant expires, and all of it is recorded; then a dedicated pod, and a transient binding.
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
    let mallory = scene.requests("mallory").await?;
    let hers = exec_request("me-too", TEMPLATE, "20s");
    match mallory.create(&hers).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 403, "{status}"),
        other => bail!("mallory's request: {other:?}"),
    }
    alice.phase("debug", Phase::Expired).await?;
    eventually(
        "alice's next exec to be refused",
        CONDITION_TIMEOUT,
        async || Ok((!hostname("alice")?.status.success()).then_some(())),
    )
    .await?;
    eventually("the record to be complete", CONDITION_TIMEOUT, async || {
        let records = records(cluster)?;
        let has = |action: Action, name: &str| {
            let mut records = records.iter();
            records.any(|it| it.action == action && it.request.name == name)
        };
        let all = has(Action::RequestCreated, "debug")
            && has(Action::AccessGranted, "debug")
            && has(Action::AccessExpired, "debug")
            && has(Action::RequestDenied, "me-too");
        Ok(all.then_some(()))
    })
    .await?;

    scene.pod_template("own", &json!({})).await?;
    let pods = scene.pod_requests("alice").await?;
    let own = pods.granted(&pod_request("own", "own", "30m")).await?.pod();
    let inside = exec(cluster, "alice", scene.name(), &[&own, "--", "hostname"]).output()?;
    assert_eq!(String::from_utf8(inside.stdout)?, format!("{own}\n"));

    let shift: TransientRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "shift"},
        "spec": {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alison"}],
            "validFrom": Timestamp::now(),
            "validUntil": Timestamp::now() + jiff::SignedDuration::from_hours(1),
        },
    }))?;
    let shifts = scene.api::<TransientRoleBinding>();
    shifts.create(&PostParams::default(), &shift).await?;
    let bindings = scene.api::<RoleBinding>();
    eventually(
        "the transient binding to bind",
        CONDITION_TIMEOUT,
        async || {
            let bindings = bindings.list(&Default::default()).await?.items;
            let mut subjects = bindings.into_iter().flat_map(|it| it.subjects);
            Ok(subjects
                .any(|them| them.iter().any(|it| it.name == "alison"))
                .then_some(()))
        },
    )
    .await
}

/// Kills the leading operator with its pod while a user has access: the other operator ends that, grants access to the
/// next, and both are recorded.
async fn leader_dies(cluster: &Cluster, scene: &Scene) -> Result<()> {
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("outlives", TEMPLATE, "30s"))
        .await?;
    let namespace = format!("--namespace={NAMESPACE}");
    let holder = "-ojsonpath={.spec.holderIdentity}";
    let leader = || kubectl(cluster, &["get", "lease", LEASE, &namespace, holder]);
    let before = leader()?;
    let uid = "-ojsonpath={.metadata.uid}";
    let uid = kubectl(cluster, &["get", "pod", &before, &namespace, uid])?;
    kill_in(&uid, "oz-operator")?;
    let force = ["--force", "--grace-period=0", "--wait=false"];
    let delete = ["delete", "pod", &before, &namespace];
    kubectl(cluster, &[&delete[..], &force].concat())?;

    alice
        .granted(&exec_request("after", TEMPLATE, "30s"))
        .await?;
    let after = leader()?;
    assert_ne!(after, before);
    for name in ["outlives", "after"] {
        alice.phase(name, Phase::Expired).await?;
    }
    eventually(
        "the ends to be on record, by the other one",
        CONDITION_TIMEOUT,
        async || {
            let said = kubectl(cluster, &["logs", &after, &namespace, "--tail=-1"])?;
            let ended = said
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            let ended = ended.filter(|it: &Record| it.action == Action::AccessExpired);
            let names: Vec<String> = ended.map(|it| it.request.name).collect();
            let all = ["outlives", "after"]
                .iter()
                .all(|name| names.iter().any(|it| it == name));
            Ok(all.then_some(()))
        },
    )
    .await
}

/// Kills a program in a pod without warning.
fn kill_in(pod_uid: &str, program: &str) -> Result<()> {
    let mut killed = 0;
    for process in std::fs::read_dir("/proc")? {
        let process = process?.path();
        let read = |file: &str| std::fs::read_to_string(process.join(file)).unwrap_or_default();
        let is_meant = read("cmdline").contains(program) && read("cgroup").contains(pod_uid);
        let pid = process
            .file_name()
            .and_then(|name| name.to_str()?.parse::<i32>().ok());
        if let Some(pid) = pid.filter(|_| is_meant) {
            let mut kill = Command::new("kill");
            kill.args(["-9", &pid.to_string()]);
            run(kill)?;
            killed += 1;
        }
    }
    ensure!(killed > 0, "no process of {program} in the pod {pod_uid}");
    Ok(())
}

/// Returns the audit records of the pods of oz, in no order.
pub(crate) fn records(cluster: &Cluster) -> Result<Vec<Record>> {
    let namespace = format!("--namespace={NAMESPACE}");
    let said = kubectl(cluster, &["logs", &namespace, "--tail=-1", INSTANCE])?;
    // Other log lines are between them.
    Ok(said
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

/// Checks that no object remains of oz and of its grants, except the templates and their definitions.
pub(crate) async fn nothing_left(cluster: &Cluster, scene: &Scene) -> Result<()> {
    let left = left(&cluster.client("admin").await?).await?;
    assert!(left.is_empty(), "{left:?}");
    let kinds = "clusterroles,clusterrolebindings,priorityclasses,all,serviceaccounts,roles,\
                 rolebindings,poddisruptionbudgets";
    let of_the_chart = ["get", kinds, INSTANCE, "--all-namespaces", "-oname"];
    // Helm does not wait for pods of a deleted Deployment.
    eventually(
        "what the chart made to be gone",
        CONDITION_TIMEOUT,
        async || Ok(kubectl(cluster, &of_the_chart)?.is_empty().then_some(())),
    )
    .await?;
    // The templates stay, with their definitions.
    let kept = ["get", "execaccesstemplate", TEMPLATE, "-oname"];
    let kept = [&kept[..], &["--namespace", scene.name()]].concat();
    kubectl(cluster, &kept)
        .context("the template is gone")
        .map(drop)
}
