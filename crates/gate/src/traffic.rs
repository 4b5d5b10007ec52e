//! The traffic of an open session for its observers: the number of bytes, and, for viewers, the lines of a recording
//! that is not stored. A slow viewer misses some lines and reads how many. The session does not wait for its viewers,
//! unless a moderator is required: then it waits for all of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hyper::body::Bytes;
use oz_api::{NonInteractive, RecordingConfig};
use oz_gating::messages::{Piece, RESIZE};
use oz_gating::recording::{About, Code, Event, Header, Recorder};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;

use crate::tape::{size, stream};

/// The number of pieces that wait for one viewer. A piece is the data that was sent at once: at most the data of one
/// message.
const MAX_WAITING: usize = 64;
/// The number of unread pieces at which a session that requires a moderator waits. The difference to [`MAX_WAITING`] is
/// larger than the number of pieces that both directions and oz itself can add at one time.
const MAX_UNSEEN: usize = MAX_WAITING / 2;
/// The number of words that wait to be sent to the user.
const MAX_WORDS: usize = 16;
/// The assumed size of a terminal until the client reports its size.
const SIZE: (u16, u16) = (80, 24);

/// The traffic of the [module](self).
#[derive(Debug)]
pub(crate) struct Traffic {
    inward: AtomicU64,
    outward: AtomicU64,
    opened: Instant,
    /// True if the session has a viewer: without viewers, no lines are made.
    watched: AtomicBool,
    feed: Mutex<Feed>,
    words: Mutex<VecDeque<Word>>,
    news: Notify,
    /// True while no data passes.
    held: watch::Sender<bool>,
    /// True if a moderator is required: then the session waits for slow viewers.
    must_be_seen: bool,
    /// Notifies the session that a viewer has read a line or has left.
    seen: Notify,
}

/// A message of oz to the client of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// A line for the user.
    Line(String),
    /// A sign that the other side is still connected.
    Alive,
}

#[derive(Debug)]
struct Feed {
    size: (u16, u16),
    watching: Option<Watching>,
    over: bool,
}

/// The state while the session has a viewer.
#[derive(Debug)]
struct Watching {
    viewers: usize,
    tty: bool,
    recorder: Recorder,
    lines: broadcast::Sender<Bytes>,
}

impl Watching {
    fn publish(&mut self) {
        let lines = self.recorder.take();
        if !lines.is_empty() {
            // The send fails only while the last viewer leaves.
            let _ = self.lines.send(lines.into());
        }
    }
}

/// The stream for one viewer.
#[derive(Debug)]
pub(crate) struct View {
    /// The first line.
    pub(crate) header: Bytes,
    /// The other lines.
    pub(crate) lines: broadcast::Receiver<Bytes>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            inward: AtomicU64::new(0),
            outward: AtomicU64::new(0),
            opened: Instant::now(),
            watched: AtomicBool::new(false),
            feed: Mutex::new(Feed {
                size: SIZE,
                watching: None,
                over: false,
            }),
            words: Mutex::default(),
            news: Notify::new(),
            held: watch::Sender::new(false),
            must_be_seen: false,
            seen: Notify::new(),
        }
    }
}

impl Traffic {
    /// Creates the traffic of a session that requires a moderator.
    pub(crate) fn moderated() -> Self {
        Self {
            must_be_seen: true,
            ..Self::default()
        }
    }

