//! The present time. The API server's clock decides about expiry, since its `creationTimestamp` is
//! the start of a grant's time; the local clock only adds the fractions of a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// A source of the present time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the present instant.
    fn now(&self) -> Timestamp;

    /// Returns by how much the local clock is ahead of [`Clock::now`] (behind, if negative).
    fn skew(&self) -> SignedDuration {
        SignedDuration::ZERO
    }
}

impl<F: Fn() -> Timestamp + Send + Sync + 'static> Clock for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// The local clock without corrections.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The API server's clock, derived from the `Date` header of its responses and carried forward with
/// the monotonic clock.
///
/// Each response proves that the server's clock read `D ..= D + 1 s` (the header has whole seconds)
/// at some instant between request and response. The clock intersects the windows of several
/// responses, so a few of them determine the server's time to within milliseconds. The local wall
/// clock is trusted as long as it lies inside the window. When it steps outside, its last reading
/// inside is carried forward; if it never was inside, the nearest edge of the window replaces it.
/// So a local clock that is an hour off, or steps at run time, has no effect.
#[derive(Clone, Debug)]
pub struct ServerClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The zero of the monotonic clock from which [`Window`] counts.
    epoch: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    window: Option<Window>,
    /// The last reading of the local clock that agreed, with its monotonic instant.
    agreed: Option<(Duration, Timestamp)>,
    warned: bool,
}

/// The maximum skew without a warning.
pub const NOTABLE_SKEW: SignedDuration = SignedDuration::from_secs(2);

/// Returns the text for a skew, as in `3600 s ahead of the API server's`.
#[must_use]
pub fn skew_in_words(skew: SignedDuration) -> String {
    let direction = if skew.is_negative() {
        "behind"
    } else {
        "ahead of"
    };
    let seconds = skew.abs().as_secs_f64();
    format!("{seconds:.0} s {direction} the API server's")
}

