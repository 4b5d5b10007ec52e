//! The recording of an open session: its traffic goes to the recorder, and the recorder's lines to the spool, in
//! parallel to the session. The gate reads more slowly from a side that writes faster than the disk accepts, and from
//! the sessions of a user with recordings that take the user's whole share of the spool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oz_gating::messages::{Piece, RESIZE, STDERR, STDIN, STDOUT};
use oz_gating::recording::{Head, Recorder, Stream};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::spool::{Recording, Share, SpoolError};

/// The interval of the checks for input that waits for its echo, and for the end of a part.
const TICK: Duration = Duration::from_millis(250);
/// The number of bytes of lines that wait for the disk before a writer has to wait.
const MAX_WAITING: usize = 4 << 20;
/// The longest message about the size of a terminal.
const MAX_RESIZE: usize = 256;

/// The tape of the [module](self).
#[derive(Debug)]
pub(crate) struct Tape {
    opened: Instant,
    state: Mutex<State>,
    /// Notifies of lines to write, or of the end of the tape.
    news: Notify,
    /// Notifies of lines that were written.
    written: Notify,
    /// The reason for which no more is recorded.
    broken: watch::Sender<Option<String>>,
    /// The user's share of the spool.
    share: Arc<Share>,
    /// The number of messages that the tape has received.
    heard: AtomicU64,
    /// True if the session must be recorded.
    required: bool,
}

#[derive(Debug)]
struct State {
    recorder: Recorder,
    /// The number of bytes of lines that the share counts as expected.
    expected: usize,
    /// The number of pieces, and how many of them are in the spool.
    said: u64,
    kept: u64,
    over: bool,
}

/// The state of the open part at the time when its lines were taken.
#[derive(Clone, Copy)]
struct PartSoFar {
    is_begun: bool,
    is_full: bool,
}

/// The task that writes a tape; it runs until the tape ends.
pub(crate) struct Writer {
    task: JoinHandle<Recording>,
    tape: Arc<Tape>,
}

/// The size of a terminal, as clients write it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    #[serde(alias = "width")]
    width: u16,
    #[serde(alias = "height")]
    height: u16,
}

fn read_size(message: &[u8]) -> Option<Size> {
    let message = Some(message).filter(|bytes| bytes.len() <= MAX_RESIZE)?;
    serde_json::from_slice(message).ok()
}

/// Reads the size of a terminal, columns and rows, from a message about it.
pub(crate) fn size(piece: Piece<'_>) -> Option<(u16, u16)> {
    read_size(piece.bytes).map(|size| (size.width, size.height))
}

/// Returns the content of a resize message in the form that the gate sends; `None` if the message is not exactly one
/// size. The API server accepts several sizes in one message and other spellings, which the gate does not record.
pub(crate) fn normal_size(message: &[u8]) -> Option<Vec<u8>> {
    serde_json::to_vec(&read_size(message)?).ok()
}

/// Returns the stream of a channel in one direction, if the channel carries input or output.
pub(crate) fn stream(inward: bool, channel: u8) -> Option<Stream> {
    match (inward, channel) {
        (true, STDIN) => Some(Stream::Stdin),
        (false, STDOUT) => Some(Stream::Stdout),
        (false, STDERR) => Some(Stream::Stderr),
        _ => None,
    }
}

