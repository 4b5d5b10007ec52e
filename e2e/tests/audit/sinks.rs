//! The sinks of audit records, one of them out of order.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use oz_api::Phase;
use oz_e2e::receiver::{Answers, Received, Server};
use oz_e2e::{
    Auditor, LEASE_AND_TURNS, NAMESPACE, Operator, Options, Scene, System, TEMPLATE, exec_request,
    install, refused,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::time_in_name;
use oz_trail::verify::{Evidence, Terms, verify};
use serde_json::{Value, json};

use crate::alone;
use crate::support::{clean, settled};

async fn bound(scene: &Scene, prefix: &str) -> Result<bool> {
    let bindings = scene
        .api::<RoleBinding>()
        .list(&ListParams::default())
        .await?;
    let names = bindings
        .iter()
        .filter_map(|binding| binding.metadata.name.as_deref());
    Ok(names.into_iter().any(|name| name.starts_with(prefix)))
}

#[tokio::test]
async fn unwritable_record_prevents_grants_and_delays_no_expiry() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "unrecorded").await?;
    let alice = scene.requests("alice").await?;
    let brief = alice
        .granted(&exec_request("brief", TEMPLATE, "15s"))
        .await?;
    let auditor = Auditor::pinning(&scene.admin).await?;

    // The operator may not write events any more.
    let roles: Api<ClusterRole> = Api::all(scene.admin.clone());
    let mut role = roles.get("oz-operator").await?;
    for rule in role.rules.iter_mut().flatten() {
        if let Some(resources) = &mut rule.resources {
            resources.retain(|resource| resource != "auditevents");
        }
    }
    role.rules
        .iter_mut()
        .flatten()
        .for_each(|rule| drop(rule.resources.take_if(|resources| resources.is_empty())));
    let rules: Vec<_> = role.rules.into_iter().flatten().collect();
    let rules: Vec<_> = rules
        .into_iter()
        .filter(|rule| rule.resources.is_some())
        .collect();
    let patch = Patch::Merge(json!({ "rules": rules }));
    roles
        .patch("oz-operator", &PatchParams::default(), &patch)
        .await?;

    alice.create(&exec_request("later", TEMPLATE, "1h")).await?;
    let until = brief.status().expires_at.context("no end")?;
    eventually("the binding to go", CONDITION_TIMEOUT, async || {
        Ok((!bound(&scene, "brief-").await?).then_some(()))
    })
    .await?;
    let lag = Timestamp::now().duration_since(until);
    assert!(lag < LEASE_AND_TURNS, "{lag:#}");
    assert!(!bound(&scene, "later-").await?, "bound without a record");

    install(cluster).await?;
    alice.ready("later").await?;
    alice.phase("brief", Phase::Expired).await?;
    assert!(bound(&scene, "later-").await?);
    settled(&auditor).await?;
    Ok(())
}

/// The path at which a collector accepts events.
const PATH: &str = "/events?from=oz";

/// Returns the events that a collector accepted, in their expected form.
fn events(collector: &Server) -> Vec<Value> {
    let taken = collector.taken();
    let right = |it: &Received| {
        it.head.starts_with(&format!("POST {PATH} HTTP/1.1"))
            && it.head.contains("application/cloudevents+json")
    };
    assert!(taken.iter().all(right), "{taken:?}");
    taken.into_iter().map(|it| it.body).collect()
}

#[tokio::test]
async fn unavailable_collector_delays_no_access_and_receives_records_later() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let collector = Server::start(Answers::With(503)).await?;
    let options = Options::default().set("audit.http.url", collector.url(PATH));
    let _system = System::start_with(cluster, &options).await?;
    let scene = Scene::set(cluster, "collector").await?;
    let alice = scene.requests("alice").await?;
    for number in 0..3 {
        let request = exec_request(&format!("debug-{number}"), TEMPLATE, "1h");
        alice.granted(&request).await?;
    }
    assert!(events(&collector).is_empty());
    collector.answer(Answers::With(202));
    let events = eventually(
        "the collector to have them",
        CONDITION_TIMEOUT,
        async || {
            let events = events(&collector);
            Ok((events.len() >= 4).then_some(events))
        },
    )
    .await?;
    let auditor = Auditor::pinning(&scene.admin).await?;
    settled(&auditor).await?;
    let mut lines = Vec::new();
    for event in &events {
        assert_eq!(event["specversion"], "1.0");
        assert_eq!(event["datacontenttype"], "application/json");
        assert_eq!(event["id"], event["data"]["digest"]);
        let kind = event["data"]["action"].as_str().context("no action")?;
        assert_eq!(event["type"], format!("co.wizardofoz.audit.{kind}"));
        lines.push(event["data"].to_string());
    }
    // The collector's events are a log that verifies without other sinks.
    let mut evidence = Evidence::default();
    evidence.log("collector", &lines.join("\n"));
    let terms = Terms {
        trust: auditor.trust().await?,
        ..Terms::default()
    };
    let report = verify(evidence, &terms);
    assert!(report.is_whole(), "{:?}", report.problems);
    Ok(())
}

