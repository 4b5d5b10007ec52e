//! Kills of two operators in turns, while grants of every kind begin and end: access to pods, dedicated pods, bindings in
//! a namespace and in the cluster, and runs. Each ends after its expiry and within the bound of
//! docs/concepts/availability.md, is recorded once, and leaves no object; the audit trail is whole.
//!
//! 200 grants and 20 kills; 2,000 grants, of which 100 are runs, and 200 kills in the long form (`OZ_LONG=1`).

mod figures;
pub(crate) mod grants;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use oz_api::harness::HarnessRun;
use oz_api::{
    ExecAccessRequest, PodAccessRequest, TransientClusterRoleBinding, TransientRoleBinding,
};
use oz_e2e::{
    Auditor, LEASE_AND_TURNS, Options, Replicas, Scene, announce_broker, apply, clear_trail,
    established, install_harness, left, node_by_hand,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, cargo_binary, eventually, scaled};

use self::figures::{Change, Ends};
use self::grants::{Ended, Grant, Requesters};
use crate::alone;

/// The number of kills whose grants are created in advance, so that grants end while the first operators are killed.
const AHEAD: usize = 10;
/// The time between two requests.
const PACE: Duration = Duration::from_millis(150);
/// Of this number of killed operators, one starts only after another leads, as one on a node that is lost. The others
/// start at once under their name, as a kubelet starts containers.
const LOST_NODE: usize = 20;
/// The maximum time between the start of an operator and the next kill, in milliseconds.
const LONGEST_PAUSE: u64 = 900;

