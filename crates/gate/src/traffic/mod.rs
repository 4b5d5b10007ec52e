//! The traffic of an open session for its observers: the number of bytes, and, for viewers, the lines of a recording
//! that is not stored. A slow viewer misses some lines and reads how many. The session does not wait for its viewers,
//! unless a moderator is required: then it waits for all of them.

mod words;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hyper::body::Bytes;
use oz_api::{NonInteractive, RecordingConfig};
use oz_gating::messages::{Piece, RESIZE};
use oz_gating::recording::{About, Code, Event, Header, Recorder};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;

pub(crate) use self::words::Word;
use self::words::Words;
use crate::tape::{size, stream};

/// The number of pieces that wait for one viewer. A piece is the data that was sent at once: at most the data of one
/// message.
const MAX_WAITING: usize = 64;
/// The number of unread pieces at which a session that requires a moderator waits. The difference to [`MAX_WAITING`] is
/// larger than the number of pieces that both directions and oz itself can add at one time.
const MAX_UNSEEN: usize = MAX_WAITING / 2;
/// The assumed size of a terminal until the client reports its size.
const SIZE: (u16, u16) = (80, 24);

/// The traffic of the [module](self).
#[derive(Debug)]
pub(crate) struct Traffic {
    bytes: Counters,
    opened: Instant,
    /// True if the session has a viewer: without viewers, no lines are made.
    watched: AtomicBool,
    feed: Mutex<Feed>,
    words: Words,
    /// True while no data passes.
    held: watch::Sender<bool>,
    /// True if a moderator is required: then the session waits for slow viewers.
    must_be_seen: bool,
    /// Notifies the session that a viewer has read a line or has left.
    seen: Notify,
}

/// The number of bytes that passed from the user and to the user.
#[derive(Debug, Default)]
struct Counters {
    inward: AtomicU64,
    outward: AtomicU64,
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
            bytes: Counters::default(),
            opened: Instant::now(),
            watched: AtomicBool::new(false),
            feed: Mutex::new(Feed {
                size: SIZE,
                watching: None,
                over: false,
            }),
            words: Words::default(),
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
        let counter = if inward {
            &self.bytes.inward
        } else {
            &self.bytes.outward
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the number of bytes that passed from the user and to the user.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.bytes.inward), read(&self.bytes.outward))
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
        self.words.say(Word::Line(text));
    }

    /// Queues a sign for the client that the other side is still connected.
    pub(crate) fn alive(&self) {
        self.words.say(Word::Alive);
    }

    /// Waits for the next message to the user.
    pub(crate) async fn word(&self) -> Word {
        self.words.next().await
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
mod tests;
