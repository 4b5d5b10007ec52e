//! Sessions of two requests that had one name, one after the other: their lists, and the choice of a recording.

use jiff::Timestamp;
use oz_trail::{Action, AuditEvent, AuditEventSpec, Decision, Link, Record, RequestRef};
use serde_json::{Value, json};

use crate::output::{run_commands, shows};
use crate::shop;
use crate::stub::{Answer, ReceivedRequest, Stub, status};

const EVENTS: &str = "GET /apis/crds.wizardofoz.co/v1alpha1/auditevents";
const RECORDINGS: &str =
    "GET /apis/gate.oz.wizardofoz.co/v1alpha1/namespaces/shop/gates/mine/recordings";
const FIRST: &str = "9cd5a2fc-0000-4000-8000-5f3a00000001";
const SECOND: &str = "9cd5a2fc-0000-4000-8000-5f3a00000002";

/// Returns the audit records of an ended session and of its recording.
fn session(number: u8, uid: &str) -> [Value; 2] {
    let key = format!("shop/mine/2026010{number}t120000000z-gate-0");
    let at: Timestamp = format!("2026-01-0{number}T12:04:00Z").parse().unwrap();
    let event = |action, reason: &str| {
        let record = Record {
            request: RequestRef {
                kind: "ExecAccessRequest".to_owned(),
                namespace: "shop".to_owned(),
                name: "mine".to_owned(),
                uid: uid.to_owned(),
            },
            ..Record::about(at, action, Decision::End, &key, reason, "it is over")
        };
        let record = record
            .detail("session", key.clone())
            .detail("way", "exec")
            .detail("openedAt", format!("2026-01-0{number}T12:00:00Z"))
            .detail("parts", "1");
        let link = Link::default();
        let event = AuditEvent::new(&record.id.clone(), AuditEventSpec { link, record });
        serde_json::to_value(event).unwrap()
    };
    [
        event(Action::SessionEnded, "Closed"),
        event(Action::SessionRecorded, "Complete"),
    ]
}

/// Answers as a cluster with these audit records; with none, the user may not read the audit trail.
fn answer(asked: &ReceivedRequest, events: &[Value]) -> Answer {
    match asked.what.as_str() {
        EVENTS if events.is_empty() => status(403, "alice cannot list auditevents"),
        EVENTS => {
            let list = json!({
                "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AuditEventList",
                "metadata": {"resourceVersion": "8"}, "items": events,
            });
            (200, list)
        }
        RECORDINGS => {
            let session = |number: u8| json!({"session": format!("shop/mine/2026010{number}t120000000z-gate-0"), "parts": []});
            (200, json!({"sessions": [session(1), session(2)]}))
        }
        _ => shop::answer(asked),
    }
}

fn cluster(events: Vec<Value>) -> Stub {
    Stub::start(move |asked| answer(asked, &events))
}

#[test]
fn sessions_of_requests_with_one_name_are_distinguished_by_uid() {
    let both = [session(1, FIRST), session(2, SECOND)].concat();
    let stub = cluster(both);
    let by_uid = format!("sessions list {SECOND} -o json");
    let told = run_commands(&stub, &["sessions list", &by_uid, "sessions play mine"]);
    shows(&told, "sessions_of_one_name");
    // The stub has no part of the recording.
    let told = run_commands(&stub, &[&format!("sessions play {FIRST}")]);
    let chosen = "there is no recording of session shop/mine/20260101t120000000z-gate-0";
    assert!(told.contains(chosen), "{told}");
}

#[test]
fn session_of_the_only_request_of_a_name_is_chosen_by_name() {
    let one = [session(1, FIRST), session(2, FIRST)].concat();
    let told = run_commands(&cluster(one), &["sessions list", "sessions play mine"]);
    assert!(!told.contains("UID"), "{told}");
    let last = "there is no recording of session shop/mine/20260102t120000000z-gate-0";
    assert!(told.contains(last), "{told}");
}

#[test]
fn without_the_audit_trail_the_last_recording_of_a_name_is_played_with_a_notice() {
    let told = run_commands(&cluster(Vec::new()), &["sessions play mine"]);
    let notice = "oz: this is the last recording of requests with the name mine";
    assert!(told.contains(notice), "{told}");
    let last = "there is no recording of session shop/mine/20260102t120000000z-gate-0";
    assert!(told.contains(last), "{told}");
}
