//! The steps of each state of a seed, and its status.

use std::collections::BTreeMap;

use oz_api::harness::{Workspace, WorkspacePhase, WorkspaceStatus};
use oz_api::{Requester, labels};
use oz_core::access::seal::Keys;
use oz_core::access::stamp::Stamp;
use oz_core::controller::{Controller as _, Decision, Live, Outcome, Plan, Step};
use oz_runs::seed::{self, Settings};
use oz_runs::workspace::{Facts, SeedOutcome, State, Workspaces, seeding_ended};
use serde_json::{Value, json};

use crate::now;
use crate::seeds::{self, job, settings, workspace};
use crate::world::live;

pub(crate) fn controller() -> Workspaces {
    Workspaces {
        keys: keys(),
        seeds: settings(),
        require_confined: false,
    }
}

fn keys() -> Keys {
    Keys::with_every_owner([[7; 32]])
}

/// Stamps a workspace as the webhook does at its creation.
fn stamped(mut workspace: Workspace) -> Workspace {
    let stamp = Stamp {
        requester: Requester {
            user: "ada".to_owned(),
            ..Requester::default()
        },
        kind: "Workspace".to_owned(),
        namespace: "birds".to_owned(),
        name: "cage".to_owned(),
        spec_digest: seed::digest(&workspace),
        at: now(),
        nonce: "nonce".to_owned(),
        ..Stamp::default()
    };
    let sealed = stamp.seal(&keys()).unwrap();
    workspace.metadata.creation_timestamp = Some(now().into());
    let annotations = BTreeMap::from([(labels::REQUESTER.to_owned(), sealed)]);
    workspace.metadata.annotations = Some(annotations);
    workspace
}

fn with_status(mut object: Value, status: Value) -> Live {
    object["metadata"]["uid"] = json!("u-2");
    object["status"] = status;
    live(object)
}

fn failed_pod() -> Live {
    live(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "cage-seed-x", "namespace": "birds", "uid": "u-3"},
        "status": {"phase": "Failed", "initContainerStatuses": [{
            "name": "repo-0", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 128, "message": "fatal: repository\n not found\n"}},
        }]},
    }))
}

fn decide(controller: &Workspaces, workspace: &Workspace, live: &[Live]) -> Decision<State> {
    let verdict = controller.decide(now(), workspace, &Facts::default(), live);
    verdict.decided().unwrap()
}

/// The status after that was done.
fn status(controller: &Workspaces, workspace: &Workspace, live: &[Live]) -> WorkspaceStatus {
    let decision = decide(controller, workspace, live);
    let outcome = Outcome {
        live: live.to_vec(),
        ..Outcome::default()
    };
    controller.status(now(), workspace, &decision, &outcome)
}

/// Returns the steps in words, the phase, and the reason and message of Ready.
fn decided(
    controller: &Workspaces,
    workspace: &Workspace,
    live: &[Live],
) -> (Vec<String>, Option<WorkspacePhase>, String) {
    let decision = decide(controller, workspace, live);
    let status = status(controller, workspace, live);
    let ready = status.conditions.iter().find(|it| it.type_ == "Ready");
    let why = ready.map(|it| format!("{}: {}", it.reason, it.message));
    (words(&decision.plan), status.phase, why.unwrap_or_default())
}

fn claim() -> Live {
    live(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "ws-cage", "namespace": "birds", "uid": "u-4"},
    }))
}

fn words(plan: &Plan) -> Vec<String> {
    let word = |step: &Step| match step {
        Step::Apply(child) => format!("apply {}", child.resource.kind),
        Step::Delete(target) => format!("delete {}", target.key().kind),
        Step::Hold(_) => "hold".to_owned(),
        Step::Release(_) => "release".to_owned(),
        other => format!("{other:?}"),
    };
    plan.stages.iter().flatten().map(word).collect()
}

