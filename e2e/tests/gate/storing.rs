//! A gate whose recordings go to a bucket, and what becomes of sessions while that is away, does not answer, refuses,
//! breaks or is full: nobody feels it, and all is stored once it is back. Only where there is no room left to wait is
//! nothing open that must be recorded.

use anyhow::{Context as _, Result, ensure};
use oz_core::api::{NonInteractive, RecordedInput, RecordingConfig, RecordingMode};
use oz_core::audit::{Action, Record};
use oz_e2e::{
    GATED, Gate, Options, Scene, Session, System, exec_request, recording_template, records_in,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_testkit_s3::{Fault, ObjectStore};
use tempfile::TempDir;
use tokio::sync::MutexGuard;

use crate::kills::kills;
use crate::passing::said;
use crate::rolling::{Echo, through_gate};
use crate::{TURN, cluster};

const REQUIRED: RecordingConfig = RecordingConfig {
    mode: RecordingMode::Required,
    input: RecordedInput::All,
    non_interactive: Some(NonInteractive::All),
};

/// A command that prints so many bytes that cannot be packed.
fn much(length: usize) -> String {
    format!("head -c {length} /dev/urandom | base64")
}

/// oz with a gate that stores recordings in a bucket.
struct World {
    store: ObjectStore,
    gate: Gate,
    scene: Scene,
    pod: String,
    _spool: TempDir,
    _system: System,
    _turn: MutexGuard<'static, ()>,
}

impl World {
    async fn new(prefix: &str) -> Result<Self> {
        let turn = TURN.lock().await;
        let cluster = cluster().await?;
        let (store, spool) = (ObjectStore::start().await?, TempDir::new()?);
        let system = System::start_with(cluster, &Gate::operator_options()).await?;
        let options = [
            "--recordings=s3://recordings/cluster-1".to_owned(),
            format!("--recordings-endpoint={}", store.endpoint()),
            "--recordings-path-style".to_owned(),
            format!("--recordings-credentials={}", store.credentials().display()),
            format!("--recording-spool={}", spool.path().display()),
            format!("--recording-spool-bytes={}", 16 << 20),
        ];
        let options = options
            .iter()
            .fold(Options::default(), |options, flag| options.flag(flag));
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
            _spool: spool,
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

    /// A session that prints so many bytes that cannot be packed, and then says that it is there.
    fn prints(&self, length: usize) -> Result<Session> {
        self.runs(&format!("{}; echo over!; exec cat", much(length)))
    }

    fn runs(&self, script: &str) -> Result<Session> {
        let words = ["exec", "-i", &self.pod, "--", "sh", "-c", script];
        let command = self.scene.through_gate("alice", "mine", &words);
        // Nothing else of what it prints has such a letter.
        Session::open_saying(command, "over!")
    }

    fn records(&self, action: Action) -> Result<Vec<Record>> {
        let mut records = records_in(&self.gate.process)?;
        records.retain(|one| one.action == action && one.request.namespace == self.scene.name());
        Ok(records)
    }

    /// Waits until so many sessions have their recordings on record.
    async fn recorded(&self, count: usize) -> Result<()> {
        let what = format!("{count} sessions on record");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let recorded = self.records(Action::SessionRecorded)?.len();
            ensure!(recorded >= count, "{recorded} are");
            Ok(Some(()))
        })
        .await
    }

    /// What a line of the page of metrics says.
    async fn metric(&self, name: &str) -> Result<f64> {
        let page = self.gate.metrics().await?;
        let mut lines = page.lines().filter_map(|line| line.strip_prefix(name));
        let value = lines.next().with_context(|| format!("no {name}"))?;
        Ok(value.trim().parse()?)
    }

    /// Waits until nothing waits in the spool, and has it verified what is stored.
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

// The store answers while a command is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_an_object_store_fails_nobody_feels_it_and_it_gets_everything() -> Result<()> {
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
            // The last of its ways, of which nothing is heard: what hung breaks off.
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

// The store answers while a command is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_object_store_loses_nothing_of_what_it_was_about_to_store() -> Result<()> {
    let mut world = World::new("store-killed").await?;
    let mut ended = 0;
    for _ in 0..kills() {
        // Of so much several parts are stored while it goes on.
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

// The store answers while a command is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_full_spool_nothing_is_open_that_must_be_recorded() -> Result<()> {
    let mut world = World::new("store-full").await?;
    // One that says nothing until it is told to.
    let mut open = eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let script = format!("echo over!; read -r line; {}; exec cat", much(64 << 20));
        world.runs(&script).map(Some)
    })
    .await?;
    world.store.kill().await;
    let enters = || {
        let words = ["exec", &world.pod, "--", "true"];
        world.scene.through_gate("alice", "mine", &words).output()
    };
    // What is packed at an end takes less, so that there may be room for a little more.
    let refused = eventually("a full spool", CONDITION_TIMEOUT, async || {
        let printed = world.prints(64 << 20);
        ensure!(printed.is_err(), "all of it was printed");
        let entered = enters()?;
        Ok((!entered.status.success()).then_some(entered))
    })
    .await?;
    for part in ["has every session recorded", "bytes are taken"] {
        ensure!(said(&refused).contains(part), "{}", said(&refused));
    }
    cut_for_want_of_room(&world, 1).await?;
    // Whatever else is open goes on while what is said in it finds room, and ends then.
    ensure!(open.is_open());
    open.tell("go on")?;
    open.ended(CONDITION_TIMEOUT)?;
    let cut = cut_for_want_of_room(&world, 2).await?;
    world.store.again().await?;
    eventually("room in the spool", CONDITION_TIMEOUT, async || {
        Ok(enters()?.status.success().then_some(()))
    })
    .await?;
    world.recorded(cut + 1).await?;
    world.whole().await
}

/// Waits until so many sessions have ended since there was no room for what they say; how many did.
async fn cut_for_want_of_room(world: &World, count: usize) -> Result<usize> {
    let cut = eventually("the ends on record", CONDITION_TIMEOUT, async || {
        let cut = world.records(Action::SessionCut)?;
        Ok((cut.len() >= count).then_some(cut))
    })
    .await?;
    for one in &cut {
        ensure!(one.reason == "NotRecorded", "{one:?}");
        ensure!(one.message.contains("bytes are taken"), "{}", one.message);
    }
    Ok(cut.len())
}
