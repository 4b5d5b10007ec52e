use oz_admission::{Endpoint, Manager};
use oz_core::kinds::Entry;
use serde_json::json;

use super::*;

fn freeze(duration: &str) -> Freeze {
    let metadata = json!({"name": "a", "creationTimestamp": Timestamp::UNIX_EPOCH});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"duration": duration}})).unwrap()
}

/// Returns the audit records of one pass, which runs as in the engine.
fn pass(second: i64, freeze: &mut Freeze, live: &mut Vec<Live>) -> Vec<Record> {
    let now = Timestamp::constant(second, 0);
    let decision = Freezes.decide(now, freeze, &(), live).decided().unwrap();
    let mut records = Vec::new();
    for step in decision.plan.steps().cloned() {
        match step {
            Step::Record(record) => records.push(record),
            Step::Apply(Child { resource, object }) => live.push(Live { resource, object }),
            _ => live.clear(),
        }
    }
    let mut outcome = Outcome::default();
    outcome.live.clone_from(live);
    freeze.status = Some(Freezes.status(now, freeze, &decision, &outcome));
    records
}

#[test]
fn freeze_lasts_until_expiry_unless_drift_is_detected() {
    for (end, meddled, reason) in [(60, false, "Expired"), (59, true, "DriftDetected")] {
        let (mut freeze, mut live) = (freeze("1m"), Vec::new());
        assert_eq!(pass(1, &mut freeze, &mut live)[0].reason, "Success");
        assert!(pass(59, &mut freeze, &mut live).is_empty() && live.len() == 1);
        if meddled {
            live[0].object.data = json!({});
        }
        assert_eq!(pass(end, &mut freeze, &mut live)[0].reason, reason);
        assert!(freeze.status.as_ref().unwrap().phase.is_terminal());
        assert!(pass(61, &mut freeze, &mut live).is_empty() && live.is_empty());
    }
}

#[tokio::test]
async fn registry_hook_and_explanation_go_by_the_same() {
    assert!(Entry::from_type::<Freeze>().is_called("frz"));
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1".parse().unwrap()));
    let manager = Manager::builder(client.unwrap(), "example").hook(hook());
    let manager = manager.endpoint(Endpoint::Url("https://127.0.0.1".to_owned()));
    let manager = manager.build().unwrap();
    for (duration, says) in [("1m", "until 1970"), ("soon", "spec.duration")] {
        let freeze = freeze(duration);
        assert!(explain(Timestamp::UNIX_EPOCH, &freeze).contains(says));
        let kind = json!({
            "group": "example.wizardofoz.co", "version": "v1", "kind": "Freeze", "resource": "freezes",
        });
        let request = json!({"uid": "1", "operation": "CREATE", "object": freeze, "kind": kind, "resource": kind});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string();
        let reply = manager.review("/validate/freeze", review.as_bytes()).await;
        let answer: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(answer["response"]["allowed"], duration == "1m", "{answer}");
    }
}