#[test]
fn workspace_is_seeded_before_runs_use_it_and_cleaned_up_after() {
    let one = workspace(json!([{"url": "https://git.test/a.git"}]));
    let controller = controller();
    let policy = || with_status(seeds::policy(&one), json!({}));
    let job = |status: Value| with_status(job(&one), status);
    let condition = |type_: &str| json!({"conditions": [{"type": type_, "status": "True"}]});

    let (steps, phase, why) = decided(&controller, &one, &[]);
    assert_eq!(
        steps,
        [
            "apply PersistentVolumeClaim",
            "hold",
            "apply NetworkPolicy",
            "apply Job"
        ]
    );
    assert_eq!(phase, Some(WorkspacePhase::Seeding));
    assert!(why.starts_with("Seeding: "), "{why}");

    let (_, phase, why) = decided(
        &controller,
        &one,
        &[policy(), job(condition("Failed")), failed_pod()],
    );
    assert_eq!(phase, Some(WorkspacePhase::Failed));
    assert!(
        why.contains("SeedJobFailed: Job cage-seed failed: fatal: repository not found"),
        "{why}"
    );

    let (steps, phase, _) = decided(&controller, &one, &[policy(), job(condition("Complete"))]);
    assert_eq!(phase, Some(WorkspacePhase::Active));
    assert!(
        !steps.iter().any(|step| step.starts_with("delete")),
        "{steps:?}"
    );

    // Once that is told, nothing is cloned again, whatever became of the Job; the pod goes before its policy.
    let mut told = one.clone();
    told.status = serde_json::from_value(json!({"pvcName": "ws-cage", "conditions": [{
        "type": "Seeded", "status": "True", "reason": "SeedJobSucceeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}))
    .unwrap();
    told.metadata.finalizers = Some(vec!["paddock.dev/workspace-finalizer".to_owned()]);
    let steps = |live: &[Live]| decided(&controller, &told, live).0;
    assert_eq!(
        steps(&[claim(), policy(), job(condition("Complete"))]),
        ["delete Job"]
    );
    assert_eq!(steps(&[claim(), policy()]), ["delete NetworkPolicy"]);
    assert_eq!(steps(&[claim()]), ["release"]);
    // Nobody tells of what we deleted ourselves: it is looked for again.
    let decision = decide(&controller, &told, &[claim(), policy()]);
    assert!(decision.plan.wake.is_some());
}

#[test]
fn deleted_workspace_ends_seeding_first() {
    let mut one = workspace(json!([{"url": "https://git.test/a.git"}]));
    one.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    one.metadata.finalizers = Some(vec!["paddock.dev/workspace-finalizer".to_owned()]);
    let controller = controller();
    let policy = with_status(seeds::policy(&one), json!({}));
    let running = with_status(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "birds"}}),
        json!({"phase": "Running"}),
    );
    let job = with_status(job(&one), json!({}));
    let steps = |live: &[Live]| decided(&controller, &one, live).0;
    assert_eq!(
        steps(&[policy.clone(), job, running.clone()]),
        ["delete Job", "delete Pod"]
    );
    assert_eq!(steps(&[policy.clone(), running]), ["delete Pod"]);
    assert_eq!(steps(&[policy]), ["delete NetworkPolicy"]);
    assert_eq!(steps(&[]), ["release"]);
}

#[test]
fn invalid_repository_fails_workspace_with_reason() {
    let https = "https://git.test/a.git";
    let with_image = controller();
    let without_image = Workspaces {
        seeds: Settings::default(),
        ..controller()
    };
    for (controller, repos, reason) in [
        (&without_image, json!([{"url": https}]), "SeedImageMissing"),
        (
            &with_image,
            json!([{"url": "http://git.test/a.git"}]),
            "SeedRejected",
        ),
        (
            &with_image,
            json!([{"url": https, "path": "../a"}]),
            "SeedRejected",
        ),
        (
            &with_image,
            json!([{"url": https, "brokerCredentialRef": {"name": "a", "key": "b"}}]),
            "CredentialsNotServed",
        ),
    ] {
        let (steps, phase, why) = decided(controller, &workspace(repos.clone()), &[]);
        assert_eq!(steps, ["apply PersistentVolumeClaim"], "{repos}");
        assert_eq!(phase, Some(WorkspacePhase::Failed), "{repos}");
        assert!(why.starts_with(reason), "{repos}: {why}");
    }
}

/// A user who may write Workspaces while no webhook reviews them would read any Secret of the namespace by a seed.
#[test]
fn r31_seed_without_reviewed_author_gets_no_secret() {
    let controller = controller();
    let with = |secret: &str| {
        let secret = json!({"name": secret});
        workspace(json!([{"url": "https://git.test/a.git", "credentialsSecretRef": secret}]))
    };
    let mut other = stamped(with("key"));
    other.spec = with("other").spec;
    let mut renamed = stamped(with("key"));
    renamed.metadata.name = Some("aviary".to_owned());
    for (what, one) in [
        ("none", with("key")),
        ("for other Secrets", other),
        ("for another workspace", renamed),
    ] {
        let (steps, phase, why) = decided(&controller, &one, &[]);
        assert_eq!(steps, ["apply PersistentVolumeClaim"], "{what}");
        assert_eq!(phase, Some(WorkspacePhase::Failed), "{what}");
        assert!(why.starts_with("NotStamped: "), "{what}: {why}");
    }
    let plain = workspace(json!([{"url": "https://git.test/a.git"}]));
    for one in [stamped(with("key")), plain] {
        let (steps, phase, _) = decided(&controller, &one, &[]);
        assert!(steps.contains(&"apply Job".to_owned()), "{steps:?}");
        assert_eq!(phase, Some(WorkspacePhase::Seeding));
    }
    // What was filled before there were stamps stays.
    let mut filled = with("key");
    filled.status = serde_json::from_value(json!({"pvcName": "ws-cage", "conditions": [{
        "type": "Seeded", "status": "True", "reason": "SeedJobSucceeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}))
    .unwrap();
    let (_, phase, why) = decided(&controller, &filled, &[claim()]);
    assert_eq!(phase, Some(WorkspacePhase::Active), "{why}");
}

/// A repository without end, or a server that stops in the middle: the Job is ended, and its pods go with it.
#[test]
fn a_seed_that_takes_too_long_says_so() {
    let one = workspace(json!([{"url": "https://git.test/a.git"}]));
    let status = json!({"conditions": [{
        "type": "Failed", "status": "True", "reason": "DeadlineExceeded",
        "message": "Job was active longer than specified deadline",
    }]});
    for live in [
        vec![with_status(job(&one), status.clone())],
        // Of an attempt before.
        vec![with_status(job(&one), status), failed_pod()],
    ] {
        let (_, phase, why) = decided(&controller(), &one, &live);
        assert_eq!(phase, Some(WorkspacePhase::Failed));
        assert!(why.contains("not cloned within 30 minutes"), "{why}");
    }
}

/// A pod that was made so many seconds ago, with this status of its first container.
fn pod(seconds: i64, status: Value) -> Live {
    let made = now() - jiff::SignedDuration::from_secs(seconds);
    live(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "cage-seed-x", "namespace": "birds", "uid": "u-3", "creationTimestamp": made.to_string(),
        },
        "status": status,
    }))
}

fn first(state: Value) -> Value {
    json!({"phase": "Pending", "initContainerStatuses": [{
        "name": "repo-0", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    }]})
}

#[test]
fn seed_pod_that_does_not_start_is_reported_with_possible_causes() {
    let one = workspace(json!([
        {"url": "https://git.test/a.git", "path": "a", "credentialsSecretRef": {"name": "key"}},
        {"url": "https://git.test/b.git", "path": "b", "credentialsSecretRef": {"name": "key"}},
        {"url": "https://git.test/c.git", "path": "c", "credentialsSecretRef": {"name": "other"}},
    ]));
    let controller = controller();
    let job = || with_status(job(&one), json!({}));
    let creating = || first(json!({"waiting": {"reason": "PodInitializing"}}));
    let usual = "Seeding: its repositories are being cloned";
    let lacks = "Seeding: its repositories are to be cloned: Pod cage-seed-x has not started; \
                 check that these Secrets of its credentialsSecretRefs exist: key, other";
    let image = json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}});
    let unscheduled = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes",
    }]});
    for (pod, expected) in [
        (pod(1, creating()), usual),
        (pod(60, creating()), lacks),
        (pod(60, json!({"phase": "Pending"})), lacks),
        (
            pod(60, first(image)),
            "Seeding: its repositories are to be cloned: container repo-0 waits: ErrImagePull: no such image",
        ),
        (
            pod(60, unscheduled),
            "Seeding: its repositories are to be cloned: no node takes the pod: 0/1 nodes",
        ),
        (pod(60, first(json!({"running": {}}))), usual),
        (
            pod(60, first(json!({"terminated": {"exitCode": 0}}))),
            usual,
        ),
    ] {
        let (_, phase, why) = decided(&controller, &one, &[job(), pod.clone()]);
        assert_eq!(phase, Some(WorkspacePhase::Seeding));
        assert_eq!(why, expected, "{:?}", pod.object.data);
    }
    // It is looked at again when it is late.
    let decision = decide(&controller, &one, &[job(), pod(1, creating())]);
    let wake = decision.plan.wake.unwrap();
    assert!(wake > now() && wake < now() + jiff::SignedDuration::from_secs(10));
    let decision = decide(&controller, &one, &[job(), pod(60, creating())]);
    assert_eq!(decision.plan.wake, None);
}

