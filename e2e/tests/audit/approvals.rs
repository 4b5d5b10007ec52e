//! Kills of either process without warning while requests wait for approvals and are approved: each granted request
//! was approved, is recorded, and is granted once.
//!
//! The test runs a few times; hundreds of times in the long form (`OZ_LONG=1`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;
use kube::api::ListParams;
use oz_api::{AccessRequestApproval, RequestStatus};
use oz_e2e::{
    Auditor, Operator, Options, Person, Scene, System, Webhook, answer_to, approval_rule,
    approved_template, exec_request,
};
use oz_testkit::scaled;
use serde_json::Value;

use crate::alone;
use crate::support::clean;

const BOB: Person = Person::new("bob", &["approvers"]);
const CAROL: Person = Person::new("carol", &["approvers"]);

/// The pause between two attempts to reach a process that is down.
const PAUSE: Duration = Duration::from_millis(50);

/// Repeats an attempt until it succeeds: the process that it calls may be down.
async fn until_done(attempt: impl AsyncFn() -> kube::Result<()>) {
    while attempt().await.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Creates a request of alice that both approve.
async fn asked(scene: &Scene, number: usize) -> Result<()> {
    let name = format!("grant-{number}");
    let alice = scene.requests("alice").await?;
    let request = exec_request(&name, "asked", "3h");
    while alice.create(&request).await.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
    let waits = |status: &RequestStatus| status.approval.is_some();
    let request = alice.until(&name, "to wait for others", waits).await?;
    for (by, rule) in [(BOB, "security"), (CAROL, "sre")] {
        let answer = answer_to(&request, &format!("{name}-{rule}"), true)?;
        let name = answer.name_any();
        until_done(async || {
            // An approval exists already if only its response was lost.
            if scene
                .api::<AccessRequestApproval>()
                .get_opt(&name)
                .await?
                .is_some()
            {
                return Ok(());
            }
            let (admin, namespace) = (&scene.admin, scene.name());
            let created = by.create(admin, namespace, "accessrequestapprovals", &answer);
            created.await.map(drop)
        })
        .await;
    }
    Ok(())
}

/// Kills one of the processes at a moment that no two runs share, and starts it again.
async fn killed(
    system: &mut System,
    scene: &Scene,
    auditor: &mut Auditor,
    (kill, began): (usize, Instant),
) -> Result<()> {
    let nanos = u64::from(began.elapsed().subsec_nanos());
    tokio::time::sleep(Duration::from_millis(50 + nanos % 900)).await;
    let (cluster, options) = (scene.cluster, Options::default());
    // The operator decides: the test kills it more often.
    if kill % 4 == 3 {
        system.webhook.process.kill9();
        auditor.log(&system.webhook.process);
        system.webhook = Webhook::start(cluster, &options).await?;
    } else {
        system.operator.process.kill9();
        auditor.log(&system.operator.process);
        system.operator = Operator::start(cluster, &options).await?;
    }
    Ok(())
}

/// Checks that each of these requests was approved by both, and granted once.
async fn on_record(auditor: &Auditor, requests: impl Iterator<Item = &String>) -> Result<()> {
    let records: Vec<Value> = auditor.records().await?;
    for uid in requests {
        let about = |action: &str| {
            let its = records
                .iter()
                .filter(|record| record["request"]["uid"] == **uid);
            its.filter(|record| record["action"] == action)
                .collect::<Vec<_>>()
        };
        let given = about("ApprovalGiven");
        let by: BTreeSet<_> = given
            .iter()
            .filter_map(|it| it["user"]["user"].as_str())
            .collect();
        assert_eq!(by, BTreeSet::from(["bob", "carol"]), "{uid}: {given:?}");
        let grants = about("AccessGranted");
        let ids: BTreeSet<_> = grants.iter().filter_map(|it| it["id"].as_str()).collect();
        assert_eq!(ids.len(), 1, "{uid}: {grants:?}");
    }
    Ok(())
}

#[tokio::test]
async fn killed_while_others_approve_nothing_is_granted_without_them_or_twice() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let (grants, kills) = (scaled(24, 500), scaled(6, 100));
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "approved").await?;
    scene.may_approve("approvers").await?;
    let rules = vec![
        approval_rule("security", &["bob"], &[], 1),
        approval_rule("sre", &[], &["approvers"], 1),
    ];
    scene
        .template(&approved_template("asked", rules, "1h"))
        .await?;
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    let alice = scene.requests("alice").await?;
    let began = Instant::now();
    let mut granted = BTreeMap::new();
    let numbers: Vec<usize> = (0..grants).collect();
    for (kill, share) in numbers.chunks(grants.div_ceil(kills)).enumerate() {
        let asking = async {
            for number in share {
                asked(&scene, *number).await?;
            }
            anyhow::Ok(())
        };
        let killed = killed(&mut system, &scene, &mut auditor, (kill, began));
        tokio::try_join!(asking, killed)?;
        for number in share {
            let name = format!("grant-{number}");
            let ready = alice.ready(&name).await?;
            let uid = ready.request.uid().unwrap_or_default();
            granted.insert(uid, (ready.object_name(), ready.role_name()));
        }
    }
    auditor.log(&system.operator.process);
    auditor.log(&system.webhook.process);

    let all = ListParams::default();
    let names = |objects: Vec<String>| objects.into_iter().collect::<BTreeSet<_>>();
    let bindings = scene.api::<RoleBinding>().list(&all).await?;
    let bindings = names(bindings.iter().map(kube::ResourceExt::name_any).collect());
    let roles = scene.api::<Role>().list(&all).await?;
    let roles = names(roles.iter().map(kube::ResourceExt::name_any).collect());
    assert_eq!(granted.len(), grants);
    for (binding, role) in granted.values() {
        ensure!(
            bindings.contains(binding) && roles.contains(role),
            "{binding}"
        );
    }
    let distinct: BTreeSet<&String> = granted.values().map(|(_, role)| role).collect();
    assert_eq!((distinct.len(), roles.len()), (grants, grants), "{roles:?}");

    on_record(&auditor, granted.keys()).await?;
    let report = auditor.report().await?;
    assert!(report.is_whole(), "{:#?}", report.problems);
    eprintln!(
        "{grants} approved grants, {kills} kills in {:?}",
        began.elapsed()
    );
    Ok(())
}
