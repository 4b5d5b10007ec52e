//! A gate that stores recordings in a bucket, and its sessions while the bucket is down, does not respond, refuses,
//! breaks
//! or is full: users notice nothing, and all recordings are stored once it is available. Only a user who fills their
//! share
//! of the gate's disk is slowed down, and only without any room left is no session open that must be recorded.

use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use oz_api::{NonInteractive, RecordedInput, RecordingConfig, RecordingMode};
use oz_e2e::{
    GATED, Gate, Options, Scene, Session, System, exec_request, recording_template, records_in,
    run_for_a_while,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_testkit_s3::{Fault, ObjectStore};
use oz_trail::{Action, Record};
use tempfile::TempDir;
use tokio::sync::MutexGuard;

use crate::kills::kills;
use crate::passing::said;
use crate::rolling::{Echo, through_gate, through_gate_as};
use crate::{TURN, cluster};

const REQUIRED: RecordingConfig = RecordingConfig {
    mode: RecordingMode::Required,
    input: RecordedInput::All,
    non_interactive: Some(NonInteractive::All),
};

/// A spool that is soon full, in bytes.
const SMALL: u32 = 16 << 20;
/// A spool in which no share fills up here, in bytes.
const LARGE: u32 = 256 << 20;
/// The number of shares of a spool.
const SHARES: usize = 8;

/// Returns a command that prints this many bytes of incompressible data.
fn much(length: usize) -> String {
    format!("head -c {length} /dev/urandom | base64")
}

/// A setup of oz with a gate that stores recordings in a bucket.
struct World {
    store: ObjectStore,
    gate: Gate,
    scene: Scene,
    pod: String,
    spool: TempDir,
    _system: System,
    _turn: MutexGuard<'static, ()>,
}

/// A user with a grant.
struct User {
    name: String,
    request: String,
    pod: String,
}

impl World {
    async fn new(prefix: &str) -> Result<Self> {
        Self::with(prefix, LARGE).await
    }

    /// Sets up a gate with a spool of this many bytes.
    async fn with(prefix: &str, spool_bytes: u32) -> Result<Self> {
        let turn = TURN.lock().await;
        let cluster = cluster().await?;
        let (store, spool) = (ObjectStore::start().await?, TempDir::new()?);
        let system = System::start_with(cluster, &Gate::operator_options()).await?;
        let options = Options::default()
            .set("installation.secrets", store.secrets().display())
            .set("gate.recordings.url", "s3://recordings/cluster-1")
            .set("gate.recordings.endpoint", store.endpoint())
            .set("gate.recordings.pathStyle", true)
            .set("gate.recordings.secret.name", "recordings")
            .set("gate.recordings.spool.directory", spool.path().display())
            .set("gate.recordings.spool.mebibytes", spool_bytes >> 20);
        let gate = Gate::start(cluster, &options).await?;
        let scene = Scene::set(cluster, prefix).await?;
        scene.template(&recording_template(REQUIRED)).await?;
        let alice = scene.requests("alice").await?;
        let granted = alice.granted(&exec_request("mine", GATED, "2h")).await?;
        Ok(Self {
            pod: granted.pod(),
            store,
            gate,
            scene,
            spool,
            _system: system,
            _turn: turn,
        })
    }

    async fn open(&self) -> Result<Echo> {
        let pods = through_gate(&self.scene, "mine").await?;
        eventually("alice to get in", CONDITION_TIMEOUT, async || {
            Ok(Some(Echo::open(&pods, &self.pod).await?))
        })
        .await
    }

    /// Opens a session that prints this many bytes of incompressible data, and then reports its end.
    fn prints(&self, length: usize) -> Result<Session> {
        self.runs(&format!("{}; echo over!; exec cat", much(length)))
    }

    fn runs(&self, script: &str) -> Result<Session> {
        let alice = User {
            name: "alice".to_owned(),
            request: "mine".to_owned(),
            pod: self.pod.clone(),
        };
        self.runs_as(&alice, script)
    }

    fn runs_as(&self, user: &User, script: &str) -> Result<Session> {
        let words = ["exec", "-i", &user.pod, "--", "sh", "-c", script];
        let command = self.scene.through_gate(&user.name, &user.request, &words);
        // The rest of its output has no such character.
        Session::open_saying(command, "over!")
    }

    /// Runs a session of alice without output.
    fn enters(&self) -> Result<Output> {
        let words = ["exec", &self.pod, "--", "true"];
        Ok(self.scene.through_gate("alice", "mine", &words).output()?)
    }

    /// Returns another user, with a grant.
    async fn user(&self, name: &str) -> Result<User> {
        self.scene.cluster.issue_kubeconfig(name, &["devs"])?;
        let requests = self.scene.requests(name).await?;
        let request = format!("of-{name}");
        let granted = requests
            .granted(&exec_request(&request, GATED, "2h"))
            .await?;
        Ok(User {
            name: name.to_owned(),
            pod: granted.pod(),
            request,
        })
    }

    /// Waits until this many users are slowed down, or a session was cut.
    async fn slowed(&self, count: usize) -> Result<()> {
        eventually("a user to be slowed down", CONDITION_TIMEOUT, async || {
            let full = self.metric("oz_gate_recording_shares_full ").await?;
            let slowed = self.metric("oz_gate_sessions_throttled ").await?;
            let all = u32::try_from(count)?;
            let is_cut = !self.records(Action::SessionTerminated)?.is_empty();
            let is_slowed = full >= f64::from(all) && slowed >= f64::from(all);
            Ok((is_cut || is_slowed).then_some(()))
        })
        .await
    }

    fn records(&self, action: Action) -> Result<Vec<Record>> {
        let mut records = records_in(&self.gate.process)?;
        records.retain(|one| one.action == action && one.request.namespace == self.scene.name());
        Ok(records)
    }

    /// Waits until this many sessions have records of their recordings.
    async fn recorded(&self, count: usize) -> Result<()> {
        let what = format!("{count} sessions on record");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let recorded = self.records(Action::SessionRecorded)?.len();
            ensure!(recorded >= count, "{recorded} are");
            Ok(Some(()))
        })
        .await
    }

    /// Returns the value of a metric.
    async fn metric(&self, name: &str) -> Result<f64> {
        let page = self.gate.metrics().await?;
        let mut lines = page.lines().filter_map(|line| line.strip_prefix(name));
        let value = lines.next().with_context(|| format!("no {name}"))?;
        Ok(value.trim().parse()?)
    }

    /// Waits until the spool is empty, and verifies the stored recordings.
    async fn whole(&self) -> Result<()> {
        eventually("everything to be stored", CONDITION_TIMEOUT, async || {
            let waiting = self.metric("oz_gate_recording_parts_waiting ").await?;
            ensure!(waiting == 0.0, "{waiting} parts wait");
            Ok(Some(()))
        })
        .await?;
        let verified = self
            .scene
            .ozctl("admin", &["sessions", "verify"])?
            .output()?;
        ensure!(verified.status.success(), "{}", said(&verified));
        let objects = self.store.objects();
        for record in self.records(Action::SessionRecorded)? {
            let session = record.details.get("session").context("no session")?;
            let parts: usize = record.details.get("parts").context("no parts")?.parse()?;
            let prefix = format!("cluster-1/{session}/");
            let stored = objects.keys().filter(|name| name.starts_with(&prefix));
            ensure!(stored.count() == parts, "{session} is not whole");
        }
        Ok(())
    }
}

