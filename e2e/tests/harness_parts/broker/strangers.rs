//! Those who are no pod of a run, or not of the one that they name.

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use oz_api::harness::HarnessRun;
use oz_api::{labels, names};
use oz_e2e::{Auditor, BrokerAnswer, BrokerClient, Scene};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::{AuditEvent, AuditKey, Chain, Writer};
use serde_json::{Value, json};

use super::{AUDIENCE, event, stage, started, summaries};

/// The original accepts any service account of a namespace for each run there that it names.
#[tokio::test]
async fn r35_a_run_is_known_by_the_pod_of_the_token_and_by_nothing_that_is_said() -> Result<()> {
    let (scene, broker) = stage("own").await?;
    let (mine, _, my_token) = started(&scene, "mine", "what I asked").await?;
    let (theirs, _, their_token) = started(&scene, "theirs", "what they asked").await?;
    let says = [
        ("X-Paddock-Run", "theirs"),
        ("X-Paddock-Run-Namespace", scene.name()),
    ];
    let answer = broker
        .send("GET", "/v1/run", &my_token, &says, Vec::new())
        .await?;
    assert_eq!(
        (answer.status, answer.prompt()),
        (200, Some("what I asked"))
    );
    let answer = broker.prompt(&their_token).await?;
    assert_eq!(answer.prompt(), Some("what they asked"));

    let body = json!({
        "events": [event("ToolUse", "by me")], "run": "theirs", "namespace": scene.name(),
        "metadata": {"name": "theirs", "uid": theirs.metadata.uid},
    });
    let body = serde_json::to_vec(&body)?;
    let path = "/v1/report?run=theirs";
    let answer = broker.send("POST", path, &my_token, &says, body).await?;
    assert_eq!(answer.status, 204, "{answer:?}");
    eventually("my events", CONDITION_TIMEOUT, async || {
        Ok((summaries(&scene, &mine).await? == ["by me"]).then_some(()))
    })
    .await?;
    assert!(summaries(&scene, &theirs).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_not_for_the_broker_or_no_pods_gets_nothing() -> Result<()> {
    let (scene, broker) = stage("tokens").await?;
    let (_, pod, good) = started(&scene, "hello", "secret").await?;
    let api_server = "https://kubernetes.default.svc.cluster.local";
    let elsewhere = scene.token("paddock-broker", Some(&pod)).await?;
    let for_api_server = scene.token(api_server, Some(&pod)).await?;
    let unbound = scene.token(AUDIENCE, None).await?;
    let mut cut = good.clone();
    cut.truncate(good.len() - 5);
    for (what, token, code) in [
        ("nothing", "", "Unauthenticated"),
        ("no token", "hello", "Unauthenticated"),
        ("a cut token", &cut, "Unauthenticated"),
        ("another audience", &elsewhere, "Unauthenticated"),
        ("the API server's", &for_api_server, "Unauthenticated"),
        ("a service account's alone", &unbound, "NoPod"),
    ] {
        let status = if code == "NoPod" { 403 } else { 401 };
        for answer in [
            broker.prompt(token).await?,
            broker.report(token, &json!([event("Error", "x")])).await?,
        ] {
            assert_eq!(
                (answer.status, answer.code()),
                (status, code),
                "{what}: {answer:?}"
            );
            assert!(!answer.body.to_string().contains("secret"));
        }
    }
    assert_eq!(broker.prompt(&good).await?.prompt(), Some("secret"));
    Ok(())
}

/// Returns the responses of the broker to both requests of a pod.
async fn both(broker: &BrokerClient, token: &str) -> Result<[BrokerAnswer; 2]> {
    let events = json!([event("Error", "x")]);
    Ok([
        broker.prompt(token).await?,
        broker.report(token, &events).await?,
    ])
}

fn refused(name: &str, answers: &[BrokerAnswer]) {
    for answer in answers {
        assert_eq!(
            (answer.status, answer.code()),
            (403, "NoRun"),
            "{name}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_pod_that_looks_like_a_runs_gets_nothing() -> Result<()> {
    let (scene, broker) = stage("forged").await?;
    let (run, pod, good) = started(&scene, "hello", "secret").await?;
    let labels = json!({
        "paddock.dev/run": "hello", "batch.kubernetes.io/job-name": "hello",
        "oz.wizardofoz.co/owner-uid": run.metadata.uid,
    });
    let owner = |kind: &str, name: &str, uid: &str| {
        json!([{
            "apiVersion": if kind == "Job" { "batch/v1" } else { "paddock.dev/v1alpha1" },
            "kind": kind, "name": name, "uid": uid, "controller": true,
        }])
    };
    let run_uid = run.uid().unwrap_or_default();
    let labelled = scene.own_pod("labelled", labels.clone(), json!([])).await?;
    let plain = scene.own_pod("plain", json!({}), json!([])).await?;
    // The garbage collector takes it away later.
    let of_run = owner("HarnessRun", "hello", &run_uid);
    let of_run = scene.own_pod("of-run", labels, of_run).await?;
    // Somebody's own Job that says that the run is its owner: one more for a run that has one.
    let of_second_job = scene.pod_of_job("second", &run).await?;
    // And a Job that is nobody's, without any label.
    let loose = scene.pod_of_loose_job("loose").await?;
    for pod in [labelled, plain, of_run, of_second_job, loose] {
        let token = scene.token(AUDIENCE, Some(&pod)).await?;
        refused(&pod.name_any(), &both(&broker, &token).await?);
    }
    // In another namespace, with all the same names.
    let (other, _) = stage("forged").await?;
    let pod_there = other
        .own_pod(
            &pod.name_any(),
            json!({"paddock.dev/run": "hello"}),
            json!([]),
        )
        .await?;
    let token = other.token(AUDIENCE, Some(&pod_there)).await?;
    assert_eq!(broker.prompt(&token).await?.code(), "NoRun");

    assert_eq!(broker.prompt(&good).await?.prompt(), Some("secret"));

    // One more pod of the run's own Job, by its own word.
    let job = pod.owner_references().first().context("no owner")?;
    let like = json!({
        "paddock.dev/run": "hello",
        "batch.kubernetes.io/job-name": job.name, "batch.kubernetes.io/controller-uid": job.uid,
    });
    let of_job = owner("Job", &job.name, &job.uid);
    // The Job controller takes such a pod away again, or the run's own: it is to be there still when it was answered.
    let mut tries = 0;
    eventually("such a pod to be refused", CONDITION_TIMEOUT, async || {
        tries += 1;
        let name = format!("of-job-{tries}");
        let pod = scene.own_pod(&name, like.clone(), of_job.clone()).await?;
        let Ok(token) = scene.token(AUDIENCE, Some(&pod)).await else {
            return Ok(None);
        };
        let answers = both(&broker, &token).await?;
        let found = scene.api::<Pod>().get_opt(&name).await?;
        if found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()) {
            return Ok(None);
        }
        refused(&name, &answers);
        Ok(Some(()))
    })
    .await?;
    assert!(summaries(&scene, &run).await?.is_empty());
    Ok(())
}

/// A user who may create Jobs may name a run as the owner of one, and copy the annotations of another.
#[tokio::test]
async fn job_for_which_the_operator_does_not_vouch_is_answered_nothing() -> Result<()> {
    let (scene, broker) = stage("vouched").await?;
    let (_, _, good) = started(&scene, "good", "secret").await?;
    let jobs = scene.api::<Job>();
    let of_good = jobs.get("good").await?;
    let copied = of_good.annotations()[labels::VOUCHER].clone();
    for (name, voucher) in [("none", ""), ("forged", "a:b"), ("copied", copied.as_str())] {
        let run = scene.harness_run(name, "secret").await?;
        let pod = scene.pod_of_vouched_job(name, &run, voucher).await?;
        let token = scene.token(AUDIENCE, Some(&pod)).await?;
        refused(name, &both(&broker, &token).await?);
    }
    assert_eq!(broker.prompt(&good).await?.prompt(), Some("secret"));
    // It counts as it is now.
    let bare = Patch::Merge(json!({"metadata": {"annotations": {labels::VOUCHER: null}}}));
    jobs.patch("good", &PatchParams::default(), &bare).await?;
    eventually(
        "the run's pod to be refused",
        CONDITION_TIMEOUT,
        async || {
            let answer = broker.prompt(&good).await?;
            Ok((answer.code() == "NoRun").then_some(()))
        },
    )
    .await
}

#[tokio::test]
async fn a_run_that_is_deleted_is_nobodys_and_neither_is_one_of_its_name() -> Result<()> {
    let (scene, broker) = stage("deleted").await?;
    let (_, pod, token) = started(&scene, "hello", "before").await?;
    assert_eq!(broker.prompt(&token).await?.prompt(), Some("before"));
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    let runs = scene.api::<HarnessRun>();
    runs.delete("hello", &orphan).await?;
    eventually("the end of the run", CONDITION_TIMEOUT, async || {
        Ok(runs.get_opt("hello").await?.is_none().then_some(()))
    })
    .await?;
    let answer = broker.prompt(&token).await?;
    assert_eq!(answer.status, 403, "{answer:?}");
    scene.harness_run("hello", "after").await?;
    let answer = broker.prompt(&token).await?;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(
        ["NoRun", "RunNotFound"].contains(&answer.code()),
        "{answer:?}"
    );

    let pods = scene.api::<k8s_openapi::api::core::v1::Pod>();
    let now = DeleteParams::default().grace_period(0);
    pods.delete(&pod.name_any(), &now).await?;
    // What the API server said of the token is believed for some seconds, and no pod is.
    eventually("the token to be nobody's", CONDITION_TIMEOUT, async || {
        let answer = broker.prompt(&token).await?;
        Ok((answer.status == 401).then_some(()))
    })
    .await
}

/// The original lets a user who may create events in a namespace forge them for each run there.
#[tokio::test]
async fn r16_run_records_are_written_by_broker_and_cannot_be_forged() -> Result<()> {
    let (scene, broker) = stage("record").await?;
    let unbound = scene.token(AUDIENCE, None).await?;
    let user = format!("system:serviceaccount:{}:default", scene.name());
    assert_eq!(broker.prompt(&unbound).await?.code(), "NoPod");
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    // Here runs no operator, which would vouch for it.
    auditor.pin(names::BROKER).await?;
    let record = eventually("the refusal on record", CONDITION_TIMEOUT, async || {
        let all = auditor.list_for_request(scene.name(), "").await?;
        let of_user = |one: &Value| one["user"]["user"] == user.as_str();
        Ok(all.into_iter().find(of_user))
    })
    .await?;
    assert_eq!(record["action"], "RunRefused");
    assert_eq!(record["decision"], "Deny");
    assert_eq!(record["reason"], "NoPod");
    assert_eq!(record["component"], "oz-broker", "{record}");

    may_create_events(&scene, &user).await?;
    let config = scene
        .cluster
        .issue_kubeconfig(&user, &["system:serviceaccounts"])?;
    let config = Kubeconfig::read_from(config)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let writer = Writer::new("oz-broker", "oz-broker-0", Timestamp::now(), 1);
    // As good a forgery as can be made without the key.
    let (_, entry) = Chain::begin(writer, Timestamp::now(), &[], &AuditKey::new(&[1; 32]));
    let events: Api<AuditEvent> = Api::all(Client::try_from(config)?);
    let forged = AuditEvent::from(entry);
    let refused = events.create(&PostParams::default(), &forged).await;
    let refused = refused.map(|event| event.name_any());
    let why = refused.map_err(|error| error.to_string()).unwrap_err();
    assert!(
        why.contains("only oz writes and deletes AuditEvents"),
        "{why}"
    );

    // Who goes on trying is counted, and fills nothing.
    for _ in 0..40 {
        broker.prompt(&unbound).await?;
    }
    let all = auditor.list_for_request(scene.name(), "").await?;
    assert!(all.len() <= 3, "{all:?}");
    eventually("a trail that is whole", CONDITION_TIMEOUT, async || {
        Ok(auditor.report().await?.is_whole().then_some(()))
    })
    .await
}

async fn may_create_events(scene: &Scene, user: &str) -> Result<()> {
    let name = format!("{}-forges", scene.name());
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": name},
        "rules": [{
            "apiGroups": ["crds.wizardofoz.co", "paddock.dev"], "resources": ["auditevents"],
            "verbs": ["create"],
        }],
    }))?;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }))?;
    let admin = &scene.admin;
    let (roles, bindings): (Api<ClusterRole>, Api<ClusterRoleBinding>) =
        (Api::all(admin.clone()), Api::all(admin.clone()));
    roles.create(&PostParams::default(), &role).await?;
    bindings.create(&PostParams::default(), &binding).await?;
    Ok(())
}