impl Default for ServerClock {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerClock {
    /// Creates a clock without responses, which trusts the local clock until the first response.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                epoch: Instant::now(),
                state: Mutex::default(),
            }),
        }
    }

    /// Records the `Date` header of a response.
    pub(crate) fn note(&self, requested: Instant, answered: Instant, date: Timestamp) {
        let since = |instant: Instant| instant.saturating_duration_since(self.shared.epoch);
        let heard = Window::heard(since(requested), since(answered), date);
        let mut state = self.shared.state.lock();
        state.window = Some(match state.window {
            Some(known) => known.narrowed(heard),
            None => heard,
        });
    }

    fn read(&self) -> Reading {
        let mut state = self.shared.state.lock();
        // Both clocks are read under the lock, so that no reading is older than the one before.
        let (monotonic, wall) = (self.shared.epoch.elapsed(), Timestamp::now());
        let reading = Reading::compute(state.window, state.agreed, monotonic, wall);
        if reading.skew.is_zero() {
            state.agreed = Some((monotonic, wall));
        }
        let notable = reading.skew.abs() > NOTABLE_SKEW;
        if notable && !state.warned {
            tracing::warn!(
                skew_seconds = reading.skew.as_secs_f64(),
                "the local clock differs from the API server's; using the API server's"
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

/// The present instant, calculated from the local clocks and the window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    now: Timestamp,
    skew: SignedDuration,
}

impl Reading {
    fn compute(
        window: Option<Window>,
        agreed: Option<(Duration, Timestamp)>,
        monotonic: Duration,
        wall: Timestamp,
    ) -> Self {
        let now = window.map_or(wall, |window| {
            let (earliest, latest) = window.bounds_at(monotonic);
            let latest = latest.max(earliest);
            let carried = match agreed {
                Some((since, said)) if wall < earliest || wall > latest => {
                    plus(said, monotonic.saturating_sub(since))
                }
                _ => wall,
            };
            carried.clamp(earliest, latest)
        });
        Self {
            now,
            skew: wall.duration_since(now),
        }
    }
}

/// The bounds of the server's time, each as a time and the monotonic instant at which it held.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    earliest: (Duration, Timestamp),
    latest: (Duration, Timestamp),
}

/// The maximum drift between two clocks, in parts per million: more than that of a crystal, less
/// than would widen the window by a second within half an hour.
const DRIFT_PPM: u32 = 500;

/// The resolution of a `Date` header.
const SECOND: Duration = Duration::from_secs(1);

impl Window {
    /// Creates the window of one response: the server's clock read `date` or up to a second more,
    /// after the request and before the response.
    fn heard(requested: Duration, answered: Duration, date: Timestamp) -> Self {
        Self {
            earliest: (answered, date),
            latest: (requested, plus(date, SECOND)),
        }
    }

    /// Returns the bounds, carried forward to a monotonic instant.
    fn bounds_at(&self, monotonic: Duration) -> (Timestamp, Timestamp) {
        let age = |since: Duration| monotonic.saturating_sub(since);
        let (since, earliest) = self.earliest;
        let earliest = plus(earliest, age(since).saturating_sub(drift(age(since))));
        let (since, latest) = self.latest;
        let latest = plus(latest, age(since) + drift(age(since)));
        (earliest, latest)
    }

    /// Intersects both windows. Returns only the newer window if they contradict each other, which
    /// means that the server's clock was set or another server responded.
    fn narrowed(self, newer: Self) -> Self {
        let at = newer.earliest.0;
        let (earliest, latest) = self.bounds_at(at);
        let (newer_earliest, newer_latest) = newer.bounds_at(at);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The server's true time at the zero of the monotonic clock.
    const SERVER: Timestamp = Timestamp::constant(1_800_000_000, 400_000_000);
    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn server_at(monotonic: Duration) -> Timestamp {
        SERVER + monotonic
    }

    /// Returns the window of a response to a request at this instant that took 10 ms, with the
    /// header in whole seconds.
    fn answer(at: Duration) -> Window {
        let latency = Duration::from_millis(5);
        let stamped = server_at(at + latency);
        let header = Timestamp::constant(stamped.as_second(), 0);
        Window::heard(at, at + 2 * latency, header)
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_local_clock_that_agrees_is_believed_to_the_nanosecond() {
        let window = Some(answer(ms(0)));
        for offset in [-300, 0, 300].map(SignedDuration::from_millis) {
            let wall = server_at(ms(100)) + offset;
            let reading = Reading::compute(window, None, ms(100), wall);
            assert_eq!(reading.now, wall);
            assert!(reading.skew.is_zero());
        }
    }

    #[test]
    fn without_an_answer_the_local_clock_is_all_there_is() {
        let reading = Reading::compute(None, None, ms(5), SERVER);
        assert_eq!(reading.now, SERVER);
    }

    #[test]
    fn a_local_clock_that_is_off_is_put_right_to_within_a_second() {
        let window = Some(answer(ms(0)));
        for offset in [
            HOUR,
            -HOUR,
            SignedDuration::from_secs(2),
            SignedDuration::from_secs(-2),
        ] {
            let truth = server_at(ms(250));
            let reading = Reading::compute(window, None, ms(250), truth + offset);
            let error = reading.now.duration_since(truth).abs();
            assert!(
                error < SignedDuration::from_millis(1_020),
                "{offset}: off by {error}"
            );
            assert_eq!(reading.skew.is_positive(), offset.is_positive());
        }
    }

    #[test]
    fn several_responses_determine_time_within_milliseconds() {
        let window = (0..60).map(|number| ms(number * 1_137)).map(answer);
        let window = window.reduce(Window::narrowed);
        let at = ms(60 * 1_137);
        for offset in [HOUR, -HOUR] {
            let reading = Reading::compute(window, None, at, server_at(at) + offset);
            let error = reading.now.duration_since(server_at(at)).abs();
            assert!(
                error < SignedDuration::from_millis(60),
                "{offset}: off by {error}"
            );
        }
    }

    #[test]
    fn a_step_of_the_local_clock_moves_nothing() {
        let window = Some(answer(ms(0)));
        let agreed = Some((ms(1_000), server_at(ms(1_000))));
        for step in [HOUR, -HOUR, SignedDuration::from_secs(3)] {
            let truth = server_at(ms(1_500));
            let after = Reading::compute(window, agreed, ms(1_500), truth + step);
            assert_eq!((after.now, after.skew), (truth, step));
        }
    }

    #[test]
    fn server_time_overrides_jump_of_local_clock() {
        let newest = Some(answer(ms(10_000)));
        let agreed = Some((ms(0), server_at(ms(0)) - HOUR));
        let reading = Reading::compute(newest, agreed, ms(10_010), server_at(ms(10_010)) + HOUR);
        let error = reading.now.duration_since(server_at(ms(10_010))).abs();
        assert!(error < SignedDuration::from_millis(1_020), "off by {error}");
    }

    #[test]
    fn server_time_advances_regardless_of_local_clock() {
        let window = Some(answer(ms(0)));
        let stuck = SERVER - HOUR;
        let mut last = Reading::compute(window, None, ms(0), stuck).now;
        for minute in 1..30 {
            let reading = Reading::compute(window, None, ms(minute * 60_000), stuck);
            let passed = reading.now.duration_since(last);
            assert!(
                passed > SignedDuration::from_secs(59),
                "{passed} in a minute"
            );
            assert!(
                passed <= SignedDuration::from_secs(60),
                "{passed} in a minute"
            );
            last = reading.now;
        }
    }

    #[test]
    fn when_the_servers_clock_is_set_the_newest_answer_holds() {
        let old = answer(ms(0));
        let header = Timestamp::constant(SERVER.as_second(), 0) + HOUR;
        let new = Window::heard(ms(5_000), ms(5_010), header);
        assert_eq!(old.narrowed(new), new);
        assert_eq!(new.narrowed(answer(ms(6_000))), answer(ms(6_000)));
    }

    #[test]
    fn slow_response_does_not_widen_time_window() {
        let known = answer(ms(0));
        let slow = Window::heard(
            ms(10),
            ms(4_000),
            Timestamp::constant(server_at(ms(2_000)).as_second(), 0),
        );
        let (earliest, latest) = known.narrowed(slow).bounds_at(ms(4_000));
        let (before_earliest, before_latest) = known.bounds_at(ms(4_000));
        assert!(earliest >= before_earliest && latest <= before_latest);
        assert!((earliest..=latest).contains(&server_at(ms(4_000))));
    }
}
