//! Reduced objects lead to the same decisions as complete objects, and are small.

use jiff::SignedDuration;
use oz_api::harness::{HarnessRun, HarnessRunStatus, RunPhase};
use oz_api::labels;
use oz_core::controller::{Controller as _, Decision, Live, Outcome, Verdict};
use oz_runs::lean;
use oz_runs::run::{Facts, State};
use serde_json::{Value, json};

use crate::now;
use crate::runs::Begun;
use crate::starting::pod;
use crate::world::live;

/// The pod of an agent that ended with this exit code.
fn ended_pod(exit_code: i64) -> Value {
    let phase = match exit_code {
        0 => "Succeeded",
        _ => "Failed",
    };
    let terminated = |message: Option<&str>, code: i64| json!({"terminated": {"exitCode": code, "message": message, "reason": "Completed"}});
    let container = |name: &str, state: Value| {
        json!({
            "name": name, "state": state, "image": "registry.test/parrot:1", "imageID": "sha256:1",
            "containerID": "containerd://1", "ready": false, "restartCount": 0, "started": false,
        })
    };
    let outputs = json!({"summary": "it spoke"}).to_string();
    pod(&json!({
        "phase": phase, "startTime": now(), "hostIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.2"}],
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}],
        "containerStatuses": [container("agent", terminated(None, exit_code))],
        "initContainerStatuses": [container("oz", terminated(Some(&outputs), 0)),
            container("runtime", terminated(Some(&outputs), 0))],
    }))
}

fn ended_job(begun: &Begun, type_: &str) -> Value {
    let mut job = begun.job.clone();
    let condition = json!({"type": type_, "status": "True", "lastTransitionTime": now()});
    job["status"] = json!({
        "startTime": now(), "completionTime": now(), "succeeded": 1, "conditions": [condition],
    });
    job
}

fn leaned(whole: &Live, lean: fn(&mut kube::core::DynamicObject)) -> Live {
    let mut live = whole.clone();
    lean(&mut live.object);
    live
}

fn decided(begun: &Begun, run: &HarnessRun, known: &[Live]) -> (Decision<State>, HarnessRunStatus) {
    let at = now() + SignedDuration::from_secs(5);
    let Verdict::Decided(decision) = begun.controller.decide(at, run, &Facts::default(), known)
    else {
        panic!("a question");
    };
    let outcome = Outcome {
        live: known.to_vec(),
        ..Outcome::default()
    };
    let status = begun.controller.status(at, run, &decision, &outcome);
    (decision, status)
}

#[test]
fn run_ends_alike_with_lean_job_and_pod() {
    let begun = Begun::new();
    for (type_, exit_code, phase) in [
        ("Complete", 0, RunPhase::Succeeded),
        ("Failed", 3, RunPhase::Failed),
    ] {
        let (job, pod) = (live(ended_job(&begun, type_)), live(ended_pod(exit_code)));
        let kept = [leaned(&job, lean::job), leaned(&pod, lean::pod)];
        let whole = decided(&begun, &begun.run, &[begun.policy.clone(), job, pod]);
        assert_eq!(whole.1.phase, Some(phase));
        assert!(
            whole.1.oz_image.is_some() && whole.1.outputs.is_some(),
            "{:?}",
            whole.1
        );
        let [job, pod] = kept;
        for (what, one, most) in [("Job", &job, 3_000), ("pod", &pod, 2_000)] {
            let length = serde_json::to_string(&one.object).unwrap().len();
            assert!(length < most, "{length} bytes of the {what}");
        }
        let kept = decided(&begun, &begun.run, &[begun.policy.clone(), job, pod]);
        assert_eq!(kept, whole);
    }
}

#[test]
fn unended_job_or_pod_is_kept_in_full() {
    let begun = Begun::new();
    let mut failing = ended_job(&begun, "FailureTarget");
    failing["status"]["completionTime"] = json!(null);
    for whole in [live(begun.job.clone()), live(failing)] {
        assert_eq!(leaned(&whole, lean::job).object, whole.object);
    }
    for phase in ["Pending", "Running"] {
        let whole = live(pod(&json!({"phase": phase})));
        assert_eq!(leaned(&whole, lean::pod).object, whole.object);
    }
}

#[test]
fn possibly_ended_object_is_recognized_by_its_text() {
    let begun = Begun::new();
    let may = |whole: &Value| {
        let text = whole.to_string();
        lean::may_have_ended(|field, value| text.contains(&format!("\"{field}\":{value}")))
    };
    assert!(may(&ended_pod(0)) && may(&ended_pod(1)));
    assert!(may(&ended_job(&begun, "Complete")) && may(&ended_job(&begun, "Failed")));
    assert!(!may(&begun.job) && !may(&pod(&json!({"phase": "Running"}))));
}

#[test]
fn lean_ended_run_is_deleted_at_its_time() {
    let mut begun = Begun::new();
    assert_eq!(lean::run(begun.run.clone()), begun.run, "it is not over");
    begun.run.spec.ttl_seconds_after_finished = Some(60);
    begun.run.spec.prompt = Some("a long prompt".repeat(1_000));
    begun
        .run
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert("a".to_owned(), "b".to_owned());
    let (job, pod) = (live(ended_job(&begun, "Complete")), live(ended_pod(0)));
    let (_, status) = decided(&begun, &begun.run, &[begun.policy.clone(), job.clone()]);
    begun.run.status = Some(status);

    let kept = lean::run(begun.run.clone());
    let length = serde_json::to_string(&kept).unwrap().len();
    assert!(length < 1_500, "{length} bytes");
    let annotations = kept.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), [labels::REQUESTER]);
    let whole = decided(&begun, &begun.run, &[job.clone(), pod.clone()]);
    let (job, pod) = (leaned(&job, lean::job), leaned(&pod, lean::pod));
    let (decision, status) = decided(&begun, &kept, &[job, pod]);
    assert_eq!(decision, whole.0);
    assert!(decision.plan.wake.is_some());
    // Nothing is written.
    assert_eq!(Some(status), kept.status);
}
