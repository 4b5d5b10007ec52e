//! The spool as a whole: the stored part of the recorded data, for a process that is killed at any step, and for every
//! failure of the store.

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

#[tokio::test]
async fn recordings_are_stored_when_unavailable_store_returns() {
    let place = Directories::new();
    let storage = place.storage();
    fs::remove_dir(place.store()).unwrap();
    fs::write(place.store(), "in the way").unwrap();
    let (spool, recovered) = Spool::start(place.options(LIMIT), storage.clone())
        .await
        .unwrap();
    assert_eq!(recovered, []);
    let mut recording = spool.begin(key("0"), "alice");
    for line in ["{}\n", "[1]\n", "[2]\n"] {
        recording.append(line.as_bytes()).await.unwrap();
        recording.seal().await.unwrap();
    }
    let waiting = spool.flush(Duration::ZERO).await.unwrap_err();
    assert!(waiting.parts > 0, "{waiting:?}");
    let failed = || async { Ok((place.meters.failures_of("Unavailable") > 0).then_some(())) };
    eventually("a failed attempt", DEADLINE, failed)
        .await
        .unwrap();
    let waiting = spool.waiting();
    assert_eq!(waiting.parts, 3);
    assert!(waiting.oldest.is_some());
    assert_eq!(waiting.bytes, spool.usage.full().used);
    drop((recording, spool));

    fs::remove_file(place.store()).unwrap();
    let opened = || async {
        Spool::start(place.options(LIMIT), storage.clone())
            .await
            .map(Some)
    };
    let (spool, recovered) = eventually("the lock of the spool", DEADLINE, opened)
        .await
        .unwrap();
    spool.flush(DEADLINE).await.unwrap();
    let (lines, head) = place.stored(&key("0")).await;
    assert_eq!(lines, b"{}\n[1]\n[2]\n");
    let expected = Recovered {
        key: key("0"),
        head,
        header: Some(b"{}".to_vec()),
        recipients: Vec::new(),
    };
    assert_eq!(recovered, [expected]);
}

#[tokio::test]
async fn full_spool_rejects_data_and_keeps_its_content() {
    let place = Directories::new();
    let disk = Disk::default();
    let (spool, _) = Spool::open(&place.options(1000), place.storage(), disk).unwrap();
    let spool = Arc::new(spool);
    let mut recording = spool.begin(key("0"), "alice");
    let line = [vec![b'1'; 99], b"\n".to_vec()].concat();
    for number in 0..10 {
        assert_eq!(spool.room().is_ok(), number < 9, "line {number}");
        recording.append(&line).await.unwrap();
    }
    let error = recording.append(b"\n").await.unwrap_err();
    let full = Full {
        used: 1000,
        limit: 1000,
    };
    assert!(matches!(error, SpoolError::Full(error) if error == full));
    assert_eq!(spool.room(), Err(full));
    // A sealed part replaces the open part.
    recording.seal().await.unwrap();
    assert_eq!(spool.room(), Ok(()));
    recording.append(&line).await.unwrap();
    recording.finish().await.unwrap();
    while spool.uploads.upload_one().await {}
    assert_eq!(spool.usage.full().used, 0);
    assert_eq!(place.stored(&key("0")).await.0, line.repeat(11));
}

#[tokio::test]
async fn part_that_differs_from_stored_object_is_kept_as_evidence() {
    let place = Directories::new();
    let name = key("0").part(0, Form::Plain);
    let put = place.storage().put(&name, "another part".into()).await;
    put.unwrap();
    for start in 1..=2 {
        let (spool, _) = place.open(None).await.unwrap();
        if start == 1 {
            for session in ["0", "1"] {
                let mut recording = spool.begin(key(session), "alice");
                recording.append(b"{}\n").await.unwrap();
                recording.finish().await.unwrap();
            }
        }
        while spool.uploads.upload_one().await {}
        assert_eq!(place.meters.different.get(), start);
        assert_eq!(spool.waiting(), Waiting::default());
        assert!(spool.usage.full().used > 0, "its room is taken");
        let kept = fs::read(place.spool().join(&name)).unwrap();
        assert_eq!(oz_recording::unpack(&kept, 10).unwrap(), b"{}\n");
    }
    let read = place.storage().get(&name, 100).await.unwrap();
    assert_eq!(read.unwrap(), "another part");
    assert_eq!(place.stored(&key("1")).await.0, b"{}\n");
}

