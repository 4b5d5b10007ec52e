//! The grants of the run, as the broker last answered: fetched in a loop, and dropped when the broker refuses them or
//! does not respond for too long. Without grants the proxy refuses everything.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use http::Method;
use hyper::body::Bytes;
use oz_api::harness::wire::{
    GRANTS_HOLD_SECONDS, GRANTS_LAPSE_SECONDS, GRANTS_PATH, MAX_GRANTS, RunGrants,
};
use oz_egress::grants::Granted;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::broker::{Broker, Call, Failure, Line};
use crate::log::Complaint;

/// The timeout of a request for grants, which the broker holds.
const POLL_TIMEOUT: Duration = Duration::from_secs(GRANTS_HOLD_SECONDS + 5);
/// The time after which grants lapse.
const LAPSE: Duration = Duration::from_secs(GRANTS_LAPSE_SECONDS);
/// The backoff after the first failure; it doubles after each further failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// The maximum backoff: a broker that is available again is asked soon.
const LAST_BACKOFF: Duration = Duration::from_secs(2);
/// An answer without a change that arrives within this time was not held.
const EARLY: Duration = Duration::from_secs(1);
/// The time for which a connection waits for the first grants after a restart of the proxy.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a digest.
const MAX_DIGEST: usize = 128;

/// The grants at a moment.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// The broker has not answered since the proxy started; with the last failure.
    Starting(String),
    /// The run has these grants.
    Granted(Arc<Granted>),
    /// The proxy has no grants, for this reason.
    None(String),
}

impl State {
    /// Returns the grants.
    ///
    /// # Errors
    /// The reason why there are none.
    pub(crate) fn granted(&self) -> Result<&Arc<Granted>, String> {
        match self {
            Self::Granted(granted) => Ok(granted),
            Self::Starting(why) | Self::None(why) => Err(why.clone()),
        }
    }
}

/// The current grants.
pub(crate) struct Grants {
    state: watch::Sender<State>,
}

impl Grants {
    /// Creates the state before the first response.
    pub(crate) fn new() -> Self {
        Self {
            state: watch::Sender::new(State::Starting(
                "the broker has not responded yet".to_owned(),
            )),
        }
    }

    /// Returns the changes of the grants from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<State> {
        let mut seen = self.state.subscribe();
        seen.mark_unchanged();
        seen
    }

    /// Returns the current grants; waits for the first ones for some time.
    ///
    /// # Errors
    /// The reason why there are none.
    pub(crate) async fn current(&self) -> Result<Arc<Granted>, String> {
        let mut seen = self.state.subscribe();
        let started = seen.wait_for(|state| !matches!(state, State::Starting(_)));
        // Without an answer in time, the state says so.
        let _ = timeout(START_TIMEOUT, started).await.is_ok();
        self.now()
    }

    /// Returns the grants of this moment.
    ///
    /// # Errors
    /// The reason why there are none.
    pub(crate) fn now(&self) -> Result<Arc<Granted>, String> {
        self.state.borrow().granted().map(Arc::clone)
    }

    fn set(&self, state: State) {
        self.state.send_replace(state);
    }
}

/// The loop that fetches the grants.
pub(crate) struct Poll<'a> {
    broker: &'a Broker,
    grants: &'a Grants,
    line: Option<Line>,
    /// The digest of the current grants; empty if there are none.
    seen: String,
    /// The time of the last answer.
    last: Instant,
    backoff: Duration,
    complaint: Complaint,
}

impl<'a> Poll<'a> {
    /// Creates the loop.
    pub(crate) fn new(broker: &'a Broker, grants: &'a Grants) -> Self {
        Self {
            broker,
            grants,
            line: None,
            seen: String::new(),
            last: Instant::now(),
            backoff: FIRST_BACKOFF,
            complaint: Complaint::silent(),
        }
    }

    /// Fetches the grants until the caller drops this. `answered` is called after each answer and each change.
    pub(crate) async fn run(mut self, mut answered: impl FnMut(&State)) {
        loop {
            let pause = self.step().await;
            answered(&self.grants.state.borrow());
            if let Some(pause) = pause {
                sleep(pause).await;
            }
        }
    }

    /// Asks once. Returns the time until the next question.
    async fn step(&mut self) -> Option<Duration> {
        let asked = Instant::now();
        let lapse = self.last + LAPSE;
        let has_grants = !self.seen.is_empty();
        let answer = async {
            let answer = self.broker.ask_on(&mut self.line, call(&self.seen)).await?;
            // The broker decided otherwise than before, in a way that the proxy cannot read: not by the grants before.
            read(&answer).map_err(Failure::Refused)
        };
        let answer = match has_grants {
            true => timeout_at(lapse, answer).await,
            false => Ok(answer.await),
        };
        match answer {
            Ok(Ok(granted)) => {
                self.complaint.about("no grants from the broker", Ok(()));
                self.last = Instant::now();
                self.backoff = FIRST_BACKOFF;
                if granted.digest() == self.seen {
                    // A broker that stops answers at once.
                    return (asked.elapsed() < EARLY).then_some(FIRST_BACKOFF);
                }
                granted.digest().clone_into(&mut self.seen);
                self.grants.set(State::Granted(Arc::new(granted)));
                None
            }
            Ok(Err(Failure::Refused(error))) => {
                self.drop(&format!("{error:#}"));
                Some(self.fail(error))
            }
            Ok(Err(Failure::Temporary(error))) => {
                self.grants.state.send_if_modified(|state| match state {
                    State::Starting(why) => {
                        *why = format!("the broker has not responded yet: {error:#}");
                        true
                    }
                    State::Granted(_) | State::None(_) => false,
                });
                Some(self.fail(error))
            }
            Err(_) => {
                let why = format!("the broker has not responded for {} s", LAPSE.as_secs());
                self.drop(&why);
                Some(self.fail(anyhow!(why)))
            }
        }
    }

    fn drop(&mut self, why: &str) {
        self.seen.clear();
        self.line = None;
        self.grants.set(State::None(why.to_owned()));
    }

    fn fail(&mut self, error: anyhow::Error) -> Duration {
        self.complaint
            .about::<()>("no grants from the broker", Err(error));
        let pause = self.backoff;
        self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
        pause
    }
}

fn call(seen: &str) -> Call {
    let path = match seen {
        "" => GRANTS_PATH.to_owned(),
        _ => format!("{GRANTS_PATH}?seen={seen}"),
    };
    Call {
        timeout: POLL_TIMEOUT,
        most: MAX_GRANTS,
        ..Call::new(Method::GET, &path, Bytes::new())
    }
}

fn read(answer: &[u8]) -> anyhow::Result<Granted> {
    let grants: RunGrants =
        serde_json::from_slice(answer).context("failed to read the grants of this run")?;
    // It becomes a part of the next question.
    let is_plain = grants
        .digest
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric());
    ensure!(
        is_plain && (1..=MAX_DIGEST).contains(&grants.digest.len()),
        "failed to read the grants of this run: the digest is invalid"
    );
    Granted::parse(&grants).context("failed to read the grants of this run")
}
