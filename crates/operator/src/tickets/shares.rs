//! The shares of users of the stored results.

use std::path::Path;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use oz_core::tickets::{Checks, Person, Subject};
use oz_outbound::Proxies;
use parking_lot::Mutex;
use serde_json::json;

use super::{Entry, Key, Known, MOST, Query, SHARE, TicketChecks};

/// The ticket checks of a configuration with the check `jira` and an interval of a minute, and their clock.
fn checks() -> (TicketChecks, Arc<Mutex<Timestamp>>) {
    let checks = json!({"checks": {
        "jira": {"url": "https://jira.test/{ticket}", "accept": "status == 200"},
    }});
    let checks: Checks = serde_json::from_value(checks).unwrap();
    let now = Arc::new(Mutex::new(Timestamp::UNIX_EPOCH));
    let clock = {
        let now = Arc::clone(&now);
        move || *now.lock()
    };
    let proxies = Proxies::default();
    let checks = TicketChecks::new(&checks, Path::new("/etc/oz"), proxies, clock);
    (checks.unwrap(), now)
}

fn key(ticket: &str) -> Key {
    (Subject::Ticket(ticket.to_owned()), "jira".to_owned())
}

/// Admits the queries of a user for this number of tickets, and returns how many were admitted.
fn fill(checks: &TicketChecks, known: &mut Known, user: &str, count: usize, waits: bool) -> usize {
    let mut admitted = 0;
    for number in 0..count {
        let key = key(&format!("{user}-{number}"));
        if let Ok(entry) = checks.0.admit(known, &key, user, waits) {
            entry.query = Query::Queued;
            admitted += 1;
        }
    }
    admitted
}

#[test]
fn query_beyond_share_of_user_is_denied_while_its_request_waits() {
    // The queries of alice so far, and the next one: its user and ticket, whether its request waits, and whether it is
    // admitted.
    for (count, user, ticket, waits, expected) in [
        (SHARE - 1, "alice", "INC-1", true, true),
        (SHARE, "alice", "INC-1", true, false),
        (SHARE, "alice", "bob-0", true, false),
        (SHARE, "alice", "alice-0", true, true),
        (SHARE, "alice", "INC-1", false, true),
        (SHARE, "alice", "bob-0", false, true),
        (SHARE, "bob", "INC-1", true, true),
        (SHARE, "bob", "alice-0", true, true),
    ] {
        let (checks, _) = checks();
        let mut known = Known::new();
        assert_eq!(fill(&checks, &mut known, "bob", 1, true), 1);
        assert_eq!(fill(&checks, &mut known, "alice", count, true), count);
        let admitted = checks.0.admit(&mut known, &key(ticket), user, waits);
        let case = format!("{count} {user} {ticket} {waits}");
        assert_eq!(admitted.is_ok(), expected, "{case}");
        if let Err(why) = admitted {
            assert_eq!(why.reason, "TooManyTickets", "{case}");
            assert!(why.message.contains("user alice"), "{case}: {why}");
        }
    }
}

#[test]
fn on_call_query_is_admitted_beyond_share() {
    let (checks, _) = checks();
    let mut known = Known::new();
    assert_eq!(fill(&checks, &mut known, "alice", SHARE, true), SHARE);
    let alice = Person {
        user: "alice".to_owned(),
        ..Person::default()
    };
    let key = (Subject::Requester(alice), "duty".to_owned());
    let admitted = checks.0.admit(&mut known, &key, "alice", true);
    assert!(admitted.is_ok());
}

#[test]
fn grants_of_user_count_for_its_share() {
    let (checks, _) = checks();
    let mut known = Known::new();
    assert_eq!(
        fill(&checks, &mut known, "alice", SHARE + 1, false),
        SHARE + 1
    );
    let admitted = checks.0.admit(&mut known, &key("INC-1"), "alice", true);
    assert!(admitted.is_err());
}

#[test]
fn one_user_leaves_room_for_others_and_all_users_together_have_a_maximum() {
    let (checks, _) = checks();
    let mut known = Known::new();
    assert_eq!(fill(&checks, &mut known, "alice", SHARE + 1, true), SHARE);
    for number in SHARE..MOST - 1 {
        let entry = Entry {
            query: Query::Queued,
            ..Entry::default()
        };
        known.insert(key(&format!("other-{number}")), entry);
    }
    assert_eq!(fill(&checks, &mut known, "bob", 1, true), 1);
    for waits in [true, false] {
        let admitted = checks.0.admit(&mut known, &key("INC-1"), "bob", waits);
        let why = admitted.err().unwrap();
        assert_eq!(why.reason, "TooManyTickets");
        assert!(!why.message.contains("bob"), "{why}");
    }
}

#[test]
fn result_that_user_stopped_using_does_not_count() {
    // Twice the interval of the check, and a minute.
    for (seconds, expected) in [(179, false), (180, true)] {
        let (checks, now) = checks();
        let mut known = Known::new();
        assert_eq!(fill(&checks, &mut known, "alice", SHARE, true), SHARE);
        *now.lock() += SignedDuration::from_secs(seconds);
        let admitted = checks.0.admit(&mut known, &key("INC-1"), "alice", true);
        assert_eq!(admitted.is_ok(), expected, "{seconds}");
    }
}
