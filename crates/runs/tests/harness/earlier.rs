//! Runs that the release before stored, in every state: their decision is literal, without a change ticket and an
//! emergency. Each run ends at its second, and its end is recorded.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use oz_api::harness::RunPhase;
use oz_api::labels;
use oz_core::controller::{Controller as _, Decision, Live, Step, Verdict};
use oz_core::lifecycle::seal::{self, Purpose};
use oz_runs::run::{Facts, State};
use oz_trail::{Action, Record};
use serde_json::{Value, json};

use crate::now;
use crate::runs::{Begun, Submitted};
use crate::world::live;

/// The digest of the spec of [`submitted`], as that release computed it.
const SPEC_DIGEST: &str = "sha256:ea067edd97c7d9ba7800a9a346e5e5164c69c619365465b7b62662d366876dd6";
/// The timeout of [`submitted`].
const TIMEOUT: SignedDuration = SignedDuration::from_secs(60);
const MOMENT: SignedDuration = SignedDuration::from_nanos(1);

/// Returns a run of ada with a timeout of a minute, with the stamp of that release.
fn submitted() -> Submitted {
    let mut submitted = Submitted::new(json!({"timeout": "60s"}));
    let stamp = json!({
        "user": "ada", "groups": ["keepers"], "kind": "HarnessRun", "namespace": "birds",
        "name": "squawk", "specDigest": SPEC_DIGEST, "at": "2026-01-31T09:00:00Z", "nonce": "nonce",
    });
    let sealed = seal::seal(&submitted.controller.keys, Purpose::Stamp, &stamp).unwrap();
    let annotations = BTreeMap::from([(labels::REQUESTER.to_owned(), sealed)]);
    submitted.run.metadata.annotations = Some(annotations);
    submitted
}

/// Returns the sealed text of an object.
fn sealed(object: &Value) -> &str {
    let annotations = &object["metadata"]["annotations"];
    annotations["oz.wizardofoz.co/grant"].as_str().unwrap()
}

/// Returns the decision that this release seals, as the release before sealed it; the digests of template and policies
/// and the voucher are those of `written`.
fn decision(written: &Value) -> Value {
    json!({
        "run": {"kind": "HarnessRun", "namespace": "birds", "name": "squawk", "uid": "u-1"},
        "submitter": {"user": "ada", "groups": ["keepers"]},
        "specDigest": SPEC_DIGEST,
        "template": "HarnessTemplate/parrot",
        "templateDigest": written["templateDigest"],
        "policiesDigest": written["policiesDigest"],
        "image": "parrot:1",
        "timeoutSeconds": 60,
        "voucher": written["voucher"],
        "broker": {"namespace": "oz-system", "labels": {"app": "oz-broker"}, "port": 8443},
        "decidedAt": "2026-01-31T09:00:00Z",
    })
}

/// Returns a run that has begun, with that decision on its NetworkPolicy and its Job.
fn begun() -> Begun {
    let mut begun = Begun::after_start_of(submitted());
    let mut written: Value = serde_json::from_str(sealed(&begun.job)).unwrap();
    written.as_object_mut().unwrap().remove("sig");
    let decision = decision(&written);
    let text = seal::seal(&begun.controller.keys, Purpose::HarnessRun, &decision).unwrap();
    begun.job["metadata"]["annotations"][labels::GRANT] = json!(text);
    let annotations = begun.policy.object.metadata.annotations.as_mut().unwrap();
    annotations.insert(labels::GRANT.to_owned(), text);
    report(&mut begun, "Running", &[]);
    begun
}

/// Sets the status that the release before wrote.
fn report(begun: &mut Begun, phase: &str, conditions: &[Value]) {
    let status = json!({
        "phase": phase, "jobName": "squawk", "observedGeneration": 1, "conditions": conditions,
        "startTime": "2026-01-31T09:00:00Z",
    });
    begun.run.status = Some(serde_json::from_value(status).unwrap());
}

/// Returns the condition that the run is being ended, or has ended.
fn completed(status: &str, reason: &str) -> Value {
    json!({
        "type": "Completed", "status": status, "reason": reason, "message": "as it was",
        "lastTransitionTime": "2026-01-31T09:00:30Z",
    })
}

/// Returns the Job with this status, and its pod.
fn objects(begun: &Begun, status: Value, phase: &str) -> Vec<Live> {
    let mut job = begun.job.clone();
    job["status"] = status;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "squawk-0", "namespace": "birds", "uid": "u-10",
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "squawk", "uid": "u-9", "controller": true,
            }],
        },
        "status": {"phase": phase},
    });
    vec![begun.policy.clone(), live(job), live(pod)]
}

fn running(begun: &Begun) -> Vec<Live> {
    objects(begun, json!({"startTime": now(), "active": 1}), "Running")
}

/// Returns the decision so long after the start.
fn decide(begun: &Begun, after: SignedDuration, known: &[Live]) -> Decision<State> {
    let then = now() + after;
    match begun
        .controller
        .decide(then, &begun.run, &Facts::default(), known)
    {
        Verdict::Decided(decision) => decision,
        Verdict::Need { question, .. } => panic!("{question:?}"),
    }
}

