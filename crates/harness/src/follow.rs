//! The life of the container: it prepares the run, follows the agent until SIGTERM, and writes the outcome.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use oz_api::harness::RunOutputs;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::args::Options;
use crate::broker::Broker;
use crate::convert::{self, Event, Outcome};
use crate::directory::Directory;
use crate::log::{self, Complaint};
use crate::metadata::Metadata;
use crate::outputs;
use crate::prepare::{self, State};
use crate::reports::Reports;
use crate::ring::Ring;
use crate::tail::{Line, Position, Tail};
use crate::transcript::{EVENTS, Transcript};

/// The interval at which the file is read.
const TICK: Duration = Duration::from_millis(100);
/// The number of pieces that are read before other work has its turn.
const PIECES: usize = 16;
/// The maximum time for which the container reads after the agent ended: the grace period of the pod is for the agent.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The approximate size of a batch of event lines, in bytes.
const BATCH: usize = 64 * 1024;
/// The file in the transcript with the outputs of a run.
const RESULT: &str = "result.json";

/// The function of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// The container replaces a runtime.
    Runtime,
    /// The container runs next to a runtime.
    Report,
}

/// The destinations of events.
struct Sink {
    verb: Verb,
    transcript: Transcript,
    ring: Ring,
    /// Lines to be written.
    batch: String,
    has_news: bool,
    outcome: Option<Outcome>,
    output: Complaint,
}

