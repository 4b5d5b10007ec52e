use k8s_openapi::api::authentication::v1::TokenReviewStatus;
use oz_core::lifecycle::seal::Owner as SealOwner;
use serde_json::{Value, json};

use super::*;

fn review(value: Value) -> TokenReviewStatus {
    serde_json::from_value(value).unwrap()
}

fn good() -> Value {
    json!({
        "authenticated": true,
        "audiences": ["oz-broker"],
        "user": {
            "username": "system:serviceaccount:team:default",
            "uid": "sa-1",
            "groups": ["system:serviceaccounts"],
            "extra": {
                "authentication.kubernetes.io/pod-name": ["hello-x"],
                "authentication.kubernetes.io/pod-uid": ["pod-1"],
            },
        },
    })
}

fn metadata(value: Value) -> ObjectMeta {
    serde_json::from_value(value).unwrap()
}

fn pod() -> Value {
    json!({"name": "hello-x", "uid": "pod-1", "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "hello", "uid": "job-1", "controller": true},
    ]})
}

fn job() -> Value {
    vouched(&keys(1), "team", "hello", "run-1")
}

/// A Job of the run `hello`, with a voucher for a run that these keys have signed.
fn vouched(keys: &Keys, namespace: &str, run: &str, uid: &str) -> Value {
    let signed = RequestRef {
        namespace: namespace.to_owned(),
        name: run.to_owned(),
        uid: uid.to_owned(),
        ..RequestRef::default()
    };
    let voucher = voucher::sign(keys, &signed).unwrap();
    let annotations = json!({"oz.wizardofoz.co/voucher": voucher});
    json!({"name": "hello", "uid": "job-1", "annotations": annotations, "ownerReferences": [{
        "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessRun", "name": "hello", "uid": "run-1",
        "controller": true,
    }]})
}

fn keys(seed: u8) -> Keys {
    Keys::with_every_owner([[seed; 32]])
}

/// Returns the keys of the broker.
fn public() -> Keys {
    let secret = Keys::of_owner(SealOwner::Operator, [1; 32]);
    let keys = Keys::default();
    keys.trust(SealOwner::Operator, &Keys::published(&[secret]))
        .unwrap();
    keys
}

fn us() -> Caller {
    caller(&review(good())).unwrap()
}

fn owner(name: &str, uid: &str) -> Owner {
    Owner {
        name: name.to_owned(),
        uid: uid.to_owned(),
    }
}

fn with(mut value: Value, path: &str, new: Value) -> Value {
    *value.pointer_mut(path).unwrap() = new;
    value
}

fn reason<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> Reason {
    answer.unwrap_err().reason
}

#[test]
fn a_token_is_good_for_the_broker_alone_and_bound_to_a_pod() {
    let us = us();
    assert_eq!(
        (us.namespace.as_str(), us.pod.as_str()),
        ("team", "hello-x")
    );
    assert_eq!(us.uid, "pod-1");
    for (path, new) in [
        ("/authenticated", json!(false)),
        ("/authenticated", json!(null)),
        ("/audiences", json!(["https://kubernetes.default.svc"])),
        ("/audiences", json!([])),
        ("/audiences", json!(null)),
        ("/user", json!(null)),
    ] {
        let refused = caller(&review(with(good(), path, new)));
        assert_eq!(reason(refused), Reason::Unauthenticated, "{path}");
    }
    let pod_uid = "/user/extra/authentication.kubernetes.io~1pod-uid";
    let pod_name = "/user/extra/authentication.kubernetes.io~1pod-name";
    for (path, new) in [
        ("/user/username", json!("alice")),
        ("/user/username", json!("system:node:one")),
        ("/user/extra", json!(null)),
        (pod_uid, json!([])),
        (pod_uid, json!([""])),
        (pod_uid, json!(["pod-1", "pod-2"])),
        (pod_name, json!([])),
    ] {
        let refused = caller(&review(with(good(), path, new)));
        assert_eq!(reason(refused), Reason::NoPod, "{path}");
    }
}

#[test]
fn a_token_says_when_it_ends() {
    // {"exp": 1790000000, "aud": ["oz-broker"]}
    let token = "e30.eyJleHAiOiAxNzkwMDAwMDAwLCAiYXVkIjogWyJvei1icm9rZXIiXX0.c2ln";
    assert_eq!(ends(token).unwrap().as_second(), 1_790_000_000);
    for other in ["", "opaque", "a.b.c", "e30.e30.c2ln"] {
        assert_eq!(ends(other), None, "{other}");
    }
}

#[test]
fn a_pod_is_known_by_its_uid_and_its_controller() {
    let found = job_of(&us(), Some(&metadata(pod())));
    assert_eq!(found, Ok(owner("hello", "job-1")));
    assert_eq!(reason(job_of(&us(), None)), Reason::PodNotFound);
    let other = metadata(with(pod(), "/uid", json!("pod-2")));
    assert_eq!(reason(job_of(&us(), Some(&other))), Reason::PodNotFound);
    for (path, new) in [
        ("/ownerReferences", json!([])),
        ("/ownerReferences/0/controller", json!(false)),
        ("/ownerReferences/0/kind", json!("ReplicaSet")),
        (
            "/ownerReferences/0/apiVersion",
            json!("paddock.dev/v1alpha1"),
        ),
    ] {
        let forged = metadata(with(pod(), path, new));
        assert_eq!(
            reason(job_of(&us(), Some(&forged))),
            Reason::NoRun,
            "{path}"
        );
    }
    // Labels say nothing.
    let labelled =
        json!({"name": "hello-x", "uid": "pod-1", "labels": {"paddock.dev/run": "hello"}});
    assert_eq!(
        reason(job_of(&us(), Some(&metadata(labelled)))),
        Reason::NoRun
    );
}

