use jiff::SignedDuration;
use oz_api::Phase;

use super::*;
use crate::controller::Failure;

const UNTIL: Timestamp = Timestamp::UNIX_EPOCH;

/// An object with an expiry, and with every fact that the machine reads.
#[derive(Clone, Default)]
struct Object {
    /// The seconds since the expiry.
    late: i64,
    is_over: bool,
    is_deleted: bool,
    begun: Option<End>,
    has_grant: bool,
    /// Whether the grant is lost, by a seal that is no longer valid.
    lost: Option<bool>,
    has_drift: bool,
    is_drift_confirmed: bool,
    early: Vec<End>,
    waits: bool,
    refuses: bool,
    has_unread_predecessor: bool,
}

impl Lifecycle for Object {
    type Grant = ();
    type Offer = ();
    type Special = &'static str;
    type Question = &'static str;

    fn now(&self) -> Timestamp {
        UNTIL + SignedDuration::from_secs(self.late)
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    fn begun(&self) -> Option<End> {
        self.begun.clone()
    }

    fn sealed(&self) -> Sealed<()> {
        Sealed {
            grant: self.has_grant.then(Box::default),
            until: (self.has_grant || self.lost.is_some()).then_some(UNTIL),
            lost: self.lost.map(|is_retired| Lost {
                drift: Drift::Spec,
                is_retired,
            }),
        }
    }

    fn drift(&self, (): &()) -> Option<Drift> {
        self.has_drift.then_some(Drift::Spec)
    }

    fn confirm_drift(&self) -> Result<(), Stop<&'static str, &'static str>> {
        match self.is_drift_confirmed {
            true => Ok(()),
            false => Err(Stop::Need("deletion")),
        }
    }

    fn early_ends(&self, (): &()) -> Vec<End> {
        self.early.clone()
    }

    fn propose(&mut self) -> Result<(), Stop<&'static str, &'static str>> {
        match (self.waits, self.refuses) {
            (true, _) => Err(Stop::Wait(Failure::invalid("Waits", "it waits"))),
            (_, true) => Err(Stop::Refuse(
                Phase::Denied,
                Failure::invalid("Refused", "it is refused"),
            )),
            _ => Ok(()),
        }
    }

    fn waits_until(&self) -> Timestamp {
        UNTIL
    }

    fn confirm_refusal(&self) -> Option<&'static str> {
        self.has_unread_predecessor.then_some("predecessor")
    }
}

/// Returns the state of an object in one line.
fn state(mut object: Object) -> String {
    match assess(&mut object) {
        Err(need) if need.until == UNTIL => format!("needs {} until its expiry", need.question),
        Err(need) => format!("needs {}", need.question),
        Ok(State::Ending(end, grant)) => format!("{} {}", end.reason, grant.is_some()),
        Ok(State::Refused(phase, failure)) => format!("{phase} {}", failure.reason),
        Ok(State::Waiting(failure)) => failure.reason.to_owned(),
        Ok(State::Special(special)) => special.to_owned(),
        Ok(State::Over) => "over".to_owned(),
        Ok(State::Granted(_)) => "granted".to_owned(),
        Ok(State::Grantable(_)) => "grantable".to_owned(),
    }
}

/// Returns an end of each reason, in the order in which they apply before the expiry.
fn ends() -> Vec<End> {
    let text = || "why".to_owned();
    vec![
        End::locked(text()),
        End::not_ready(text()),
        End::ticket_closed(text()),
        End::on_call_ended(text()),
        End::pod_replaced("why"),
        End::TEMPLATE_CHANGED,
    ]
}

#[test]
fn first_of_two_early_ends_applies() {
    let granted = Object {
        late: -1,
        has_grant: true,
        is_drift_confirmed: true,
        ..Object::default()
    };
    let ends = ends();
    for (place, end) in ends.iter().enumerate() {
        for other in &ends[place..] {
            for both in [[end, other], [other, end]] {
                let object = Object {
                    early: both.map(End::clone).into(),
                    ..granted.clone()
                };
                assert_eq!(state(object), format!("{} true", end.reason));
            }
        }
        let object = Object {
            early: vec![end.clone()],
            has_drift: true,
            ..granted.clone()
        };
        let first = match end.reason {
            EndReason::Locked => EndReason::Locked,
            _ => EndReason::DriftDetected,
        };
        assert_eq!(state(object), format!("{first} true"));
    }
    assert_eq!(state(granted), "granted");
}

#[test]
fn expiry_precedes_every_other_reason_to_end() {
    for number in 0..64 {
        let is = |bit: u32| number & (1 << bit) != 0;
        let object = Object {
            has_grant: is(0) || !is(1),
            lost: is(1).then(|| is(2)),
            has_drift: is(3),
            is_drift_confirmed: is(4),
            early: if is(5) { ends() } else { Vec::new() },
            ..Object::default()
        };
        let has_grant = object.has_grant;
        assert_eq!(state(object.clone()), format!("Expired {has_grant}"));
        let over = Object {
            is_over: true,
            ..object
        };
        assert_eq!(state(over), "over");
    }
}

#[test]
fn begun_end_stays_and_deletion_ends_grant() {
    let granted = Object {
        late: -1,
        has_grant: true,
        ..Object::default()
    };
    let deleted = Object {
        is_deleted: true,
        ..granted.clone()
    };
    assert_eq!(state(deleted), "Deleted true");
    for late in [-1, 0] {
        let begun = Object {
            late,
            is_deleted: true,
            begun: Some(End::locked("why".to_owned())),
            ..granted.clone()
        };
        assert_eq!(state(begun), "Locked true");
    }
}

#[test]
fn unconfirmed_drift_is_no_end() {
    let drifted = Object {
        late: -1,
        has_grant: true,
        has_drift: true,
        ..Object::default()
    };
    let lost = |is_retired| Object {
        late: -1,
        lost: Some(is_retired),
        ..Object::default()
    };
    for (object, end) in [
        (drifted, "DriftDetected true"),
        (lost(false), "DriftDetected false"),
        (lost(true), "SealRetired false"),
    ] {
        assert_eq!(state(object.clone()), "needs deletion until its expiry");
        let confirmed = Object {
            is_drift_confirmed: true,
            ..object
        };
        assert_eq!(state(confirmed), end);
    }
}

#[test]
fn object_without_grant_waits_no_longer_than_its_time() {
    let with = |late, waits, refuses, is_deleted| Object {
        late,
        waits,
        refuses,
        is_deleted,
        ..Object::default()
    };
    for (object, expected) in [
        (with(0, false, false, false), "grantable"),
        (with(-1, true, false, false), "Waits"),
        (with(0, true, false, false), "Expired false"),
        (with(0, false, true, false), "Denied Refused"),
        (with(0, false, false, true), "Deleted false"),
    ] {
        assert_eq!(state(object), expected);
    }
    let unconfirmed = Object {
        has_unread_predecessor: true,
        ..with(0, false, true, false)
    };
    assert_eq!(state(unconfirmed), "needs predecessor");
}
