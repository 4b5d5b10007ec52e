//! The data that replicas share in addition to authorities, and the instants of its changes: the key in the
//! paths of hooks, and the addresses of known callers. Pure, as `rotation` is.
//!
//! The key proves little, since the API server shows it to every user who sees a call fail. It is still
//! replaced often, with the steps of an authority: *stage* a next one, so that every replica accepts calls
//! with it; *promote* it, so that it is registered; *forget* the preceding one.

use jiff::Timestamp;

use super::{
    CertPolicy,
    rotation::{Step, after},
    secret::Stored,
};
use crate::caller::KnownCallers;

/// Returns the step that is due at `now`, if the authority needs none before `wake`. `started` is the start
/// of this process.
pub(crate) fn next_shared_step(
    stored: &Stored,
    policy: &CertPolicy,
    callers: &KnownCallers,
    (started, now): (Timestamp, Timestamp),
    wake: Option<Timestamp>,
) -> Step {
    if callers.to_share(&stored.callers, now).is_some() {
        return Step::Callers;
    }
    let due = match path_step(stored, policy, started) {
        Due::At(step, instant) if instant <= now => return step,
        Due::At(_, instant) => Some(instant),
        Due::Never => None,
    };
    Step::Wait(wake.into_iter().chain(due).min())
}

enum Due {
    At(Step, Timestamp),
    Never,
}

fn path_step(stored: &Stored, policy: &CertPolicy, started: Timestamp) -> Due {
    let Some(paths) = &stored.paths else {
        return Due::Never;
    };
    // From an earlier version, or requested.
    let Some(changed) = stored.paths_at else {
        return Due::At(Step::StagePaths, Timestamp::MIN);
    };
    if paths.next.is_some() {
        return Due::At(Step::PromotePaths, after(changed, policy.settle));
    }
    let stage = if changed < started {
        started
    } else {
        after(changed, policy.path_life)
    };
    if paths.previous.is_none() {
        return Due::At(Step::StagePaths, stage);
    }
    // A caller with the previous key is not cut off by a second replacement soon after the first.
    Due::At(Step::ForgetPaths, after(changed, policy.overlap))
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc, time::Duration};

    use super::*;
    use crate::{
        certificate::authority::Authority,
        server::paths::{PathKey, PathKeys},
    };

    fn timestamp(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn key(byte: u8) -> PathKey {
        PathKey::new(&[byte; 32]).unwrap()
    }

    fn stored(changed: Option<i64>) -> Stored {
        let authority =
            Authority::generate("acme", timestamp(0), Duration::from_secs(100_000)).unwrap();
        Stored {
            paths_at: changed.map(timestamp),
            ..Stored::new(Arc::new(authority), Some(PathKeys::new(key(1))))
        }
    }

    fn step(stored: &Stored, started: i64, now: i64) -> Step {
        let (policy, nobody) = (CertPolicy::default(), KnownCallers::default());
        let times = (timestamp(started), timestamp(now));
        next_shared_step(stored, &policy, &nobody, times, Some(timestamp(50_000)))
    }

    #[test]
    fn path_key_is_staged_promoted_and_forgotten_every_hour() {
        let mut stored = stored(Some(0));
        assert_eq!(step(&stored, 0, 3599), Step::Wait(Some(timestamp(3600))));
        assert_eq!(step(&stored, 0, 3600), Step::StagePaths);
        let paths = stored.paths.as_mut().unwrap();
        paths.next = Some(key(2));
        stored.paths_at = Some(timestamp(3600));
        assert_eq!(step(&stored, 0, 3609), Step::Wait(Some(timestamp(3610))));
        assert_eq!(step(&stored, 0, 3610), Step::PromotePaths);
        stored.paths.as_mut().unwrap().promote();
        stored.paths_at = Some(timestamp(3610));
        assert_eq!(step(&stored, 0, 3611), Step::Wait(Some(timestamp(4210))));
        assert_eq!(step(&stored, 0, 4210), Step::ForgetPaths);
        stored.paths.as_mut().unwrap().previous = None;
        assert_eq!(step(&stored, 0, 4210), Step::Wait(Some(timestamp(7210))));
    }

    #[test]
    fn path_key_is_staged_at_a_start_and_not_while_a_previous_one_is_good() {
        let mut stored = stored(Some(0));
        assert_eq!(step(&stored, 5, 5), Step::StagePaths);
        stored.paths.as_mut().unwrap().previous = Some(key(7));
        assert_eq!(step(&stored, 5, 5), Step::Wait(Some(timestamp(600))));
        assert_eq!(step(&stored, 5, 600), Step::ForgetPaths);
    }

    #[test]
    fn path_key_without_known_creation_time_is_staged_at_once() {
        assert_eq!(step(&stored(None), 0, 0), Step::StagePaths);
    }

    #[test]
    fn known_caller_is_shared_once() {
        let mut stored = stored(Some(0));
        let (policy, callers) = (CertPolicy::default(), KnownCallers::default());
        let address: IpAddr = [10, 0, 0, 1].into();
        callers.vouch(address, timestamp(1));
        let times = (timestamp(0), timestamp(1));
        let next = next_shared_step(&stored, &policy, &callers, times, None);
        assert_eq!(next, Step::Callers);
        stored.callers = callers.to_share(&stored.callers, timestamp(1)).unwrap();
        let next = next_shared_step(&stored, &policy, &callers, times, None);
        assert_eq!(next, Step::Wait(Some(timestamp(3600))));
    }
}