fn records(decision: &Decision<State>) -> Vec<&Record> {
    let steps = decision.plan.steps();
    let records = steps.filter_map(|step| match step {
        Step::Record(record) => Some(record),
        _ => None,
    });
    records.collect()
}

/// Returns the kinds of the deleted objects.
fn deleted(decision: &Decision<State>) -> Vec<&str> {
    let steps = decision.plan.steps();
    let deleted = steps.filter_map(|step| match step {
        Step::Delete(reference) => Some(reference.resource.kind.as_str()),
        _ => None,
    });
    deleted.collect()
}

#[test]
fn decision_of_run_without_new_fields_is_that_of_release_before() {
    let begun = Begun::after_start_of(submitted());
    let mut written: Value = serde_json::from_str(sealed(&begun.job)).unwrap();
    written.as_object_mut().unwrap().remove("sig");
    assert_eq!(written, decision(&written));
}

#[test]
fn run_of_release_before_that_waits_begins() {
    let mut waits = submitted();
    waits.run.status = Some(serde_json::from_value(json!({"phase": "Pending"})).unwrap());
    let state = |known: &[Live]| {
        let later = now() + SignedDuration::from_secs(5);
        let Submitted {
            controller,
            run,
            facts,
        } = &waits;
        match controller.decide(later, run, facts, known) {
            Verdict::Decided(decision) => decision.state,
            Verdict::Need { question, .. } => panic!("{question:?}"),
        }
    };
    match state(&[]) {
        State::Confinable(decided, _) => assert_eq!(decided.submitter.user, "ada"),
        other => panic!("{other:?}"),
    }
    // Its NetworkPolicy exists: the decision is not made again.
    match state(&[begun().policy]) {
        State::Startable(decided, ..) => assert_eq!(decided.decided_at, now()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn running_run_of_release_before_ends_at_its_second() {
    let begun = begun();
    let known = running(&begun);
    match decide(&begun, TIMEOUT - MOMENT, &known).state {
        State::Begun(decided, pending, ..) => {
            assert_eq!(pending.until, Some(now() + TIMEOUT));
            assert!(decided.ticket.is_none() && decided.emergency.is_none());
        }
        other => panic!("{other:?}"),
    }
    let ending = decide(&begun, TIMEOUT, &known);
    match &ending.state {
        State::Ending(end, Some(_)) => assert_eq!(end.reason, "DeadlineExceeded"),
        other => panic!("{other:?}"),
    }
    assert_eq!(deleted(&ending), ["Pod"]);

    let failed = json!({"startTime": now(), "failed": 1, "conditions": [{
        "type": "Failed", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": now(),
    }]});
    let ended = decide(&begun, TIMEOUT, &objects(&begun, failed, "Failed"));
    assert!(matches!(ended.state, State::Ended(..)), "{ended:?}");
    assert_eq!(deleted(&ended), ["NetworkPolicy"]);
    let [record] = records(&ended)[..] else {
        panic!("{ended:?}")
    };
    assert_eq!(record.action, Action::RunEnded);
    assert_eq!(record.reason, "DeadlineExceeded");
    assert_eq!(record.user.as_ref().unwrap().user, "ada");
    assert_eq!(record.details.get("ticket"), None);
}

#[test]
fn end_of_run_that_release_before_began_is_completed() {
    let mut begun = begun();
    report(&mut begun, "Running", &[completed("False", "Locked")]);
    // Also after the timeout.
    for after in [SignedDuration::from_secs(30), TIMEOUT + TIMEOUT] {
        let ending = decide(&begun, after, &running(&begun));
        match &ending.state {
            State::Ending(end, Some(_)) => {
                assert_eq!(
                    (end.phase, end.reason.as_str()),
                    (RunPhase::Cancelled, "Locked")
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(deleted(&ending), ["Job", "Pod"]);
    }
    let known = [begun.policy.clone()];
    let ended = decide(&begun, TIMEOUT, &known);
    let actions: Vec<Action> = records(&ended).iter().map(|record| record.action).collect();
    assert_eq!(actions, [Action::RunEnded]);
    assert_eq!(deleted(&ended), ["NetworkPolicy"]);
}

#[test]
fn deleted_or_ended_run_of_release_before_leaves_nothing() {
    let mut begun = begun();
    let job = live(begun.job.clone());
    let known = [begun.policy.clone(), job];
    let later: Timestamp = now() + TIMEOUT;
    let plan = begun.controller.orphaned(later, None, &known);
    let recorded = plan.steps().find_map(|step| match step {
        Step::Record(record) => Some((record.action, record.reason.as_str())),
        _ => None,
    });
    assert_eq!(recorded, Some((Action::RunEnded, "Deleted")));
    let deletions = plan.steps().filter(|step| matches!(step, Step::Delete(_)));
    assert_eq!(deletions.count(), 2);

    report(
        &mut begun,
        "Failed",
        &[completed("True", "DeadlineExceeded")],
    );
    let over = decide(&begun, TIMEOUT, &known[..1]);
    assert!(matches!(over.state, State::Over), "{over:?}");
    assert_eq!(deleted(&over), ["NetworkPolicy"]);
    assert!(records(&over).is_empty());
}
