//! The recording of a session: kept data, waiting data, and failures.

use futures::FutureExt as _;
use jiff::Timestamp;
use oz_api::{RecordedInput, RecordingConfig, RecordingMode};
use oz_gating::messages::{STDIN, STDOUT};
use oz_gating::recording::{About, Code, Event, Form, Part, PartName, SessionKey};

use super::*;
use crate::spool::{Spool, SpoolMeters, SpoolOptions};
use crate::storage::{S3Options, Storage};

/// Creates a spool of the given capacity, its storage, and a recorder of all data.
pub(crate) async fn place(
    directory: &std::path::Path,
    limit: u64,
) -> (Arc<Spool>, Storage, Recorder, SessionKey) {
    let key = SessionKey::read("default/mine/s-1").unwrap();
    let url = format!("file://{}/store", directory.display());
    let storage = Storage::new(&url, &S3Options::default()).unwrap();
    let options = SpoolOptions {
        directory: directory.join("spool"),
        limit,
        recipients: Vec::new(),
        meters: SpoolMeters::default(),
    };
    let (spool, _) = Spool::start(options, storage.clone()).await.unwrap();
    let recorder = Recorder::new(about(&key.to_string()), &config());
    (spool, storage, recorder, key)
}

fn config() -> RecordingConfig {
    RecordingConfig {
        mode: RecordingMode::Required,
        input: RecordedInput::All,
        non_interactive: None,
    }
}

/// Returns the data of a session of alice on a terminal.
pub(crate) fn about(session: &str) -> About {
    About {
        session: session.to_owned(),
        request_uid: String::new(),
        request_kind: String::new(),
        user: "alice".to_owned(),
        user_uid: String::new(),
        pod: String::new(),
        pod_uid: String::new(),
        container: None,
        way: "exec".to_owned(),
        tty: true,
        command: Vec::new(),
        command_digest: None,
        opened_at: Timestamp::UNIX_EPOCH,
        part: 0,
        previous: String::new(),
    }
}

pub(crate) fn piece(channel: u8, bytes: &[u8]) -> Piece<'_> {
    Piece { channel, bytes }
}

/// Returns the stored events of the session with this head.
async fn stored(storage: &Storage, key: &SessionKey, head: &Head) -> Vec<Event> {
    let (mut events, mut expected) = (Vec::new(), Head::start(&key.to_string()));
    for number in 0..head.parts {
        let name = key.part(number, Form::Plain);
        let bytes = storage.get(&name, 16 << 20).await.unwrap().unwrap();
        let part = Part::read(&oz_recording::unpack(&bytes, 64 << 20).unwrap()).unwrap();
        assert_eq!(part.header.oz.previous, expected.digest);
        expected = expected.after(&bytes);
        events.extend(part.events);
        assert!(PartName::read(&name).is_some());
    }
    assert_eq!(&expected, head);
    events
}

fn text(events: &[Event], code: Code) -> String {
    let of_it = events.iter().filter(|event| event.1 == code);
    of_it.map(|event| event.2.as_str()).collect()
}

