use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_core::access::policy::{Extra, Rule};
use serde_json::json;

use super::*;

fn keys() -> Keys {
    Keys::with_every_owner([[7; 32]])
}

fn second(second: i64) -> Timestamp {
    Timestamp::constant(second, 0)
}

/// Creates the stamp of an object by a user at this second.
fn stamped(user: &str, kind: &str, spec_digest: String, at: i64) -> Stamp {
    Stamp {
        requester: Requester {
            user: user.into(),
            ..Requester::default()
        },
        kind: kind.into(),
        namespace: "shop".into(),
        name: user.into(),
        spec_digest,
        at: second(at),
        nonce: user.into(),
        ..Stamp::default()
    }
}

fn annotations(stamp: &Stamp) -> Option<BTreeMap<String, String>> {
    let sealed = stamp.seal(&keys()).unwrap();
    Some([(labels::REQUESTER.to_owned(), sealed)].into())
}

/// Creates ada's pause of an hour, which carol must approve within ten minutes if an access policy says so.
fn requested(needs_approval: bool) -> Pause {
    let metadata = json!({
        "name": "ada", "namespace": "shop", "uid": "u-1", "creationTimestamp": second(0),
    });
    let pause = json!({"metadata": metadata, "spec": {"duration": "1h"}});
    let mut pause: Pause = serde_json::from_value(pause).unwrap();
    let rule = Rule {
        name: "prod/security".into(),
        groups: Vec::new(),
        users: vec!["ada".into(), "carol".into()],
        approvals: 1,
        silent: false,
        unless: Vec::new(),
        escalation: None,
    };
    let stamp = Stamp {
        judgement: needs_approval.then(|| Judgement {
            approval: Some(Extra {
                rules: vec![rule],
                timeout: "10m".into(),
                require_reason: false,
            }),
            ..Judgement::default()
        }),
        ..stamped("ada", "Pause", pause.spec_digest(), 0)
    };
    pause.metadata.annotations = annotations(&stamp);
    pause
}

/// Creates the approval or denial of a user, as the webhook stamps it.
fn answer(pause: &Pause, user: &str, approval: bool, at: i64) -> AccessRequestApproval {
    let spec = AccessRequestApprovalSpec {
        access_request_ref: AccessRequestReference {
            kind: ApprovedKind::TransientRoleBinding,
            name: "ada".into(),
            uid: "u-1".into(),
        },
        approval,
        reason: None,
        digest: pause.status().approval.unwrap().digest,
    };
    let mut answer = AccessRequestApproval::new(user, spec);
    let stamp = stamped(user, "AccessRequestApproval", answer.spec_digest(), at);
    answer.metadata.namespace = Some("shop".into());
    answer.metadata.creation_timestamp = Some(Time(second(at)));
    answer.metadata.annotations = annotations(&stamp);
    answer
}

fn lock(user: &str) -> Locks {
    let lock = json!({
        "metadata": {"name": "incident-7"},
        "spec": {"target": {"user": user}, "reason": "stolen laptop"},
    });
    Locks {
        all: vec![Arc::new(serde_json::from_value(lock).unwrap())],
        unreadable: 0,
    }
}

/// Returns the actions and reasons of the audit records of one pass, which runs as in the engine.
fn pass(at: i64, pause: &mut Pause, facts: &Facts, live: &mut Vec<Live>) -> Vec<String> {
    let pauses = Pauses(keys());
    let verdict = pauses.decide(second(at), pause, facts, live);
    let decision = verdict.decided().unwrap();
    let mut records = Vec::new();
    for step in decision.plan.steps().cloned() {
        match step {
            Step::Record(record) => records.push(format!("{} {}", record.action, record.reason)),
            Step::Apply(Child { resource, object }) => live.push(Live { resource, object }),
            _ => live.clear(),
        }
    }
    let outcome = Outcome {
        live: live.clone(),
        failure: decision.plan.obstacle.clone(),
        ..Outcome::default()
    };
    pause.status = Some(pauses.status(second(at), pause, &decision, &outcome));
    records
}

