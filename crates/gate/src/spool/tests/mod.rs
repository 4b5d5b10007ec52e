//! The spool as a whole: the stored part of the recorded data, for a process that is killed at any step, and for every
//! failure of the store.

mod encryption;
mod storing;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use oz_gating::recording::{About, Form, Head, Header, PartName, SessionKey};
use oz_recording::age::{self, Identity};
use oz_recording::frames;
use oz_testkit::eventually;
use tempfile::TempDir;

use super::*;
use crate::storage::S3Options;

const LIMIT: u64 = 1 << 20;
const DEADLINE: Duration = Duration::from_secs(30);

/// The directory of a spool, and a store next to it.
struct Directories {
    directory: TempDir,
    meters: SpoolMeters,
    /// The identity of the recipient, if the spool encrypts.
    identity: Option<Identity>,
}

impl Directories {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            meters: SpoolMeters::default(),
            identity: None,
        }
    }

    fn encrypted() -> Self {
        Self {
            identity: Some(Identity::generate().unwrap().0),
            ..Self::new()
        }
    }

    fn spool(&self) -> PathBuf {
        self.directory.path().join("spool")
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    fn storage(&self) -> Storage {
        let url = format!("file://{}", self.store().display());
        Storage::new(&url, &S3Options::default()).unwrap()
    }

    fn options(&self, limit: u64) -> SpoolOptions {
        SpoolOptions {
            directory: self.spool(),
            limit,
            recipients: self.identity.iter().map(Identity::recipient).collect(),
            meters: self.meters.clone(),
        }
    }

    /// Opens a spool that stores no parts automatically, and that is killed after the given number of steps.
    async fn open(&self, steps: Option<i64>) -> anyhow::Result<(Arc<Spool>, Vec<Recovered>)> {
        let opened = async || {
            let disk = Disk {
                left: steps.map(|steps| Arc::new(AtomicI64::new(steps))),
            };
            let opened = Spool::open(&self.options(LIMIT), self.storage(), disk);
            match opened {
                Ok((spool, recovered)) => Ok(Some(Ok((Arc::new(spool), recovered)))),
                // A task of the previous spool is still writing to the disk.
                Err(error) if is_locked(&error) => Err(error),
                Err(error) => Ok(Some(Err(error))),
            }
        };
        eventually("the lock of the spool", DEADLINE, opened).await?
    }

    /// Returns the stored lines of a session, and the head of the stored parts.
    async fn stored(&self, key: &SessionKey) -> (Vec<u8>, Head) {
        let storage = self.storage();
        let mut lines = Vec::new();
        let mut head = Head::start(&key.to_string());
        for name in storage.list(&format!("{key}/"), "", 1000).await.unwrap() {
            let part = PartName::read(&name).unwrap();
            assert_eq!(part.number, head.parts, "none is left out");
            let bytes = storage.get(&name, 1 << 20).await.unwrap().unwrap();
            lines.extend(self.lines(part.form, &bytes));
            head = head.after(&bytes);
        }
        (lines, head)
    }

    /// Returns the lines of a part.
    fn lines(&self, form: Form, stored: &[u8]) -> Vec<u8> {
        let identities = self.identity.as_slice();
        assert_eq!(form != Form::Plain, self.identity.is_some(), "{form:?}");
        match form {
            Form::Plain => oz_recording::unpack(stored, 1 << 20).unwrap(),
            Form::Encrypted => {
                let packed = age::decrypt(stored, identities).unwrap();
                oz_recording::unpack(&packed, 1 << 20).unwrap()
            }
            Form::Frames => frames::open(stored, identities, 1 << 20).unwrap(),
        }
    }
}

fn is_locked(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("another process uses it")
}

fn key(name: &str) -> SessionKey {
    SessionKey::read(&format!("shop/fix/20261125t190000z-gate-{name}")).unwrap()
}

/// Returns all files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in directories::entries(directory).unwrap() {
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// The known state of a session when the process is killed.
#[derive(Clone, Debug, Default)]
struct SessionState {
    /// The lines that were certainly appended.
    appended: Vec<u8>,
    /// The lines that may have been appended as well.
    perhaps: Vec<u8>,
    /// The last head that was returned.
    head: Option<Head>,
    /// True if `finish` was called: the session may be forgotten.
    finishing: bool,
}

type World = BTreeMap<SessionKey, SessionState>;

