//! Kills of the operator without warning while emergencies are granted, and their requests deleted right after: each
//! emergency has exactly one review in the end.
//!
//! The test runs a few times; hundreds of times in the long form (`OZ_LONG=1`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use oz_api::{AccessReview, ExecAccessRequest};
use oz_e2e::{Auditor, Operator, Options, Person, Scene, System, emergency_template};
use oz_testkit::{CONDITION_TIMEOUT, eventually, scaled};

use crate::alone;
use crate::support::clean;

/// The pause between two attempts to reach a process that is down.
const PAUSE: Duration = Duration::from_millis(50);

/// Creates an emergency that is granted, deletes its request as soon as the grant is ready, and returns the UID of the
/// request.
async fn had(scene: &Scene, number: usize) -> Result<String> {
    let name = format!("inc-{number}");
    // The limit on unreviewed emergencies of a user does not matter here.
    let user: &'static str = Box::leak(format!("dana-{number}").into_boxed_str());
    let dana = Person::new(user, &["devs", "oncall"]);
    while dana.has_emergency(scene, &name, "guarded").await.is_err() {
        let there = scene.api::<ExecAccessRequest>().get_opt(&name).await?;
        if there.is_some() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let requests = scene.requests("admin").await?;
    let granted = requests.ready(&name).await?;
    let own = scene.api::<ExecAccessRequest>();
    own.delete(&name, &DeleteParams::default()).await?;
    Ok(granted.request.uid().unwrap_or_default())
}

#[tokio::test]
async fn killed_between_grant_and_review_there_is_exactly_one_for_each() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let (emergencies, kills) = (scaled(12, 200), scaled(6, 50));
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "emergencies").await?;
    scene
        .template(&emergency_template("guarded", "24h", 1))
        .await?;
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    let mut uids = Vec::new();
    let began = Instant::now();
    let numbers: Vec<usize> = (0..emergencies).collect();
    for share in numbers.chunks(emergencies.div_ceil(kills)) {
        for number in share {
            uids.push(had(&scene, *number).await?);
        }
        // The last of them was granted a moment ago, and perhaps has no review yet.
        system.operator.process.kill9();
        auditor.log(&system.operator.process);
        system.operator = Operator::start(cluster, &Options::default()).await?;
    }
    auditor.log(&system.operator.process);
    auditor.log(&system.webhook.process);
    let reviews = scene.api::<AccessReview>();
    let count = |all: &[AccessReview]| {
        let mut counted = BTreeMap::new();
        for review in all {
            let about = review.spec.access_request_ref.as_ref();
            let uid = about.map(|about| about.uid.clone()).unwrap_or_default();
            *counted.entry(uid).or_insert(0) += 1;
        }
        counted
    };
    let expected: BTreeMap<String, i32> = uids.into_iter().map(|uid| (uid, 1)).collect();
    assert_eq!(expected.len(), emergencies);
    eventually("one review for each", CONDITION_TIMEOUT, async || {
        let all = reviews.list(&ListParams::default()).await?;
        Ok((count(&all.items) == expected).then_some(()))
    })
    .await?;
    let report = auditor.report().await?;
    assert!(report.is_whole(), "{:#?}", report.problems);
    eprintln!(
        "{emergencies} emergencies, {kills} kills in {:?}",
        began.elapsed()
    );
    Ok(())
}