/// Creates a pause that lasts, with its ConfigMap.
fn active() -> (Pause, Vec<Live>) {
    let (mut pause, mut live) = (requested(false), Vec::new());
    let records = pass(1, &mut pause, &Facts::default(), &mut live);
    assert_eq!(records, ["AccessGranted Success"]);
    assert_eq!((pause.status().phase, live.len()), (Phase::Active, 1));
    (pause, live)
}

#[test]
fn pause_begins_after_approval_by_another_user() {
    let (mut pause, mut live, mut facts) = (requested(true), Vec::new(), Facts::default());
    let asked = pass(1, &mut pause, &facts, &mut live);
    assert_eq!(asked, ["ApprovalRequested Waiting"]);
    assert_eq!(pass(2, &mut pause, &facts, &mut live), [""; 0]);
    facts.approvals = vec![answer(&pause, "ada", true, 3)];
    assert_eq!(pass(4, &mut pause, &facts, &mut live), [""; 0]);
    assert!(live.is_empty());
    facts.approvals = vec![answer(&pause, "carol", true, 5)];
    let granted = pass(6, &mut pause, &facts, &mut live);
    assert_eq!(granted, ["AccessGranted Success"]);
    assert_eq!((pause.status().phase, live.len()), (Phase::Active, 1));
    let ended = pass(3600, &mut pause, &facts, &mut live);
    assert_eq!(ended, ["AccessExpired Expired"]);
    assert_eq!((pause.status().phase, live.len()), (Phase::Expired, 0));
}

#[test]
fn denied_and_late_pauses_never_begin() {
    for (at, approval, phase) in [(6, Some(false), Phase::Denied), (600, None, Phase::Expired)] {
        let (mut pause, mut live, mut facts) = (requested(true), Vec::new(), Facts::default());
        pass(1, &mut pause, &facts, &mut live);
        let given = approval.map(|approval| answer(&pause, "carol", approval, 5));
        facts.approvals.extend(given);
        pass(at, &mut pause, &facts, &mut live);
        assert_eq!((pause.status().phase, live.len()), (phase, 0), "{at}");
    }
}

#[test]
fn lock_denies_pause_and_ends_pause_that_lasts() {
    let locked = |user: &str| Facts {
        locks: lock(user),
        ..Facts::default()
    };
    let (mut denied, mut live) = (requested(false), Vec::new());
    let records = pass(1, &mut denied, &locked("ada"), &mut live);
    assert_eq!(records, ["RequestDenied Locked"]);
    assert_eq!((denied.status().phase, live.len()), (Phase::Denied, 0));

    let (mut pause, mut live) = active();
    assert_eq!(pass(2, &mut pause, &locked("bob"), &mut live), [""; 0]);
    let records = pass(3, &mut pause, &locked("ada"), &mut live);
    assert_eq!(records, ["AccessRevoked Locked"]);
    assert_eq!((pause.status().phase, live.len()), (Phase::Revoked, 0));
}

#[test]
fn changed_or_copied_pause_is_revoked_or_denied() {
    let (mut pause, mut live) = active();
    live[0].object.data = json!({});
    let records = pass(2, &mut pause, &Facts::default(), &mut live);
    assert_eq!(records, ["AccessRevoked DriftDetected"]);

    let (mut copied, mut live) = (requested(false), Vec::new());
    let facts = Facts {
        same_stamp: Some("first".into()),
        ..Facts::default()
    };
    let records = pass(1, &mut copied, &facts, &mut live);
    assert_eq!(records, ["RequestDenied StampReplayed"]);
    assert!(live.is_empty());
}

#[test]
fn kind_has_at_most_300_lines_of_code() {
    let code = include_str!("main.rs").lines().map(str::trim);
    let code = code.filter(|line| !line.is_empty() && !line.starts_with("//"));
    assert!((1..=300).contains(&code.count()));
}