/// Records two sessions, one of which ends. Stops when the process is killed.
async fn record(spool: &Arc<Spool>, world: &mut World) -> Result<(), SpoolError> {
    let (first, second) = (key("0"), key("1"));
    let mut one = spool.begin(first.clone(), "alice");
    let mut other = spool.begin(second.clone(), "alice");
    let mut line = 0;
    for round in 0..3 {
        for (recording, key) in [(&mut one, &first), (&mut other, &second)] {
            for _ in 0..2 {
                line += 1;
                let known = world.entry(key.clone()).or_default();
                known.perhaps = format!("[{line}, \"o\", \"some text of some length\"]\n").into();
                recording.append(&known.perhaps).await?;
                known.appended.append(&mut known.perhaps);
            }
        }
        for (recording, key) in [(&mut one, &first), (&mut other, &second)] {
            // One session has an open part at the end.
            if round < 2 || key == &first {
                let head = recording.seal().await?;
                assert_eq!(head, recording.head());
                world.entry(key.clone()).or_default().head = Some(head);
            }
        }
        if round > 0 {
            spool.uploads.upload_one().await;
        }
    }
    world.entry(first.clone()).or_default().finishing = true;
    let head = one.finish().await?;
    assert_eq!(Some(head), world[&first].head);
    while spool.uploads.upload_one().await {}
    Ok(())
}

/// Takes up the existing data, and checks that it is the recorded data.
async fn recover_and_check(place: &Directories, world: &World, case: &str) {
    let (spool, recovered) = place.open(None).await.unwrap();
    while spool.uploads.upload_one().await {}
    assert_eq!(spool.waiting(), Waiting::default(), "{case}");
    for (key, known) in world {
        let (lines, head) = place.stored(key).await;
        let all = [known.appended.as_slice(), &known.perhaps].concat();
        assert!(lines == known.appended || lines == all, "{case}: {key}");
        let found = recovered.iter().find(|recovered| &recovered.key == key);
        match found {
            Some(recovered) => {
                assert_eq!(recovered.head, head, "{case}: {key}");
                let header = all.split(|byte| *byte == b'\n').next();
                // The header of an encrypted recording is stored nowhere else, and this one has no header.
                let header = header.filter(|_| place.identity.is_none());
                assert_eq!(recovered.header.as_deref(), header, "{case}");
            }
            None if lines.is_empty() => {}
            None => {
                assert!(known.finishing, "{case}: {key} is recovered");
                assert_eq!(known.head, Some(head), "{case}: {key}");
            }
        }
    }
    for recovered in &recovered {
        spool.forget(&recovered.key).await.unwrap();
    }
    assert_eq!(spool.usage.full().used, 0, "{case}");
    drop(spool);
    let left = files(&place.spool());
    assert_eq!(left, [place.spool().join("lock")], "{case}");
    let (_, recovered) = place.open(None).await.unwrap();
    assert_eq!(recovered, [], "{case}");
    assert_eq!(place.meters.different.get(), 0, "{case}");
    assert_eq!(place.meters.damaged.get(), 0, "{case}");
}

/// Kills the process after `steps` steps on files, and the next process after `again`, if it is set. Returns for each
/// whether it was done before.
async fn killed(mut place: Directories, steps: i64, again: Option<i64>) -> (bool, bool) {
    let mut world = World::new();
    let mut done = false;
    if let Ok((spool, recovered)) = place.open(Some(steps)).await {
        assert_eq!(recovered, []);
        done = record(&spool, &mut world).await.is_ok();
    }
    let mut done_again = true;
    if let Some(again) = again {
        done_again = match place.open(Some(again)).await {
            Ok((spool, recovered)) => {
                while spool.uploads.upload_one().await {}
                let mut forgotten = true;
                for recovered in &recovered {
                    // The head is in the audit trail already: the process that recovers it no longer matters.
                    let known = world.entry(recovered.key.clone()).or_default();
                    known.finishing = true;
                    known.head = Some(recovered.head.clone());
                    forgotten &= spool.forget(&recovered.key).await.is_ok();
                }
                let left = spool.directories.disk.left.as_ref().unwrap();
                forgotten && left.load(std::sync::atomic::Ordering::SeqCst) >= 0
            }
            Err(_) => false,
        };
        // Data that could not be taken up because the process was killed is counted as damaged by a dead process.
        place.meters = SpoolMeters::default();
    }
    recover_and_check(&place, &world, &format!("{steps} steps, then {again:?}")).await;
    (done, done_again)
}

#[tokio::test]
async fn wherever_a_process_is_killed_all_that_was_recorded_is_stored_and_in_the_chain() {
    for new in [Directories::new, Directories::encrypted] {
        let mut steps = 0;
        while !killed(new(), steps, None).await.0 {
            steps += 1;
            assert!(steps < 1000);
        }
        assert!(steps > 50, "there are steps: {steps}");
    }
}

#[tokio::test]
async fn a_process_that_takes_up_what_another_left_may_be_killed_as_well() {
    for (steps, encrypted) in [(16, false), (22, false), (40, false), (24, true)] {
        let new = if encrypted {
            Directories::encrypted
        } else {
            Directories::new
        };
        let mut again = 0;
        while !killed(new(), steps, Some(again)).await.1 {
            again += 1;
            assert!(again < 1000);
        }
    }
}