    /// Counts bytes that passed from the user (`inward`) or to the user.
    pub(crate) fn passed(&self, inward: bool, bytes: usize) {
        let counter = if inward { &self.inward } else { &self.outward };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the number of bytes that passed from the user and to the user.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.inward), read(&self.outward))
    }

    /// Passes on data that the user sent (`inward`) or received to the viewers.
    pub(crate) fn said(&self, inward: bool, piece: Piece<'_>) {
        if inward && piece.channel == RESIZE {
            if let Some((columns, rows)) = size(piece) {
                let mut feed = self.feed();
                feed.size = (columns, rows);
                if let Some(watching) = &mut feed.watching {
                    watching
                        .recorder
                        .resized(self.opened.elapsed(), columns, rows);
                    watching.publish();
                }
            }
            return;
        }
        if !self.watched.load(Ordering::Relaxed) || piece.bytes.is_empty() {
            return;
        }
        let Some(stream) = stream(inward, piece.channel) else {
            return;
        };
        let at = self.opened.elapsed();
        if let Some(watching) = &mut self.feed().watching {
            watching.recorder.passed(at, stream, piece.bytes);
            watching.publish();
        }
    }

    /// Advances the time: input that was not echoed is shown as such.
    pub(crate) fn tick(&self) {
        let at = self.opened.elapsed();
        if let Some(watching) = &mut self.feed().watching {
            watching.recorder.tick(at);
            watching.publish();
        }
    }

    /// Begins to watch; `None` if the session has ended. [`Traffic::left`] is called for each viewer that began.
    pub(crate) fn watch(&self, about: &About, config: &RecordingConfig) -> Option<View> {
        let at = self.opened.elapsed();
        let mut feed = self.feed();
        if feed.over {
            return None;
        }
        let (width, height) = feed.size;
        let watching = feed.watching.get_or_insert_with(|| {
            let config = RecordingConfig {
                // A viewer sees all of the data, regardless of how much of it the recording keeps.
                non_interactive: Some(NonInteractive::All),
                ..*config
            };
            let mut recorder = Recorder::new(about.clone(), &config);
            recorder.resized(at, width, height);
            // Each viewer receives a separate header.
            recorder.mark(at, "");
            let _ = recorder.take();
            Watching {
                viewers: 0,
                tty: about.tty,
                recorder,
                lines: broadcast::Sender::new(MAX_WAITING),
            }
        });
        watching.viewers += 1;
        let lines = watching.lines.subscribe();
        self.watched.store(true, Ordering::Relaxed);
        let header = Header {
            version: 2,
            width,
            height,
            timestamp: about.opened_at.as_second(),
            oz: about.clone(),
        };
        let header = line(&header);
        Some(View { header, lines })
    }

    /// Records that a viewer has left.
    pub(crate) fn left(&self) {
        let mut feed = self.feed();
        let Some(watching) = &mut feed.watching else {
            return;
        };
        watching.viewers = watching.viewers.saturating_sub(1);
        if watching.viewers == 0 {
            feed.watching = None;
            self.watched.store(false, Ordering::Relaxed);
        }
        drop(feed);
        self.taken();
    }

    /// Ends the session: viewers receive the given reason, and no more viewers are accepted.
    pub(crate) fn end(&self, how: &str) {
        let at = self.opened.elapsed();
        let mut feed = self.feed();
        feed.over = true;
        self.watched.store(false, Ordering::Relaxed);
        if let Some(mut watching) = feed.watching.take() {
            if watching.tty {
                watching.recorder.end(at, how);
            } else {
                // The recorder's end would describe only the part of the streams that was watched.
                watching.recorder.mark(at, how);
            }
            watching.publish();
        }
    }

    /// Returns a line of oz for a viewer, with the current time.
    pub(crate) fn mark(&self, text: &str) -> Bytes {
        line(&Event::new(
            self.opened.elapsed(),
            Code::Mark,
            format!("oz: {text}"),
        ))
    }

    /// Queues a line for the user of the session.
    pub(crate) fn tell(&self, text: String) {
        self.say(Word::Line(text));
    }

    /// Queues a sign for the client that the other side is still connected.
    pub(crate) fn alive(&self) {
        self.say(Word::Alive);
    }

    fn say(&self, word: Word) {
        let mut words = self.words.lock();
        if words.len() < MAX_WORDS {
            words.push_back(word);
        }
        drop(words);
        self.news.notify_one();
    }

    /// Waits for the next message to the user.
    pub(crate) async fn word(&self) -> Word {
        loop {
            let next = {
                let mut words = self.words.lock();
                words.pop_front()
            };
            match next {
                Some(word) => return word,
                None => self.news.notified().await,
            }
        }
    }

    /// Stops all data, or lets it pass again.
    pub(crate) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Checks whether all data is stopped.
    pub(crate) fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    /// Waits until data may pass.
    pub(crate) async fn flows(&self) {
        loop {
            if self.is_held() {
                // The sender lives as long as this value.
                let _ = self.held.subscribe().wait_for(|held| !held).await;
            }
            let seen = self.seen.notified();
            if !self.must_be_seen || self.unseen() < MAX_UNSEEN {
                return;
            }
            seen.await;
        }
    }

    /// Returns the number of pieces that the slowest viewer has not read.
    fn unseen(&self) -> usize {
        let feed = self.feed();
        feed.watching.as_ref().map_or(0, |it| it.lines.len())
    }

    /// Reports that a viewer has read a piece.
    pub(crate) fn taken(&self) {
        self.seen.notify_waiters();
    }

    fn feed(&self) -> MutexGuard<'_, Feed> {
        self.feed.lock()
    }
}