#[tokio::test]
async fn damaged_recording_is_left_and_others_are_recovered() {
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let damaged = ["state", "no-state", "file", "gap"];
    for session in [damaged.as_slice(), &["fine"]].concat() {
        let mut recording = spool.begin(key(session), "alice");
        recording.append(b"{}\n").await.unwrap();
        recording.seal().await.unwrap();
    }
    drop(spool);
    let at = |session: &str| place.spool().join(key(session).to_string());
    fs::write(at("state").join("state.json"), "{\"parts\": 7").unwrap();
    fs::remove_file(at("no-state").join("state.json")).unwrap();
    fs::write(at("file").join("README"), "whose is this?").unwrap();
    let part = at("gap").join("000000.cast.zst");
    fs::rename(part, at("gap").join("000007.cast.zst")).unwrap();

    let before = files(&place.spool());
    let (spool, recovered) = place.open(None).await.unwrap();
    let keys: Vec<&SessionKey> = recovered.iter().map(|recovered| &recovered.key).collect();
    assert_eq!(keys, [&key("fine")]);
    assert_eq!(place.meters.damaged.get(), damaged.len() as u64);
    assert_eq!(files(&place.spool()), before);
    while spool.uploads.upload_one().await {}
    assert_eq!(place.stored(&key("fine")).await.0, b"{}\n");
}

#[tokio::test]
async fn spool_is_locked_by_one_process_and_session_by_one_recording() {
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let again = Spool::open(&place.options(LIMIT), place.storage(), Disk::default());
    let error = again.unwrap_err();
    assert!(is_locked(&error), "{error:#}");
    let mut recording = spool.begin(key("0"), "alice");
    recording.append(b"{}\n").await.unwrap();
    let mut same = spool.begin(key("0"), "alice");
    let error = same.append(b"{}\n").await.unwrap_err();
    assert!(matches!(error, SpoolError::Io { .. }), "{error}");
    let head = recording.finish().await.unwrap();
    assert_eq!(head.parts, 1);
}

#[tokio::test]
async fn a_session_without_a_line_leaves_nothing() {
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recording = spool.begin(key("0"), "alice");
    recording.append(b"").await.unwrap();
    let start = Head::start(&key("0").to_string());
    assert_eq!(recording.seal().await.unwrap(), start);
    assert_eq!(recording.finish().await.unwrap(), start);
    assert_eq!(files(&place.spool()), [place.spool().join("lock")]);
}

#[tokio::test]
async fn spool_files_are_accessible_to_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recording = spool.begin(key("0"), "alice");
    for _ in 0..2 {
        recording.append(b"{}\n").await.unwrap();
        recording.seal().await.unwrap();
    }
    recording.append(b"{}\n").await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let below = place.spool().join(key("0").to_string());
    let names = directories::entries(&below).unwrap();
    assert_eq!(names.len(), 4, "{names:?}");
    for path in names {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(mode(&below), 0o700);
    assert_eq!(mode(&place.spool()), 0o700);
}

#[tokio::test(start_paused = true)]
async fn lines_are_on_the_disk_after_a_second_and_not_brought_there_more_often() {
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recording = spool.begin(key("0"), "alice");
    let second = Duration::from_secs(1);
    let mut appended = Vec::new();
    for pause in [0, 1, 100, 300, 700, 50, 5000, 20, 20, 990, 1000, 1, 2500] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        recording.append(b"[1]\n").await.unwrap();
        appended.push(Instant::now());
    }
    tokio::time::sleep(2 * second).await;
    let synced = recording.synced();
    for pair in synced.windows(2) {
        assert!(pair[1] - pair[0] >= second, "{pair:?}");
    }
    for line in appended {
        let next = synced.iter().find(|synced| **synced >= line);
        assert!(*next.unwrap() - line <= second, "{line:?}: {synced:?}");
    }
}

/// Returns the first line of a recording, of a session with a command.
fn header() -> Header {
    Header {
        version: 2,
        width: 80,
        height: 24,
        timestamp: 0,
        oz: About {
            command: vec!["marked-command".to_owned()],
            command_digest: Some("marked-digest".to_owned()),
            request_uid: "a-uid".to_owned(),
            ..crate::tape::tests::about("s")
        },
    }
}

#[tokio::test]
async fn nothing_that_is_encrypted_is_ever_on_the_disk_as_it_was() {
    let place = Directories::encrypted();
    let (spool, _) = place.open(None).await.unwrap();
    let header = serde_json::to_vec(&header()).unwrap();
    let line = b"[1, \"o\", \"marked-output\"]\n";
    let mut recording = spool.begin(key("0"), "alice");
    let appended = [&header, b"\n".as_slice(), line].concat();
    let unmarked = |what: &str| {
        let all = [files(&place.spool()), files(&place.store())].concat();
        assert!(all.len() > 1, "{what}");
        for path in all {
            let bytes = fs::read(&path).unwrap();
            let marked = bytes.windows(6).any(|part| part == b"marked");
            assert!(!marked, "{what}: {}", path.display());
        }
    };
    recording.append(&appended).await.unwrap();
    unmarked("while it is open");
    recording.seal().await.unwrap();
    unmarked("once it is sealed");
    recording.append(line).await.unwrap();
    recording.append(line).await.unwrap();
    drop((recording, spool));
    let (spool, recovered) = place.open(None).await.unwrap();
    unmarked("once it was taken up");
    while spool.uploads.upload_one().await {}
    unmarked("once it is stored");
    let forms: Vec<Form> = files(&place.store())
        .iter()
        .filter_map(|path| PartName::read(path.strip_prefix(place.store()).ok()?.to_str()?))
        .map(|name| name.form)
        .collect();
    assert_eq!(forms, [Form::Encrypted, Form::Frames]);
    let (lines, head) = place.stored(&key("0")).await;
    assert_eq!(lines, [&appended, line.as_slice(), line].concat());
    // The process that takes the recording up knows its user.
    assert_eq!(recovered[0].head, head);
    assert_eq!(recovered[0].recipients, place.options(0).recipients);
    let kept: Header = serde_json::from_slice(recovered[0].header.as_ref().unwrap()).unwrap();
    assert_eq!(
        (kept.oz.user.as_str(), kept.oz.request_uid.as_str()),
        ("alice", "a-uid")
    );
    assert_eq!((kept.oz.command.len(), kept.oz.command_digest), (0, None));
}