/// Returns the options of an oz that serves all kinds.
pub(crate) fn options() -> Options {
    Options::default()
        .harness()
        // In the long form, the requests of each user exceed the default.
        .set("webhook.limits.finished", "2000")
        .set("transient.bindableRoles", r#"["view"]"#)
        .set("transient.maxBindingWindow", "1h")
}

/// Installs the prerequisites of all kinds, without running oz, and removes the trail of earlier tests.
pub(crate) async fn install(cluster: &'static Cluster, prefix: &str) -> Result<Scene> {
    clear_trail(cluster).await?;
    install_harness(cluster)?;
    apply(cluster, "deploy/rbac/transient")?;
    established(cluster)?;
    let scene = Scene::set(cluster, prefix).await?;
    announce_broker(&scene.admin).await?;
    node_by_hand(&scene.admin).await?;
    grants::templates(&scene).await?;
    Ok(scene)
}

/// The progress of the test: the number of kills decides how many grants are created.
struct Progress {
    grants: usize,
    kills: usize,
    killed: AtomicUsize,
}

impl Progress {
    fn new((grants, kills): (usize, usize)) -> Self {
        Self {
            grants,
            kills,
            killed: AtomicUsize::new(0),
        }
    }

    /// Returns the number of grants that may exist by now.
    fn wanted(&self) -> usize {
        let share = self.grants.div_ceil(self.kills);
        (self.killed.load(Ordering::Relaxed) + AHEAD) * share
    }

    /// Creates all grants, some kills in advance.
    async fn create(&self, requesters: &Requesters) -> Result<()> {
        let mut pace = tokio::time::interval(PACE);
        for number in 0..self.grants {
            pace.tick().await;
            while number >= self.wanted() {
                pace.tick().await;
            }
            requesters.create(number).await?;
        }
        Ok(())
    }

    /// Kills the operators in turns, at moments that no two runs share. Returns the kills of leaders.
    async fn kill(&self, replicas: &mut Replicas, auditor: &mut Auditor) -> Result<Vec<Change>> {
        let (began, mut changes) = (Instant::now(), Vec::new());
        for kill in 0..self.kills {
            let nanos = u64::from(began.elapsed().subsec_nanos());
            tokio::time::sleep(Duration::from_millis(nanos % LONGEST_PAUSE)).await;
            let leader = replicas.leader().await?;
            let is_lost = kill % LOST_NODE == LOST_NODE / 2;
            let names = replicas.operators();
            let turn = names.get(kill % names.len()).context("no operator runs")?;
            let victim = if is_lost { &leader } else { turn };
            let from = Timestamp::now();
            auditor.log(&replicas.kill(victim)?);
            self.killed.fetch_add(1, Ordering::Relaxed);
            if is_lost {
                replicas.leader().await?;
            }
            let successor = Timestamp::now();
            replicas.start_again(victim).await?;
            if *victim == leader {
                // A successor that waited is ready already.
                let ready = if is_lost { successor } else { Timestamp::now() };
                changes.push(Change { from, until: ready });
            }
        }
        Ok(changes)
    }
}

/// Creates the grants while operators are killed, and waits until all grants have ended.
async fn story(
    scene: &Scene,
    progress: &Progress,
    replicas: &mut Replicas,
    auditor: &mut Auditor,
) -> Result<(Ended, Vec<Change>)> {
    let requesters = Requesters::new(scene).await?;
    let ((), changes) = tokio::try_join!(
        progress.create(&requesters),
        progress.kill(replicas, auditor)
    )?;
    let ended = eventually("all grants to end", CONDITION_TIMEOUT, async || {
        let ended = grants::ended(scene).await?;
        let (count, all) = (ended.grants.len() + ended.never, progress.grants);
        ensure!(count == all, "{count} of {all} grants exist");
        Ok(Some(ended))
    })
    .await?;
    Ok((ended, changes))
}

#[tokio::test]
async fn killed_in_turns_operators_end_grants_of_every_kind_in_time_and_leave_nothing() -> Result<()>
{
    let (_turn, cluster) = alone().await?;
    cargo_binary("ozctl")?;
    let progress = Progress::new(scaled((200, 20), (2_000, 200)));
    let scene = install(cluster, "kinds").await?;
    let mut replicas = Replicas::start_with(cluster, options()).await?;
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    let mark = cluster.audit().mark()?;
    let began = Instant::now();
    let (Ended { grants, never }, changes) = tokio::select! {
        ended = story(&scene, &progress, &mut replicas, &mut auditor) => ended?,
        failed = scene.kubelet_by_hand() => return failed.context("the kubelet ended"),
    };
    let took = began.elapsed();

    let log = cluster.audit().since(mark)?;
    let changes = figures::taken_over(changes, &log)?;
    let ends = Ends::find(&scene, &grants, &log)?;
    eprintln!(
        "{} grants, {never} requests that expired without one, {} kills in {took:?}\n{}",
        grants.len(),
        progress.kills,
        ends.figures(&changes)
    );
    for (grant, late) in ends.all() {
        assert!(
            late >= -grant.kind.early(),
            "{grant:?} ended {late:#} early"
        );
        assert!(late <= LEASE_AND_TURNS, "{grant:?} ended {late:#} late");
    }
    ensure!(
        grants.len() > never,
        "most requests expired without a grant"
    );
    let (_, within) = ends.divided(&changes);
    assert!(!within.is_empty(), "no grant ended without a leader");

    nothing_left(&scene).await?;
    for (_, process) in replicas.processes().await? {
        auditor.log(process);
    }
    recorded_once(&auditor, &grants).await?;
    verified(cluster, &auditor).await
}

/// Checks that access leaves no object, and then that the requests leave none.
async fn nothing_left(scene: &Scene) -> Result<()> {
    const OF_ACCESS: [&str; 5] = [
        "RoleBinding ",
        "ClusterRoleBinding ",
        "Role ",
        "Pod ",
        "NetworkPolicy ",
    ];
    let found = async || -> Result<Vec<String>> {
        let mut found = left(&scene.admin).await?;
        found.retain(|object| {
            let mut place = object.split(' ').skip(1);
            place.any(|word| word.starts_with(scene.name()))
        });
        Ok(found)
    };
    eventually(
        "all objects of grants to go",
        CONDITION_TIMEOUT,
        async || {
            let mut found = found().await?;
            found.retain(|object| OF_ACCESS.iter().any(|kind| object.starts_with(kind)));
            ensure!(found.is_empty(), "left: {found:?}");
            Ok(Some(()))
        },
    )
    .await?;
    let (now, all) = (DeleteParams::default(), ListParams::default());
    let (exec, pods) = (
        scene.api::<ExecAccessRequest>(),
        scene.api::<PodAccessRequest>(),
    );
    exec.delete_collection(&now, &all).await?;
    pods.delete_collection(&now, &all).await?;
    let bindings = scene.api::<TransientRoleBinding>();
    bindings.delete_collection(&now, &all).await?;
    let runs = scene.api::<HarnessRun>();
    runs.delete_collection(&now, &all).await?;
    let cluster = Api::<TransientClusterRoleBinding>::all(scene.admin.clone());
    for name in grants::names::<TransientClusterRoleBinding>(scene).await? {
        cluster.delete(&name, &now).await?;
    }
    eventually(
        "all requests and Jobs to go",
        CONDITION_TIMEOUT,
        async || {
            let (found, runs) = (found().await?, runs.list(&all).await?.items.len());
            ensure!(
                found.is_empty() && runs == 0,
                "left: {found:?}, {runs} runs"
            );
            Ok(Some(()))
        },
    )
    .await
}

/// Checks that the beginning and the end of each grant are on record, each of them once.
async fn recorded_once(auditor: &Auditor, grants: &[Grant]) -> Result<()> {
    // A record that was written twice has one ID.
    let mut ids: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for record in auditor.records().await? {
        let text = |value: &serde_json::Value| value.as_str().map(ToOwned::to_owned);
        let (uid, action) = (text(&record["request"]["uid"]), text(&record["action"]));
        if let (Some(key), Some(id)) = (uid.zip(action), text(&record["id"])) {
            ids.entry(key).or_default().insert(id);
        }
    }
    for grant in grants {
        for action in grant.kind.actions() {
            let key = (grant.uid.clone(), action.to_string());
            let found = ids.get(&key).map_or(0, BTreeSet::len);
            ensure!(found == 1, "{found} records {action} of {grant:?}");
        }
    }
    Ok(())
}

/// Waits until `ozctl audit verify` finds the trail whole, with the published keys and the logs of all processes.
async fn verified(cluster: &Cluster, auditor: &Auditor) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let keys = directory.path().join("keys");
    let (code, text) = audit(cluster, |audit| audit.arg("keys"))?;
    ensure!(code == Some(0), "{text}");
    std::fs::write(&keys, text)?;
    let logs: Vec<&Path> = auditor.logs.iter().map(AsRef::as_ref).collect();
    // The latest records are signed a few seconds later.
    eventually("the trail to be whole", CONDITION_TIMEOUT, async || {
        let (code, text) = audit(cluster, |audit| {
            audit.arg("verify").arg("--key").arg(&keys);
            audit.arg("--log").args(&logs)
        })?;
        ensure!(code == Some(0), "{text}");
        Ok(Some(()))
    })
    .await
}

/// Runs `ozctl audit` as an administrator. Returns the exit code and the standard output.
fn audit(
    cluster: &Cluster,
    words: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(cargo_binary("ozctl")?);
    command
        .arg("audit")
        .env("KUBECONFIG", cluster.kubeconfig("admin"))
        .env("NO_COLOR", "1");
    let output = words(&mut command).output()?;
    let mut text = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        text.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    Ok((output.status.code(), text))
}