#[tokio::test]
async fn unavailable_required_collector_blocks_grants_and_delays_no_expiry() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let collector = Server::start(Answers::With(503)).await?;
    let options = Options::default()
        .set("audit.http.url", collector.url(PATH))
        .set("audit.http.required", true);
    let system = System::start_with(cluster, &options).await?;
    let scene = Scene::set(cluster, "required").await?;
    let alice = scene.requests("alice").await?;
    alice.create(&exec_request("debug", TEMPLATE, "1h")).await?;
    eventually("the grant to be put off", CONDITION_TIMEOUT, async || {
        let metrics = system.operator.metrics().await?;
        let refused = metrics.lines().any(|line| {
            line.strip_prefix("oz_audit_refused_total ")
                .is_some_and(|count| count != "0")
        });
        Ok(refused.then_some(()))
    })
    .await?;
    assert!(!bound(&scene, "debug-").await?);
    collector.answer(Answers::With(202));
    alice.ready("debug").await?;
    assert!(bound(&scene, "debug-").await?);
    Ok(())
}

#[tokio::test]
async fn refusals_without_end_cost_a_handful_of_writes() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "flood").await?;
    let mallory = scene.requests("mallory").await?;
    let mark = cluster.audit().mark()?;
    let try_it = async |number: usize| {
        let request = exec_request(&format!("let-me-in-{number}"), TEMPLATE, "1h");
        refused(mallory.create(&request).await)
    };
    // The API server may call the webhook that was registered before for a moment longer.
    eventually(
        "the webhook to refuse mallory",
        CONDITION_TIMEOUT,
        async || Ok(try_it(0).await?.contains("devs").then_some(())),
    )
    .await?;
    for number in 1..300 {
        let refusal = try_it(number).await?;
        assert!(refusal.contains("devs"), "{refusal}");
    }
    // The summary follows after a minute, or when the process ends.
    system
        .webhook
        .process
        .terminate(Duration::from_secs(30))
        .await?;
    let webhook = format!("system:serviceaccount:{NAMESPACE}:oz-webhook");
    let writes = cluster.audit().since(mark)?.by_user(&webhook).writes();
    assert!(writes.len() < 20, "{:?}", writes.counts());

    let auditor = Auditor::pinning(&scene.admin).await?;
    let events = auditor.events().list(&ListParams::default()).await?;
    let denied: Vec<_> = events
        .iter()
        .map(|event| &event.data["spec"])
        .filter(|spec| spec["action"] == "RequestDenied" && spec["user"]["user"] == "mallory")
        .collect();
    let counted: u64 = denied
        .iter()
        .map(|spec| spec["repeated"]["count"].as_u64().unwrap_or(1))
        .sum();
    assert_eq!(counted, 300, "{denied:#?}");
    Ok(())
}

#[tokio::test]
async fn events_go_when_they_are_old_enough_and_the_rest_still_verifies() -> Result<()> {
    const KEEP: SignedDuration = SignedDuration::from_secs(12);
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let mark = cluster.audit().mark()?;
    let options = Options::default().set("audit.retention", "12s");
    let mut system = System::start_with(cluster, &options).await?;
    let scene = Scene::set(cluster, "retention").await?;
    let alice = scene.requests("alice").await?;
    let auditor = Auditor::pinning(&scene.admin).await?;
    for number in 0..5 {
        let request = exec_request(&format!("debug-{number}"), TEMPLATE, "1h");
        alice.granted(&request).await?;
    }
    // The process that enforces retention is replaced in between, and no event is lost.
    system.operator.process.kill9();
    system.operator = Operator::start(cluster, &options).await?;
    alice.granted(&exec_request("last", TEMPLATE, "1h")).await?;
    eventually("the first events to go", CONDITION_TIMEOUT, async || {
        Ok(auditor
            .list_for_request(scene.name(), "debug-4")
            .await?
            .is_empty()
            .then_some(()))
    })
    .await?;
    let report = auditor.report_since(Some(Timestamp::now() - KEEP)).await?;
    assert!(report.is_whole(), "{:#?}", report.problems);
    assert!(!auditor.report().await?.is_whole(), "something is gone");
    let operator = format!("system:serviceaccount:{NAMESPACE}:oz-operator");
    let deletions = cluster
        .audit()
        .since(mark)?
        .by_user(&operator)
        .with_verb("delete")
        .on("crds.wizardofoz.co", "auditevents");
    assert!(deletions.len() >= 10, "{}", deletions.len());
    for deletion in deletions.iter() {
        let time = time_in_name(&deletion.name).context("not one of ours")?;
        let age = deletion.stage_timestamp.duration_since(time);
        assert!(age >= KEEP, "{}: {age:#}", deletion.name);
    }
    Ok(())
}

#[tokio::test]
async fn a_log_in_a_file_is_whole_across_restarts() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("operator.jsonl");
    let options = Options::default().set("audit.log", file.display());
    let mut system = System::start_with(cluster, &options).await?;
    let scene = Scene::set(cluster, "file").await?;
    let alice = scene.requests("alice").await?;
    for number in 0..3 {
        let request = exec_request(&format!("debug-{number}"), TEMPLATE, "1h");
        alice.granted(&request).await?;
        system.operator.process.kill9();
        system.operator = Operator::start(cluster, &options).await?;
    }
    alice.granted(&exec_request("last", TEMPLATE, "1h")).await?;
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    auditor.logs.push(file.clone());
    let report = auditor.report().await?;
    assert!(report.is_whole(), "{:#?}", report.problems);
    assert!(system.operator.process.lines()?.is_empty());
    // Each grant appears once, regardless of the kills.
    let text = std::fs::read_to_string(&file)?;
    assert_eq!(text.matches(r#""action":"AccessGranted""#).count(), 4);
    Ok(())
}