#[test]
fn nothing_is_filled_once_the_claim_is_lost() {
    let mut one = workspace(json!([{"url": "https://git.test/a.git"}]));
    one.status = serde_json::from_value(json!({"pvcName": "ws-cage"})).unwrap();
    let controller = controller();
    let (steps, phase, why) = decided(&controller, &one, &[]);
    assert_eq!(phase, Some(WorkspacePhase::Failed));
    assert!(why.starts_with("ClaimLost"), "{why}");
    assert!(
        !steps.iter().any(|step| step.starts_with("apply")),
        "{steps:?}"
    );
}

#[test]
fn how_a_seeding_goes_is_an_event_once_and_how_long_it_took_is_known() {
    let mut one = workspace(json!([{"url": "https://git.test/a.git"}]));
    let controller = controller();
    let condition = |type_: &str| json!({"conditions": [{"type": type_, "status": "True"}]});
    let job = |status: Value| {
        with_status(
            job(&workspace(json!([{"url": "https://git.test/a.git"}]))),
            status,
        )
    };
    let mut told = Vec::new();
    for live in [
        vec![claim()],
        vec![claim(), job(json!({}))],
        vec![claim(), job(condition("Failed")), failed_pod()],
        vec![claim(), job(condition("Failed")), failed_pod()],
        vec![claim(), job(json!({}))],
        vec![claim(), job(condition("Complete"))],
        vec![claim()],
    ] {
        let after = status(&controller, &one, &live);
        let before = one.status.take();
        let events = controller.transitions(&one, before.as_ref(), &after);
        told.extend(events.into_iter().map(|event| event.reason));
        if let Some((since, outcome)) = seeding_ended(before.as_ref(), &after) {
            assert_eq!(since, now());
            told.push(match outcome {
                SeedOutcome::Succeeded => "took so long",
                SeedOutcome::Failed => "failed after so long",
            });
        }
        one.status = Some(after);
    }
    assert_eq!(
        told,
        [
            "SeedStarted",
            "SeedFailed",
            "failed after so long",
            "SeedStarted",
            "Seeded",
            "took so long",
        ]
    );
}