// The store must respond while the test waits for a command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_object_store_affects_no_users_and_receives_all_recordings() -> Result<()> {
    let mut world = World::new("stores").await?;
    let mut lasting = world.open().await?;
    let mut ended = 0;
    for fault in [
        Fault::Denied,
        Fault::Full,
        Fault::Broken,
        Fault::Busy,
        Fault::Stalls,
        Fault::None,
    ] {
        world.store.fails(fault);
        if fault == Fault::None {
            // The last fault is a store without any response: the requests that hung break off.
            world.store.kill().await;
        }
        let failed = "oz_gate_recording_upload_failures_total";
        let failures = async || -> Result<f64> {
            let page = world.gate.metrics().await?;
            let lines = page.lines().filter(|line| line.starts_with(failed));
            let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            Ok(values.sum())
        };
        let before = failures().await?;
        let mut session = world.open().await?;
        for word in ["one", "two"] {
            session.says(word).await?;
            lasting.says(word).await?;
        }
        session.ends().await?;
        ended += 1;
        world.recorded(ended).await?;
        if fault == Fault::Stalls {
            continue;
        }
        eventually("an attempt that fails", CONDITION_TIMEOUT, async || {
            Ok((failures().await? > before).then_some(()))
        })
        .await
        .with_context(|| format!("{fault:?}"))?;
    }
    ensure!(world.metric("oz_gate_recording_parts_waiting ").await? > 0.0);
    lasting.says("three").await?;
    world.store.again().await?;
    lasting.ends().await?;
    world.recorded(ended + 1).await?;
    world.whole().await
}