/// Returns letters that packing hardly shortens.
fn letters(seed: &mut u64, count: usize) -> String {
    let next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'0' + u8::try_from(*seed >> 58).unwrap())
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[tokio::test]
async fn session_traffic_is_stored_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let (spool, storage, recorder, key) = place(directory.path(), 64 << 20).await;
    let writer = Tape::begin(recorder, spool.begin(key.clone(), "alice"), false)
        .await
        .unwrap();
    let tape = Arc::clone(writer.tape());
    tape.said(true, piece(RESIZE, br#"{"Width":100,"Height":30}"#));
    tape.said(true, piece(STDIN, b"ls\r"));
    // Data on a channel of the other direction, or on an unknown channel, is not recorded.
    tape.said(true, piece(STDOUT, b"forged"));
    tape.said(false, piece(9, b"forged"));
    // The data is larger than a part.
    for _ in 0..3 {
        tape.room().await;
        tape.said(false, piece(STDOUT, &[b'x'; 3 << 20]));
    }
    let ended = writer.end("over").await.unwrap();
    let head = ended.head.unwrap();
    assert_eq!(ended.broken, None);
    ended.recording.finish().await.unwrap();
    assert!(spool.flush(Duration::from_secs(60)).await.is_ok());
    let events = stored(&storage, &key, &head).await;
    assert!(head.parts >= 2, "{}", head.parts);
    let all = |code| text(&events, code);
    assert_eq!(all(Code::Input), "ls\r");
    assert_eq!(all(Code::Resize), "100x30");
    assert_eq!(all(Code::Output), "x".repeat(9 << 20));
    assert!(all(Code::Mark).ends_with("oz: over"));
}

#[tokio::test(start_paused = true)]
async fn session_of_user_without_share_waits_and_others_continue() {
    const LIMIT: u64 = 8 << 20;
    let second = Duration::from_secs(1);
    let directory = tempfile::tempdir().unwrap();
    let (spool, storage, recorder, key) = place(directory.path(), LIMIT).await;
    // The store is unavailable.
    let store = directory.path().join("store");
    std::fs::remove_dir(&store).unwrap();
    std::fs::write(&store, "in the way").unwrap();
    let begin = async |recorder, key: &SessionKey, user| {
        let begun = Tape::begin(recorder, spool.begin(key.clone(), user), false);
        begun.await.unwrap()
    };
    let writer = begin(recorder, &key, "alice").await;
    let tape = Arc::clone(writer.tape());
    let (mut said, mut seed) = (String::new(), 1);
    while tokio::time::timeout(second, tape.room()).await.is_ok() {
        let more = letters(&mut seed, 32 << 10);
        tape.said(false, piece(STDOUT, more.as_bytes()));
        said.push_str(&more);
        assert!(said.len() < 16 << 20, "nothing slows it down");
    }
    tape.slowed().await;
    let used = spool.share("alice").used();
    assert!(used > LIMIT / 8 - (256 << 10), "{used} bytes of her share");
    assert!(
        used < LIMIT / 8 + (64 << 10),
        "{used} bytes are more than her share"
    );
    // Another session of hers is not read from either, but the data that it receives nevertheless is recorded.
    let other = SessionKey::read("default/mine/s-2").unwrap();
    let theirs = SessionKey::read("default/mine/s-3").unwrap();
    let recorder = |key: &SessionKey| Recorder::new(about(&key.to_string()), &config());
    let hers = begin(recorder(&other), &other, "alice").await;
    let waits = tokio::time::timeout(second, hers.tape().room()).await;
    assert!(waits.is_err(), "a session is read from beyond the share");
    hers.tape().said(false, piece(STDOUT, b"said all the same"));
    let bobs = begin(recorder(&theirs), &theirs, "bob").await;
    for _ in 0..8 {
        let room = tokio::time::timeout(second, bobs.tape().room()).await;
        assert!(room.is_ok(), "bob waits for alice");
        bobs.tape().said(false, piece(STDOUT, b"bob's"));
    }
    // The store is available again, and both sessions continue.
    std::fs::remove_file(&store).unwrap();
    let minutes = Duration::from_secs(600);
    for tape in [&tape, hers.tape()] {
        tokio::time::timeout(minutes, tape.resumed()).await.unwrap();
        tape.room().await;
    }
    tape.said(false, piece(STDOUT, b"the end"));
    said.push_str("the end");
    for (writer, key, expected) in [
        (writer, &key, said.as_str()),
        (hers, &other, "said all the same"),
        (bobs, &theirs, &"bob's".repeat(8)),
    ] {
        let ended = writer.end("over").await.unwrap();
        assert_eq!(ended.broken, None);
        let head = ended.head.unwrap();
        ended.recording.finish().await.unwrap();
        assert!(spool.flush(minutes).await.is_ok());
        let events = stored(&storage, key, &head).await;
        assert!(text(&events, Code::Output) == expected, "{key}");
    }
    assert_eq!(spool.share("alice").used(), 0);
}

#[tokio::test]
async fn full_spool_breaks_recording_without_blocking_session() {
    let directory = tempfile::tempdir().unwrap();
    let (spool, _storage, recorder, key) = place(directory.path(), 1 << 20).await;
    let writer = Tape::begin(recorder, spool.begin(key, "alice"), false)
        .await
        .unwrap();
    let tape = Arc::clone(writer.tape());
    tape.said(false, piece(STDOUT, b"seen"));
    for _ in 0..3 {
        tape.room().await;
        tape.said(false, piece(STDOUT, &[b'x'; 3 << 20]));
    }
    let why = tape.broken().await;
    assert!(why.contains("gate.recordings.spool.mebibytes"), "{why}");
    tape.room().await;
    let ended = writer.end("over").await.unwrap();
    assert_eq!(ended.broken, Some(why));
    // The earlier data is kept.
    assert_eq!(ended.head.unwrap().parts, 1);
}

#[tokio::test]
async fn required_tape_lets_nothing_pass_that_is_not_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (spool, _storage, recorder, key) = place(directory.path(), 1 << 20).await;
    let writer = Tape::begin(recorder, spool.begin(key.clone(), "alice"), true)
        .await
        .unwrap();
    let tape = Arc::clone(writer.tape());
    tape.said(true, piece(STDIN, b"rm -rf /data"));
    tape.kept().await;
    let open = directory.path().join("spool").join(key.to_string());
    let open = std::fs::read_dir(open).unwrap().flatten();
    let mut texts = open.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default());
    assert!(texts.any(|text| text.contains("rm -rf /data")));
    // Once the tape is broken, it lets no data pass until the session has ended.
    for _ in 0..3 {
        if tape.room().now_or_never().is_some() {
            tape.said(true, piece(STDIN, &[b'x'; 3 << 20]));
        }
    }
    tape.broken().await;
    assert_eq!(tape.room().now_or_never(), None);
    assert_eq!(tape.kept().now_or_never(), None);
    assert!(writer.end("over").await.unwrap().broken.is_some());
}

#[tokio::test]
async fn recording_that_is_discarded_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (spool, _storage, recorder, key) = place(directory.path(), 1 << 20).await;
    let begun = Tape::begin(recorder, spool.begin(key.clone(), "alice"), true);
    let writer = begun.await.unwrap();
    let place = directory.path().join("spool").join(key.to_string());
    assert!(place.exists() && spool.share("alice").used() > 0);
    writer.discard().await;
    assert!(!place.exists());
    assert_eq!(spool.share("alice").used(), 0);
}

#[test]
fn size_is_passed_on_as_it_was_read_or_not_at_all() {
    let normal = br#"{"Width":100,"Height":30}"#;
    for text in [
        r#"{"Width":100,"Height":30}"#,
        "{\"Height\": 30, \"Width\": 100}\n",
        r#"{"width":100,"height":30}"#,
    ] {
        assert_eq!(
            normal_size(text.as_bytes()).as_deref(),
            Some(&normal[..]),
            "{text}"
        );
    }
    for text in [
        "",
        r#"{"Width":100,"Height":30}{"Width":500,"Height":90}"#,
        r#"{"WIDTH":100,"HEIGHT":30}"#,
        r#"{"Width":100,"#,
        r#"{"Width":-1,"Height":30}"#,
        r#"{"Width":100,"Height":30,"width":500}"#,
    ] {
        assert_eq!(normal_size(text.as_bytes()), None, "{text}");
    }
}