impl Tape {
    /// Begins a recording, and writes its first line. If it is `required`, the session passes no data that is not
    /// recorded.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub(crate) async fn begin(
        mut recorder: Recorder,
        mut recording: Recording,
        required: bool,
    ) -> Result<Writer, SpoolError> {
        recorder.mark(Duration::ZERO, "the session was opened");
        recording.append(&recorder.take()).await?;
        let tape = Arc::new(Self {
            opened: Instant::now(),
            state: Mutex::new(State {
                recorder,
                expected: 0,
                said: 0,
                kept: 0,
                over: false,
            }),
            news: Notify::new(),
            written: Notify::new(),
            broken: watch::Sender::new(None),
            share: Arc::clone(recording.share()),
            heard: AtomicU64::new(0),
            required,
        });
        let task = tokio::spawn(Arc::clone(&tape).write(recording));
        Ok(Writer { task, tape })
    }

    /// Records data that the user sent (`inward`) or received.
    pub(crate) fn said(&self, inward: bool, piece: Piece<'_>) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        if inward && piece.channel == RESIZE {
            return self.resized(piece);
        }
        let Some(stream) = stream(inward, piece.channel) else {
            return;
        };
        if piece.bytes.is_empty() || self.is_broken() {
            return;
        }
        let at = self.opened.elapsed();
        let mut state = self.state();
        state.recorder.passed(at, stream, piece.bytes);
        state.said += 1;
        self.expects(&mut state);
        drop(state);
        self.news.notify_one();
    }

    fn resized(&self, piece: Piece<'_>) {
        if let Some((columns, rows)) = size(piece) {
            let mut state = self.state();
            state.recorder.resized(self.opened.elapsed(), columns, rows);
            self.expects(&mut state);
            self.news.notify_one();
        }
    }

    /// Counts the lines that were added since the last call in the user's share.
    fn expects(&self, state: &mut State) {
        let waiting = state.recorder.waiting();
        self.share.expects(waiting.saturating_sub(state.expected));
        state.expected = waiting;
    }

    /// Waits for room in memory and in the user's share of the spool. Never returns if the recording is required and has
    /// failed: the session is about to end.
    pub(crate) async fn room(&self) {
        loop {
            let (written, changed) = (self.written.notified(), self.share.changed());
            if self.is_broken() {
                return self.without().await;
            }
            let waits_for_disk = self.state().recorder.waiting() >= MAX_WAITING;
            if !waits_for_disk && !self.share.is_full() {
                return;
            }
            tokio::select! {
                () = written => {}
                () = changed => {}
            }
        }
    }

    /// Waits until the spool has all pieces so far, if the recording is required: after a killed process or a failed
    /// disk, the recording contains all input that has reached the pod.
    pub(crate) async fn kept(&self) {
        if !self.required {
            return;
        }
        let wanted = self.state().said;
        loop {
            let written = self.written.notified();
            if self.is_broken() {
                return self.without().await;
            }
            if self.state().kept >= wanted {
                return;
            }
            written.await;
        }
    }

    /// Returns if the session may continue without a recording.
    async fn without(&self) {
        if self.required {
            std::future::pending().await
        }
    }

    /// Waits until the session is slowed down because recordings of its user take their whole share of the spool.
    pub(crate) async fn slowed(&self) {
        loop {
            let changed = self.share.changed();
            if self.is_slowed() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the session is not slowed down.
    pub(crate) async fn resumed(&self) {
        loop {
            let (written, changed) = (self.written.notified(), self.share.changed());
            if !self.is_slowed() {
                return;
            }
            tokio::select! {
                () = written => {}
                () = changed => {}
            }
        }
    }

    /// Checks whether the session is slowed down. A session that is no longer recorded is not.
    fn is_slowed(&self) -> bool {
        self.share.is_full() && !self.is_broken()
    }

    /// Waits until no more is recorded, and returns the reason.
    pub(crate) async fn broken(&self) -> String {
        let mut broken = self.broken.subscribe();
        let why = broken.wait_for(Option::is_some).await.ok();
        let why = why.and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // The sender lives as long as the tape.
            None => std::future::pending().await,
        }
    }

    fn is_broken(&self) -> bool {
        self.broken.borrow().is_some()
    }

    async fn write(self: Arc<Self>, mut recording: Recording) -> Recording {
        loop {
            let (lines, part, over, said) = {
                let at = self.opened.elapsed();
                let mut state = self.state();
                state.recorder.tick(at);
                self.expects(&mut state);
                state.expected = 0;
                let part = PartSoFar {
                    is_begun: state.recorder.is_begun(),
                    is_full: state.recorder.is_full(at),
                };
                (state.recorder.take(), part, state.over, state.said)
            };
            let goes_on = !self.is_broken();
            self.share.came(lines.len());
            if goes_on && let Err(error) = self.put(&mut recording, &lines, part).await {
                tracing::warn!(%error, "the recording of a session failed");
                self.broken.send_replace(Some(error.to_string()));
            }
            self.state().kept = said;
            self.written.notify_waiters();
            if over {
                return recording;
            }
            tokio::select! {
                () = self.news.notified() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    async fn put(
        &self,
        recording: &mut Recording,
        lines: &[u8],
        part: PartSoFar,
    ) -> Result<(), SpoolError> {
        recording.append(lines).await?;
        // The open part is stored at once if its user has no room for more.
        if part.is_full || part.is_begun && self.share.is_full() {
            let head = recording.seal().await?;
            let at = self.opened.elapsed();
            self.state().recorder.next_part(at, &head);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The result of a tape.
pub(crate) struct Ended {
    /// The recording, to be finished once its head is in the audit trail.
    pub(crate) recording: Recording,
    /// The head of the stored parts, if the last part could be sealed.
    pub(crate) head: Result<Head, SpoolError>,
    /// The reason for which the tape ended before the session.
    pub(crate) broken: Option<String>,
    /// True if the tape has received any message.
    pub(crate) heard: bool,
}

impl Writer {
    /// Returns the tape, which receives the traffic.
    pub(crate) fn tape(&self) -> &Arc<Tape> {
        &self.tape
    }

    /// Discards the recording of a session that was not opened.
    pub(crate) async fn discard(self) {
        self.tape.state().over = true;
        self.tape.news.notify_one();
        let Ok(recording) = self.task.await else {
            return;
        };
        if let Err(error) = recording.discard().await {
            tracing::warn!(%error, "failed to remove the recording of a session that was not opened");
        }
    }

    /// Ends the tape with a line about the end; `None` if its task has ended, which happens only with the process.
    pub(crate) async fn end(self, why: &str) -> Option<Ended> {
        {
            let at = self.tape.opened.elapsed();
            let mut state = self.tape.state();
            state.recorder.end(at, why);
            state.over = true;
        }
        self.tape.news.notify_one();
        let mut recording = self.task.await.ok()?;
        let head = recording.seal().await;
        let broken = self.tape.broken.borrow().clone();
        Some(Ended {
            recording,
            head,
            broken,
            heard: self.tape.heard.load(Ordering::Relaxed) > 0,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use futures::FutureExt as _;
    use jiff::Timestamp;
    use oz_api::{RecordedInput, RecordingConfig, RecordingMode};
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
}