// The store must respond while the test waits for a command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_object_store_loses_nothing_of_what_it_was_about_to_store() -> Result<()> {
    let mut world = World::new("store-killed").await?;
    let mut ended = 0;
    for _ in 0..kills() {
        // The gate stores several parts of this much output while the session runs.
        let printing = world.prints(5 << 20)?;
        world.store.kill().await;
        let mut session = world.open().await?;
        session.says("meanwhile").await?;
        drop(printing);
        session.ends().await?;
        ended += 2;
        world.recorded(ended).await?;
        world.store.again().await?;
        eventually("everything to be stored", CONDITION_TIMEOUT, async || {
            let waiting = world.metric("oz_gate_recording_parts_waiting ").await?;
            Ok((waiting == 0.0).then_some(()))
        })
        .await?;
    }
    world.whole().await
}

// The store must respond while the test waits for a command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_with_full_share_is_slowed_without_loss() -> Result<()> {
    let mut world = World::with("store-share", SMALL).await?;
    let other = world.user("talker").await?;
    let pods = through_gate_as(&world.scene, &other.name, &other.request).await?;
    let mut beside = eventually("another user to get in", CONDITION_TIMEOUT, async || {
        Ok(Some(Echo::open(&pods, &other.pod).await?))
    })
    .await?;
    // The session prints nothing until the test sends a line, and ends without a further line.
    let mut printing = eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let script = format!("echo over!; read -r line; {}", much(6 << 20));
        world.runs(&script).map(Some)
    })
    .await?;
    world.store.kill().await;
    printing.tell("go on")?;
    world.slowed(1).await?;
    let taken = world.metric("oz_gate_recording_spool_bytes ").await?;
    ensure!(taken < f64::from(SMALL / 4), "{taken} bytes are taken");
    // Compressed output takes less room, and frees room for a moment, until all of the share is compressed. A session
    // that
    // opens in such a moment lasts until the store is available again.
    let refused = eventually("alice to be kept out", CONDITION_TIMEOUT, async || {
        let enters = world
            .scene
            .through_gate("alice", "mine", &["exec", &world.pod, "--", "true"]);
        let output = run_for_a_while(&enters)?;
        Ok(output.filter(|output| !output.status.success()))
    })
    .await?;
    ensure!(
        said(&refused).contains("bytes of one user"),
        "{}",
        said(&refused)
    );
    // The other user does not notice.
    for word in ["one", "two", "three"] {
        beside.says(word).await?;
    }
    Echo::open(&pods, &other.pod).await?.ends().await?;
    ensure!(printing.is_open(), "alice's session ended");
    world.store.again().await?;
    printing.ended(CONDITION_TIMEOUT * 2)?;
    beside.says("four").await?;
    beside.ends().await?;
    world.recorded(3).await?;
    ensure!(world.records(Action::SessionTerminated)?.is_empty());
    let ended = world.records(Action::SessionEnded)?;
    let codes = ended.iter().map(|one| one.details.get("exitCode"));
    ensure!(codes.flatten().all(|code| code == "0"), "{ended:?}");
    world.whole().await
}