impl Sink {
    fn line(&mut self, line: &Line<'_>) {
        match self.verb {
            Verb::Runtime => {
                for event in convert::convert(line, Timestamp::now()) {
                    self.event(event);
                }
            }
            Verb::Report => {
                let text = String::from_utf8_lossy(line.bytes);
                if let Some(event) = convert::passed_on(text.trim()) {
                    self.event(event);
                }
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.ring.push(&event.event);
        self.has_news = true;
        if let Some(outcome) = event.outcome {
            self.outcome = Some(outcome);
        }
        if self.verb == Verb::Runtime {
            self.batch += &event.line;
            self.batch.push('\n');
            if self.batch.len() >= BATCH {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.transcript.events(&self.batch);
        let mut output = std::io::stdout().lock();
        let written = output
            .write_all(self.batch.as_bytes())
            .and_then(|()| output.flush());
        let written = written.context("failed to write to standard output");
        self.output.about("events are missing in the log", written);
        self.batch.clear();
        // A line may have enlarged the buffer.
        self.batch.shrink_to(BATCH);
    }
}

/// The reader of the output of the agent, or of its runtime.
struct Follower {
    tail: Tail,
    sink: Sink,
    state: State,
    buffer: Vec<u8>,
    reading: Complaint,
    remembering: Complaint,
}

impl Follower {
    /// Reads a piece. Returns whether there was one.
    fn step(&mut self) -> bool {
        let sink = std::cell::RefCell::new(&mut self.sink);
        let read = self.tail.read(
            &mut self.buffer,
            |raw| {
                let mut sink = sink.borrow_mut();
                if sink.verb == Verb::Runtime {
                    sink.transcript.raw(raw);
                }
            },
            |line| sink.borrow_mut().line(&line),
        );
        let count = self
            .reading
            .about("failed to read the output of the agent", read);
        self.sink.flush();
        let position = self.tail.position();
        if let Some(position) = position.filter(|_| self.sink.verb == Verb::Runtime) {
            let remembered = self.state.advance(position);
            self.remembering
                .about("a restart would begin too early", remembered);
        }
        count.is_some_and(|count| count > 0)
    }

    /// Reads the rest after the agent has ended.
    fn drain(&mut self) {
        let begun = Instant::now();
        while self.step() {
            if begun.elapsed() > DRAIN_TIMEOUT {
                log::say("the rest of the agent's output is dropped: it is too large");
                break;
            }
        }
        let sink = &mut self.sink;
        self.tail.finish(&mut |line| sink.line(&line));
        sink.flush();
    }
}

/// Follows the agent until SIGTERM.
///
/// # Errors
/// The agent cannot start: the broker refuses the prompt for good, or nothing can be written.
pub(crate) async fn run(options: &Options, verb: Verb) -> Result<()> {
    let mut stop = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let broker = Arc::new(Broker::new(
        &options.broker_url,
        &options.broker_ca,
        &options.token,
    )?);
    let directory = Directory::new(&options.workspace, &options.transcript)?;
    prepare::folders(options, &directory)?;
    tokio::select! {
        _ = stop.recv() => return Ok(()),
        prompt = prepare::prompt(options, &broker) => prompt?,
    }
    let mut follower = begin(options, verb, directory)?;
    let mut metadata = Metadata::new(options, follower.state.started);
    let directory = follower.sink.transcript.directory.clone();
    let mut writing = Complaint::silent();
    if verb == Verb::Runtime {
        writing.about("metadata.json is missing", metadata.write(&directory));
    }
    let mut reports = Reports::new(broker);
    follow(&mut follower, &mut reports, &mut stop).await;

    follower.drain();
    let sink = follower.sink;
    leave(options, verb, &directory, sink.outcome.as_ref());
    if verb == Verb::Runtime {
        metadata.complete(Timestamp::now(), sink.outcome.as_ref());
        writing.about("metadata.json is not complete", metadata.write(&directory));
    }
    if sink.has_news {
        reports.note();
    }
    reports.finish(&sink.ring).await;
    Ok(())
}

/// Prepares everything that must exist before the agent writes its first line; when the raw output exists, the agent
/// may start.
fn begin(options: &Options, verb: Verb, directory: Directory) -> Result<Follower> {
    let (folder, name) = prepare::raw(&options.shared)?;
    let state = State::load(&folder, Timestamp::now())?;
    let mut sink = Sink {
        verb,
        transcript: Transcript::new(directory.clone()),
        ring: Ring::new(options.recent_events),
        batch: String::new(),
        has_news: false,
        outcome: None,
        output: Complaint::silent(),
    };
    if state.is_first {
        // The file of an earlier attempt, or of an earlier run with this name in the same workspace.
        if let Err(error) = directory.remove(RESULT) {
            log::say(&format!("{error:#}"));
        }
    }
    if verb == Verb::Runtime {
        if state.is_first {
            submitted(options, &mut sink);
        } else {
            for event in sink.transcript.recent() {
                sink.ring.push(&event.event);
                sink.outcome = event.outcome.or(sink.outcome);
            }
        }
    }
    // The probe finds the file, and the agent starts.
    folder.append(&name)?;
    let tail = match verb {
        Verb::Runtime => Tail::new(folder, name, true, state.position),
        Verb::Report => Tail::new(directory, EVENTS.to_owned(), false, Position::default()),
    };
    Ok(Follower {
        tail,
        sink,
        state,
        buffer: Vec::new(),
        reading: Complaint::silent(),
        remembering: Complaint::silent(),
    })
}

/// Adds the prompt as the first event.
fn submitted(options: &Options, sink: &mut Sink) {
    let Some(file) = &options.shared.prompt else {
        return;
    };
    match prepare::prompt_text(file) {
        Ok(text) => {
            if let Some(event) = convert::prompt(&text, Timestamp::now()) {
                sink.event(event);
                sink.flush();
            }
        }
        Err(error) => log::say(&format!("{error:#}")),
    }
}

async fn follow(follower: &mut Follower, reports: &mut Reports, stop: &mut Signal) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = stop.recv() => return,
            () = reports.finished() => {}
            _ = tick.tick() => {
                let pieces = (0..PIECES).take_while(|_| follower.step()).count();
                if pieces == PIECES {
                    tick.reset_immediately();
                }
            }
        }
        if std::mem::take(&mut follower.sink.has_news) {
            reports.note();
        }
        reports.begin(&follower.sink.ring);
    }
}

/// Writes the outputs of the run as the termination message, which reaches the operator even if the broker is down.
fn leave(options: &Options, verb: Verb, directory: &Directory, outcome: Option<&Outcome>) {
    let written = directory
        .read_start(RESULT, outputs::MAX_FILE)
        .and_then(|found| match found {
            Some((_, false)) => anyhow::bail!(
                "result.json is not read: it has more than {} bytes",
                outputs::MAX_FILE
            ),
            Some((bytes, true)) => outputs::read(&bytes).map(Some),
            None => Ok(None),
        });
    let is_missing = matches!(written, Ok(None));
    let written = Complaint::silent().about("the result is not written by the agent", written);
    let outputs = written
        .flatten()
        .or_else(|| outcome.map(outputs::from_outcome));
    let Some(outputs) = outputs.filter(|outputs| *outputs != RunOutputs::default()) else {
        return;
    };
    if verb == Verb::Runtime
        && is_missing
        && let Ok(text) = serde_json::to_string(&outputs)
    {
        let placed = directory.replace(RESULT, format!("{text}\n").as_bytes(), 0o660);
        Complaint::silent().about("result.json is missing", placed);
    }
    if let Some(message) = outputs::message(outputs) {
        let left = outputs::leave_message(&options.termination_log, &message);
        Complaint::silent().about("the outcome is lost", left);
    }
}
