//! The recording of an open session: its traffic goes to the recorder, and the recorder's lines to the spool, in
//! parallel to the session. The gate reads more slowly from a side that writes faster than the disk accepts, and from
//! the sessions of a user with recordings that take the user's whole share of the spool.

mod size;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oz_gating::messages::{Piece, RESIZE};
use oz_gating::recording::{Head, Recorder};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use self::size::{normal_size, size, stream};
use crate::spool::{Recording, Share, SpoolError};

/// The interval of the checks for input that waits for its echo, and for the end of a part.
const TICK: Duration = Duration::from_millis(250);
/// The number of bytes of lines that wait for the disk before a writer has to wait.
const MAX_WAITING: usize = 4 << 20;
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

    /// Waits until the spool has all lines of the pieces so far, if the recording is required: after a killed process
    /// or a failed disk, the recording contains the input that has reached the pod. With `input: Echoed`, input on a
    /// terminal waits in memory for its echo, up to a second, and has no line until then: the recording may lack the
    /// input of the last second.
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
pub(crate) mod tests;
