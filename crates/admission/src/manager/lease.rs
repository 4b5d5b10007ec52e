//! Holding a Lease (`coordination.k8s.io/v1`), so that one replica leads.
//!
//! Of our own, because who leads must stop in time when the API server cannot be reached:
//! the crates there are report the loss of a Lease only once they can read it again. As in
//! client-go, nobody trusts another's clock: a Lease has run out when *we* have not seen it
//! change for as long as it lasts.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, api::PostParams, core::ObjectMeta};

use crate::server::reviewer::Clock;

/// How long a Lease lasts without being renewed.
const LASTS: Duration = Duration::from_secs(15);
/// A holder that could not renew for this long gives up: before anybody else may take over.
const GIVE_UP: Duration = Duration::from_secs(10);
/// How often it is renewed, and looked at.
const EVERY: Duration = Duration::from_secs(2);

/// What to do about a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// Nobody holds it, or the holder has gone: take it.
    Take,
    /// It is ours: renew it.
    Renew,
    /// It is another's: look again later.
    Wait,
}

/// The state of a Lease and since when we know it: its end by our own clock.
#[derive(Debug, Default)]
struct Observed {
    state: Option<(String, Option<MicroTime>)>,
    since: Option<Instant>,
}

impl Observed {
    /// Decides, and remembers what it was decided on.
    fn decide(&mut self, lease: Option<&Lease>, identity: &str, now: Instant) -> Move {
        let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else {
            return Move::Take;
        };
        let holder = spec.holder_identity.clone().unwrap_or_default();
        if holder.is_empty() {
            return Move::Take;
        }
        if holder == identity {
            return Move::Renew;
        }
        let state = Some((holder, spec.renew_time.clone()));
        if self.state != state {
            (self.state, self.since) = (state, Some(now));
        }
        let lasts = spec
            .lease_duration_seconds
            .and_then(|it| u64::try_from(it).ok());
        let lasts = lasts.map_or(LASTS, Duration::from_secs);
        let unchanged = self
            .since
            .map_or(Duration::ZERO, |since| now.duration_since(since));
        if unchanged > lasts {
            Move::Take
        } else {
            Move::Wait
        }
    }
}

/// The Lease as it is to be after taking or renewing it.
fn held(base: Option<Lease>, name: &str, identity: &str, now: Timestamp) -> Lease {
    let mut lease = base.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    if spec.holder_identity.as_deref() != Some(identity) {
        spec.acquire_time = Some(MicroTime(now));
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    }
    spec.holder_identity = Some(identity.to_owned());
    spec.lease_duration_seconds = i32::try_from(LASTS.as_secs()).ok();
    spec.renew_time = Some(MicroTime(now));
    lease
}

/// One candidate for a Lease.
pub(super) struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    clock: Clock,
    observed: Observed,
}

impl Candidate {
    pub(super) fn new(api: Api<Lease>, name: String, identity: String, clock: Clock) -> Self {
        Self {
            api,
            name,
            identity,
            clock,
            observed: Observed::default(),
        }
    }

    /// Returns when the Lease is ours.
    pub(super) async fn acquire(&mut self) {
        while !self.attempt().await {
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Renews the Lease, and returns when it is not ours any more, or may not be.
    pub(super) async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            let began = Instant::now();
            let left = GIVE_UP.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, self.renew()).await {
                // From before the write: the Lease lasts from then on at the earliest.
                Ok(true) => renewed = began,
                Ok(false) if self.observed.state.is_some() => return,
                Ok(false) => {}
                Err(_elapsed) => return,
            }
        }
    }

    async fn renew(&mut self) -> bool {
        tokio::time::sleep(EVERY).await;
        self.attempt().await
    }

    /// Looks at the Lease and takes or renews it if that is right. Whether it is ours then.
    async fn attempt(&mut self) -> bool {
        match tokio::time::timeout(EVERY * 2, self.try_once()).await {
            Ok(Ok(ours)) => ours,
            Ok(Err(error)) => {
                tracing::warn!(%error, lease = self.name, "failed to take part in the election");
                false
            }
            Err(_elapsed) => {
                tracing::warn!(lease = self.name, "the API server does not answer");
                false
            }
        }
    }

    async fn try_once(&mut self) -> Result<bool, kube::Error> {
        let lease = self.api.get_opt(&self.name).await?;
        let chosen = self
            .observed
            .decide(lease.as_ref(), &self.identity, Instant::now());
        if chosen == Move::Wait {
            return Ok(false);
        }
        let exists = lease.is_some();
        let wanted = held(lease, &self.name, &self.identity, (self.clock)());
        let ours = self.write(exists, &wanted).await?;
        if ours {
            self.observed = Observed::default();
        }
        Ok(ours)
    }

    /// Gives the Lease back, so that nobody has to wait for its end.
    pub(super) async fn release(&self) {
        let given_back = async {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else {
                return Ok(());
            };
            let Some(spec) = lease.spec.as_mut() else {
                return Ok(());
            };
            if spec.holder_identity.as_deref() == Some(&self.identity) {
                spec.holder_identity = None;
                self.write(true, &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        // If it cannot be given back, it runs out.
        let _ = tokio::time::timeout(EVERY, given_back).await;
    }

    /// Whether the write went through; the resourceVersion in it lets only one of several win.
    async fn write(&self, exists: bool, lease: &Lease) -> Result<bool, kube::Error> {
        let parameters = PostParams::default();
        let outcome = if exists {
            self.api.replace(&self.name, &parameters, lease).await
        } else {
            self.api.create(&parameters, lease).await
        };
        match outcome {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, renewed: i64) -> Lease {
        held(None, "l", holder, Timestamp::from_second(renewed).unwrap())
    }

    #[test]
    fn a_lease_is_taken_when_absent_or_given_back_and_renewed_when_ours() {
        let mut observed = Observed::default();
        let now = Instant::now();
        assert_eq!(observed.decide(None, "me", now), Move::Take);
        assert_eq!(observed.decide(Some(&lease("", 0)), "me", now), Move::Take);
        assert_eq!(
            observed.decide(Some(&lease("me", 0)), "me", now),
            Move::Renew
        );
    }

    #[test]
    fn a_lease_of_another_is_taken_only_after_it_has_not_changed_for_as_long_as_it_lasts() {
        let mut observed = Observed::default();
        let start = Instant::now();
        // Its own times are years old: a clock of another machine proves nothing.
        assert_eq!(
            observed.decide(Some(&lease("you", 1)), "me", start),
            Move::Wait
        );
        let soon = start + LASTS;
        assert_eq!(
            observed.decide(Some(&lease("you", 1)), "me", soon),
            Move::Wait
        );
        assert_eq!(
            observed.decide(Some(&lease("you", 2)), "me", soon),
            Move::Wait,
            "renewed"
        );
        let late = soon + LASTS + Duration::from_millis(1);
        assert_eq!(
            observed.decide(Some(&lease("you", 2)), "me", late),
            Move::Take
        );
    }

    #[test]
    fn taking_over_counts_a_transition_and_renewing_does_not() {
        let now = Timestamp::from_second(9).unwrap();
        let taken = held(Some(lease("you", 1)), "l", "me", now).spec.unwrap();
        assert_eq!(
            (taken.lease_transitions, taken.acquire_time),
            (Some(2), Some(MicroTime(now)))
        );
        let renewed = held(Some(lease("me", 1)), "l", "me", now).spec.unwrap();
        assert_eq!(
            (renewed.lease_transitions, renewed.renew_time),
            (Some(1), Some(MicroTime(now)))
        );
    }

    const _: () = assert!(GIVE_UP.as_secs() < LASTS.as_secs());
}
