//! The conditions under which a process may take a lease, and the time until which its holder may
//! write.

use super::*;

fn lease(holder: Option<&str>, version: &str, renewed: i64) -> Lease {
    Lease {
        metadata: ObjectMeta {
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: holder.map(ToOwned::to_owned),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(jiff::Timestamp::constant(renewed, 0))),
            ..LeaseSpec::default()
        }),
    }
}

#[test]
fn a_lease_without_a_holder_is_free_and_our_own_is_ours() {
    let now = Instant::now();
    for (holder, chance) in [
        (None, Chance::Free),
        (Some(""), Chance::Free),
        (Some("me"), Chance::Ours),
        (Some("other"), Chance::Taken(Duration::from_secs(15))),
    ] {
        let judged = LastSeen::default().judge(&lease(holder, "1", 0), "me", now);
        assert_eq!(judged, chance, "{holder:?}");
    }
    let without_spec = Lease::default();
    assert_eq!(
        LastSeen::default().judge(&without_spec, "me", now),
        Chance::Free
    );
}

#[test]
fn a_silent_holder_loses_the_lease_after_its_duration_by_our_own_clock() {
    let begin = Instant::now();
    let mut seen = LastSeen::default();
    // The wall clock of the holder may have any value.
    for renewed in [0, 4_000_000_000] {
        let held = lease(Some("other"), "1", renewed);
        let left = |milliseconds| Chance::Taken(Duration::from_millis(milliseconds));
        assert_eq!(seen.judge(&held, "me", begin), left(15_000));
        let almost = begin + Duration::from_millis(14_999);
        assert_eq!(seen.judge(&held, "me", almost), left(1));
    }
    let over = begin + Duration::from_secs(15);
    assert_eq!(
        seen.judge(&lease(Some("other"), "1", 0), "me", over),
        Chance::Free
    );
}

#[test]
fn a_holder_that_renews_keeps_the_lease() {
    let begin = Instant::now();
    let mut seen = LastSeen::default();
    for second in 0..60 {
        let held = lease(Some("other"), &second.to_string(), 0);
        let now = begin + Duration::from_secs(second);
        let whole = Chance::Taken(Duration::from_secs(15));
        assert_eq!(seen.judge(&held, "me", now), whole);
    }
}

#[test]
fn writing_is_allowed_until_the_deadline_of_the_last_renewal_and_not_beyond() {
    let leadership = Leadership::none();
    assert!(!leadership.holds());
    leadership.extend(Instant::now() + Duration::from_secs(3_600));
    assert!(leadership.holds());
    leadership.extend(Instant::now());
    assert!(!leadership.holds());
    leadership.extend(Instant::now() + Duration::from_secs(3_600));
    leadership.end();
    assert!(!leadership.holds());
    leadership.always();
    assert!(leadership.holds());
}