// The store must respond while the test waits for a command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_full_spool_nothing_is_open_that_must_be_recorded() -> Result<()> {
    let mut world = World::with("store-full", SMALL).await?;
    // There are more users than shares, each with a session that prints nothing until the test sends a line.
    let mut sessions = Vec::new();
    for number in 0..SHARES + 2 {
        let user = world.user(&format!("talker-{number}")).await?;
        let script = format!("echo over!; read -r line; {}; exec cat", much(4 << 20));
        let session = eventually("a user to get in", CONDITION_TIMEOUT, async || {
            world.runs_as(&user, &script).map(Some)
        });
        sessions.push(session.await?);
    }
    world.store.kill().await;
    // The users fill their shares one after the other, until no room is left.
    let mut told = 0;
    for session in &mut sessions {
        session.tell("go on")?;
        told += 1;
        world.slowed(told).await?;
        if !world.records(Action::SessionTerminated)?.is_empty() {
            break;
        }
    }
    cut_for_want_of_room(&world, 1).await?;
    ensure!(told >= SHARES - 1, "it was full after {told} users");
    let refused = world.enters()?;
    for part in [
        "requires a recording of each session",
        "wait to be stored use",
    ] {
        ensure!(said(&refused).contains(part), "{}", said(&refused));
    }
    // Sessions with a full share wait, and no completely recorded session ends: only a session that has room in its
    // user's
    // share, when the spool has none.
    let ended = sessions.iter().filter(|session| !session.is_open()).count();
    let cut = world.records(Action::SessionTerminated)?.len();
    ensure!(
        ended <= cut && cut < told,
        "{ended} ended, {cut} of {told} are cut"
    );
    world.store.again().await?;
    eventually("room in the spool", CONDITION_TIMEOUT, async || {
        Ok(world.enters()?.status.success().then_some(()))
    })
    .await?;
    eventually("all to go on", CONDITION_TIMEOUT, async || {
        let full = world.metric("oz_gate_recording_shares_full ").await?;
        Ok((full == 0.0).then_some(()))
    })
    .await?;
    let count = sessions.len();
    drop(sessions);
    world.recorded(count + 1).await?;
    world.whole().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_does_not_run_if_recording_cannot_begin() -> Result<()> {
    let world = World::new("store-broken").await?;
    let marks = TempDir::new()?;
    let runs = |name: &str| -> Result<(Output, bool)> {
        let mark = marks.path().join(name);
        let script = format!("touch {}", mark.display());
        let words = ["exec", &world.pod, "--", "sh", "-c", &script];
        let output = world.scene.through_gate("alice", "mine", &words).output()?;
        Ok((output, mark.exists()))
    };
    eventually("alice to get in", CONDITION_TIMEOUT, async || {
        Ok(runs("first")?.1.then_some(()))
    })
    .await?;
    world.whole().await?;
    // The gate cannot create a directory of a session below a file.
    let place = world.spool.path().join(world.scene.name());
    if place.exists() {
        std::fs::remove_dir_all(&place)?;
    }
    std::fs::write(&place, "")?;
    let opened = world.records(Action::SessionRecorded)?.len();
    let (refused, ran) = runs("second")?;
    ensure!(!refused.status.success() && !ran, "{}", said(&refused));
    ensure!(
        said(&refused).contains("failed to begin the recording"),
        "{}",
        said(&refused)
    );
    std::fs::remove_file(&place)?;
    let (output, ran) = runs("third")?;
    ensure!(output.status.success() && ran, "{}", said(&output));
    world.recorded(opened + 1).await?;
    ensure!(
        world.records(Action::SessionUnrecorded)?.is_empty(),
        "something went unrecorded"
    );
    world.whole().await
}

/// Waits until this many sessions have ended because there was no room for their output.
async fn cut_for_want_of_room(world: &World, count: usize) -> Result<()> {
    let cut = eventually("the ends on record", CONDITION_TIMEOUT, async || {
        let cut = world.records(Action::SessionTerminated)?;
        Ok((cut.len() >= count).then_some(cut))
    })
    .await?;
    for one in &cut {
        ensure!(one.reason == "NotRecorded", "{one:?}");
        ensure!(
            one.message.contains("wait to be stored use"),
            "{}",
            one.message
        );
    }
    Ok(())
}