#[tokio::test]
async fn recovered_plain_recording_is_encrypted_for_new_recipients() {
    let mut place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recording = spool.begin(key("0"), "alice");
    recording.append(b"{}\n").await.unwrap();
    drop((recording, spool));
    place.identity = Some(Identity::generate().unwrap().0);
    let (spool, recovered) = place.open(None).await.unwrap();
    assert_eq!(recovered.len(), 1);
    while spool.uploads.upload_one().await {}
    assert_eq!(place.stored(&key("0")).await.0, b"{}\n");
}

#[tokio::test]
async fn room_is_counted_as_it_is_taken_also_where_lines_are_encrypted() {
    let place = Directories::encrypted();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recording = spool.begin(key("0"), "alice");
    for _ in 0..10 {
        recording.append(b"[1]\n").await.unwrap();
    }
    let frame = 4 + frames::OVERHEAD as u64;
    assert_eq!(spool.usage.full().used, 10 * frame);
    recording.seal().await.unwrap();
    let sealed = spool.waiting().bytes;
    assert_eq!(spool.usage.full().used, sealed);
    recording.finish().await.unwrap();
    while spool.uploads.upload_one().await {}
    assert_eq!(spool.usage.full().used, 0);
}

#[tokio::test]
async fn recovered_recordings_count_against_share_of_their_user() {
    for new in [Directories::new, Directories::encrypted] {
        let place = new();
        let (spool, _) = place.open(None).await.unwrap();
        let header = [serde_json::to_vec(&header()).unwrap(), b"\n".to_vec()].concat();
        let mut hers = spool.begin(key("0"), "alice");
        hers.append(&header).await.unwrap();
        hers.seal().await.unwrap();
        hers.append(b"[1, \"o\", \"open\"]\n").await.unwrap();
        let mut damaged = spool.begin(key("1"), "alice");
        damaged.append(&header).await.unwrap();
        let mut unknown = spool.begin(key("2"), "carol");
        unknown.append(b"{}\n").await.unwrap();
        let used = |spool: &Spool, user| spool.usage.share(user).used();
        assert!(used(&spool, Some("alice")) > 0 && used(&spool, Some("carol")) > 0);
        drop((hers, damaged, unknown, spool));
        let session = place.spool().join(key("1").to_string());
        fs::write(session.join("README"), "whose is this?").unwrap();

        let (spool, _) = place.open(None).await.unwrap();
        assert_eq!(place.meters.damaged.get(), 1);
        let damaged = size(&session);
        let (alice, nobody) = (used(&spool, Some("alice")), used(&spool, None));
        assert!(alice > damaged && nobody > 0, "{alice}, {nobody}");
        assert_eq!(alice + nobody, spool.usage.full().used);
        assert_eq!(
            used(&spool, Some("carol")),
            0,
            "nothing says that it is hers"
        );
        while spool.uploads.upload_one().await {}
        assert_eq!(used(&spool, Some("alice")), damaged);
        assert_eq!(used(&spool, None), 0);
    }
}

#[tokio::test]
async fn share_includes_open_and_unstored_recordings_of_user() {
    let place = Directories::new();
    let (spool, _) = place.open(None).await.unwrap();
    let mut recordings = ["0", "1"].map(|name| spool.begin(key(name), "alice"));
    let mut bobs = spool.begin(key("2"), "bob");
    let line = [vec![b'1'; 99], b"\n".to_vec()].concat();
    for recording in &mut recordings {
        recording.append(&line).await.unwrap();
    }
    bobs.append(&line).await.unwrap();
    let used = |user| spool.share(user).used();
    assert_eq!((used("alice"), used("bob")), (200, 100));
    let [first, second] = recordings;
    first.finish().await.unwrap();
    assert!(used("alice") < 200, "it was packed");
    assert_eq!(used("bob"), 100);
    while spool.uploads.upload_one().await {}
    assert_eq!((used("alice"), used("bob")), (100, 100));
    second.finish().await.unwrap();
    while spool.uploads.upload_one().await {}
    assert_eq!((used("alice"), used("bob")), (0, 100));
}
