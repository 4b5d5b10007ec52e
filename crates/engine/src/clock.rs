//! What time it is. Expiry is judged by the API server's clock, since its `creationTimestamp` is
//! where a grant's time starts; the local clock only gives what is finer than a second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;

    /// How far the local clock is ahead of [`Clock::now`] (behind, if negative).
    fn skew(&self) -> SignedDuration {
        SignedDuration::ZERO
    }
}

/// The local clock, taken as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The API server's clock, learnt from the `Date` header of its answers and carried forward with
/// the monotonic clock.
///
/// Each answer says that the server's clock read `D ..= D + 1 s` (the header has whole seconds) at
/// some instant between request and answer. The windows of several answers are intersected, so a
/// few of them tell the server's time to within milliseconds. The local wall clock is believed as
/// long as it lies inside; outside, the nearest edge of the window is the time. So a local clock
/// that is an hour off, or steps at run time, moves nothing.
#[derive(Clone, Debug)]
pub struct ServerClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Zero of the monotonic clock that [`Window`] counts from.
    epoch: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    window: Option<Window>,
    warned: bool,
}

/// A skew that is worth a warning.
const NOTABLE: SignedDuration = SignedDuration::from_secs(2);

impl Default for ServerClock {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerClock {
    /// A clock that has heard no answer yet and believes the local clock until then.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                epoch: Instant::now(),
                state: Mutex::default(),
            }),
        }
    }

    /// Takes note of an answer's `Date` header.
    pub(crate) fn note(&self, requested: Instant, answered: Instant, date: Timestamp) {
        let since = |instant: Instant| instant.saturating_duration_since(self.shared.epoch);
        let heard = Window::heard(since(requested), since(answered), date);
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.window = Some(match state.window {
            Some(known) => known.narrowed(heard),
            None => heard,
        });
    }

    fn read(&self) -> Reading {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Both clocks are read under the lock, so that no reading is older than the one before.
        let reading = Reading::of(state.window, self.shared.epoch.elapsed(), Timestamp::now());
        let notable = reading.skew.abs() > NOTABLE;
        if notable && !state.warned {
            tracing::warn!(
                skew_seconds = reading.skew.as_secs_f64(),
                "the local clock differs from the API server's; going by the API server's"
            );
        } else if !notable && state.warned {
            tracing::warn!("the local clock agrees with the API server's again");
        }
        state.warned = notable;
        reading
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        self.read().now
    }

    fn skew(&self) -> SignedDuration {
        self.read().skew
    }
}

/// What the local clocks and the window make of the present instant.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    now: Timestamp,
    skew: SignedDuration,
}

impl Reading {
    fn of(window: Option<Window>, monotonic: Duration, wall: Timestamp) -> Self {
        let now = window.map_or(wall, |window| {
            let (earliest, latest) = window.at(monotonic);
            wall.clamp(earliest, latest.max(earliest))
        });
        Self {
            now,
            skew: wall.duration_since(now),
        }
    }
}

/// Bounds of the server's time, each as a time and the monotonic instant at which it held.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    earliest: (Duration, Timestamp),
    latest: (Duration, Timestamp),
}

/// How fast two clocks may drift apart, in parts per million: more than a crystal does, less than
/// what would widen the window by a second within half an hour.
const DRIFT_PPM: u32 = 500;

/// The resolution of a `Date` header.
const SECOND: Duration = Duration::from_secs(1);

impl Window {
    /// What one answer tells: the server read `date` or up to a second more, after the request and
    /// before the answer.
    fn heard(requested: Duration, answered: Duration, date: Timestamp) -> Self {
        Self {
            earliest: (answered, date),
            latest: (requested, plus(date, SECOND)),
        }
    }

    /// The bounds carried forward to a monotonic instant.
    fn at(&self, monotonic: Duration) -> (Timestamp, Timestamp) {
        let age = |since: Duration| monotonic.saturating_sub(since);
        let (since, earliest) = self.earliest;
        let earliest = plus(earliest, age(since).saturating_sub(drift(age(since))));
        let (since, latest) = self.latest;
        let latest = plus(latest, age(since) + drift(age(since)));
        (earliest, latest)
    }

    /// Both windows' knowledge; the newer one alone if they contradict each other, which means
    /// that the server's clock was set or another server answered.
    fn narrowed(self, newer: Self) -> Self {
        let at = newer.earliest.0;
        let (earliest, latest) = self.at(at);
        let (newer_earliest, newer_latest) = newer.at(at);
        if earliest > newer_latest || newer_earliest > latest {
            return newer;
        }
        Self {
            earliest: if earliest > newer_earliest {
                self.earliest
            } else {
                newer.earliest
            },
            latest: if latest < newer_latest {
                self.latest
            } else {
                newer.latest
            },
        }
    }
}

fn drift(age: Duration) -> Duration {
    age * DRIFT_PPM / 1_000_000
}

fn plus(time: Timestamp, duration: Duration) -> Timestamp {
    // Only a `Date` beyond the year 9999 could overflow.
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}