#[test]
fn a_pod_that_nothing_confines_is_no_runs() {
    let run = owner("hello", "run-1");
    let marked = |uid: &str, kind: &str| {
        let mut pod = pod();
        pod["labels"] =
            json!({"oz.wizardofoz.co/owner-uid": uid, "oz.wizardofoz.co/owner-kind": kind});
        confined(&us(), Some(&metadata(pod)), &run)
    };
    assert_eq!(marked("run-1", "HarnessRun"), Ok(()));
    for refused in [
        marked("run-2", "HarnessRun"),
        marked("run-1", "Workspace"),
        confined(&us(), Some(&metadata(pod())), &run),
        confined(&us(), None, &run),
    ] {
        assert_eq!(reason(refused), Reason::NoRun);
    }
}

#[test]
fn a_job_is_that_of_the_run_of_its_name() {
    let of = owner("hello", "job-1");
    let found = run_of(&us(), &of, Some(&metadata(job())), &public());
    assert_eq!(found, Ok(owner("hello", "run-1")));
    assert_eq!(reason(run_of(&us(), &of, None, &public())), Reason::NoRun);
    for (path, new) in [
        ("/uid", json!("job-2")),
        ("/ownerReferences", json!([])),
        ("/ownerReferences/0/controller", json!(null)),
        ("/ownerReferences/0/kind", json!("Workspace")),
        (
            "/ownerReferences/0/apiVersion",
            json!("paddock.example.org/v1alpha1"),
        ),
        // Somebody's Job that says it is another run's.
        ("/ownerReferences/0/name", json!("secret-run")),
    ] {
        let forged = metadata(with(job(), path, new));
        let refused = run_of(&us(), &of, Some(&forged), &public());
        assert_eq!(reason(refused), Reason::NoRun, "{path}");
    }
}

#[test]
fn job_for_which_the_operator_does_not_vouch_is_no_runs() {
    let of = owner("hello", "job-1");
    let annotations = "/annotations";
    for (what, forged) in [
        ("none", with(job(), annotations, json!(null))),
        (
            "empty",
            with(job(), annotations, json!({"oz.wizardofoz.co/voucher": ""})),
        ),
        ("another key", vouched(&keys(2), "team", "hello", "run-1")),
        ("another run", vouched(&keys(1), "team", "hello", "run-2")),
        ("another name", vouched(&keys(1), "team", "other", "run-1")),
        (
            "another namespace",
            vouched(&keys(1), "else", "hello", "run-1"),
        ),
    ] {
        let refused = run_of(&us(), &of, Some(&metadata(forged)), &public()).unwrap_err();
        assert_eq!(refused.reason, Reason::NoRun, "{what}");
        assert!(refused.message.contains("has no valid seal"), "{refused:?}");
    }
    let refused = run_of(&us(), &of, Some(&metadata(job())), &Keys::default());
    assert_eq!(reason(refused), Reason::NoRun);
}

#[test]
fn caller_of_ended_run_is_known_and_of_missing_run_is_not() {
    let run = metadata(json!({"name": "hello", "uid": "run-1"}));
    let of = owner("hello", "run-1");
    let at = |run: Option<(&ObjectMeta, Option<RunPhase>)>| standing(&us(), &of, run);
    for phase in [
        None,
        Some(RunPhase::Pending),
        Some(RunPhase::Running),
        Some(RunPhase::Idle),
    ] {
        assert_eq!(at(Some((&run, phase))), Ok(RunState::Live), "{phase:?}");
    }
    for phase in [RunPhase::Succeeded, RunPhase::Failed, RunPhase::Cancelled] {
        assert_eq!(at(Some((&run, Some(phase)))), Ok(RunState::Ending));
    }
    let deleted =
        json!({"name": "hello", "uid": "run-1", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(at(Some((&metadata(deleted), None))), Ok(RunState::Ending));
    let again = metadata(json!({"name": "hello", "uid": "run-2"}));
    assert_eq!(reason(at(Some((&again, None)))), Reason::RunNotFound);
    assert_eq!(reason(at(None)), Reason::RunNotFound);
}

#[test]
fn a_job_says_how_many_events_are_kept_within_what_a_status_holds() {
    let says = |text: &str| json!({"annotations": {"oz.wizardofoz.co/recent-events": text}});
    for (job, most) in [
        (says("10"), 10),
        (says("500"), 500),
        (says("100000"), 500),
        (says("-1"), 50),
        (says("many"), 50),
        (json!({}), 50),
    ] {
        assert_eq!(recent_events(&metadata(job)), most);
    }
}

#[test]
fn token_is_for_the_container_of_its_audience_and_for_none_if_it_has_both() {
    let of = |audiences: Value| caller(&review(with(good(), "/audiences", audiences)));
    let proxy = of(json!(["oz-broker-proxy", "https://example.org"])).unwrap();
    assert_eq!(proxy.audience, Audience::Proxy);
    assert_eq!(us().audience, Audience::Reporter);
    for none in [
        json!(["oz-broker", "oz-broker-proxy"]),
        json!(["oz-broker-proxy2"]),
        json!([]),
    ] {
        assert_eq!(reason(of(none)), Reason::Unauthenticated);
    }
    assert_eq!(meant_for(&proxy, Audience::Proxy), Ok(()));
    assert_eq!(
        reason(meant_for(&proxy, Audience::Reporter)),
        Reason::AudienceMismatch
    );
    assert_eq!(
        reason(meant_for(&us(), Audience::Proxy)),
        Reason::AudienceMismatch
    );
}