fn line(line: &impl serde::Serialize) -> Bytes {
    // The serialization cannot fail: the types are plain, and the destination is memory.
    let mut bytes = Vec::new();
    let _ = serde_json::to_writer(&mut bytes, line);
    bytes.push(b'\n');
    bytes.into()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use oz_api::{RecordedInput, RecordingMode};
    use oz_gating::messages::{STDIN, STDOUT};
    use oz_gating::recording::Part;
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;
    use crate::tape::tests::{self as tape, piece};

    const CONFIG: RecordingConfig = RecordingConfig {
        mode: RecordingMode::BestEffort,
        input: RecordedInput::Echoed,
        non_interactive: Some(NonInteractive::All),
    };

    fn about() -> About {
        tape::about("default/mine/s-1")
    }

    fn all(view: &mut View) -> Part {
        let mut text = view.header.to_vec();
        while let Ok(lines) = view.lines.try_recv() {
            text.extend(lines);
        }
        Part::read(&text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn viewer_sees_traffic_from_joining_and_no_password() {
        let traffic = Traffic::default();
        traffic.said(true, piece(RESIZE, br#"{"Width":100,"Height":30}"#));
        traffic.said(false, piece(STDOUT, b"before"));
        let mut bob = traffic.watch(&about(), &CONFIG).unwrap();
        traffic.said(true, piece(STDIN, b"ls\r"));
        traffic.said(false, piece(STDOUT, b"ls\r\nPassword: "));
        traffic.said(true, piece(STDIN, b"hunter2"));
        let mut carol = traffic.watch(&about(), &CONFIG).unwrap();
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        traffic.tick();
        traffic.end("over");
        let part = all(&mut bob);
        assert_eq!((part.header.width, part.header.height), (100, 30));
        let shown: Vec<_> = part
            .events
            .iter()
            .map(|event| (event.1, event.2.as_str()))
            .collect();
        let hidden = "\u{2039}7 characters not shown\u{203a}";
        assert_eq!(
            shown,
            [
                (Code::Input, "ls\r"),
                (Code::Output, "ls\r\nPassword: "),
                (Code::Input, hidden),
                (Code::Mark, "oz: over"),
            ]
        );
        assert_eq!(bob.lines.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(all(&mut carol).events.len(), 2);
        assert!(traffic.watch(&about(), &CONFIG).is_none());
    }

    #[tokio::test]
    async fn view_of_a_session_without_a_terminal_has_what_its_recording_leaves_out() {
        let traffic = Traffic::default();
        let about = About {
            tty: false,
            ..about()
        };
        let config = RecordingConfig {
            non_interactive: Some(NonInteractive::Digest),
            ..CONFIG
        };
        let mut view = traffic.watch(&about, &config).unwrap();
        let pieces = [vec![b'x'; 64 << 10], b"rm -rf /data".to_vec()];
        // The data is larger than a digest keeps, and the viewer reads during it.
        let mut seen = 0;
        for bytes in pieces.iter().cycle().take(50) {
            traffic.said(false, piece(STDOUT, bytes));
            seen += all(&mut view)
                .events
                .iter()
                .map(|event| event.2.len())
                .sum::<usize>();
        }
        let said: usize = pieces.iter().map(Vec::len).sum::<usize>() * 25;
        assert_eq!(seen, said);
    }

    #[tokio::test]
    async fn slow_viewer_misses_lines_beyond_buffer() {
        let traffic = Traffic::default();
        let mut slow = traffic.watch(&about(), &CONFIG).unwrap();
        for _ in 0..1_000 {
            traffic.said(false, piece(STDOUT, &[b'x'; 1_000]));
        }
        let missed = 1_000 - MAX_WAITING as u64;
        assert_eq!(slow.lines.try_recv(), Err(TryRecvError::Lagged(missed)));
        assert!(slow.lines.try_recv().is_ok());
        traffic.left();
        assert!(!traffic.watched.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn words_are_said_in_their_order() {
        let traffic = Traffic::default();
        traffic.tell("one".to_owned());
        traffic.tell("two".to_owned());
        let said = [traffic.word().await, traffic.word().await];
        let line = |text: &str| Word::Line(text.to_owned());
        assert_eq!(said, [line("one"), line("two")]);
    }

    #[tokio::test]
    async fn session_that_must_be_watched_waits_for_who_watches() {
        let traffic = Traffic::moderated();
        let mut view = traffic.watch(&about(), &CONFIG).unwrap();
        let mut passed = 0;
        while traffic.flows().now_or_never().is_some() {
            traffic.said(false, piece(STDOUT, b"x"));
            passed += 1;
        }
        assert_eq!(passed, MAX_UNSEEN);
        // The session continues as soon as the viewer takes a piece, and the viewer misses nothing.
        let flows = traffic.flows();
        let takes = async {
            let line = view.lines.recv().await;
            traffic.taken();
            line
        };
        let ((), line) = tokio::join!(flows, takes);
        assert!(line.is_ok());
        while view.lines.try_recv().is_ok() {
            passed -= 1;
        }
        assert_eq!(passed, 1);
        // The session does not wait for a viewer who has left.
        for _ in 0..MAX_UNSEEN {
            traffic.said(false, piece(STDOUT, b"x"));
        }
        drop(view);
        traffic.left();
        traffic.flows().await;
    }
}
