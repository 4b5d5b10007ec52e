//! Kills of either process without warning, repeatedly, while requests and sessions arrive.
//!
//! The test runs a few times; hundreds of times in the long form (`OZ_LONG=1`).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{AttachParams, ListParams};
use kube::{Api, ResourceExt};
use oz_api::encode;
use oz_e2e::{Auditor, Operator, Options, Scene, System, TEMPLATE, Webhook, exec_request};
use oz_testkit::scaled;
use serde_json::Value;

use crate::alone;
use crate::support::clean;

/// Returns a command that adds a line to `opened`: the line proves that it ran, even if its client did not see that.
fn command(number: usize, opened: &Path) -> Vec<String> {
    let script = format!("echo {number} >> {}", opened.display());
    ["/bin/sh", "-c", &script].map(ToOwned::to_owned).into()
}

#[expect(clippy::too_many_lines, reason = "one story from beginning to end")]
#[tokio::test]
async fn killed_at_random_moments_every_grant_has_its_record_and_the_trail_is_whole() -> Result<()>
{
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let (grants, kills) = scaled((60, 8), (2000, 200));
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "killed").await?;
    scene.enforce().await?;
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    let alice = scene.requests("alice").await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client("alice").await?, scene.name());
    let names: Vec<String> = scene.pods.iter().map(ResourceExt::name_any).collect();
    let files = tempfile::tempdir()?;
    let opened = files.path().join("opened");
    let ask = async |number: usize| {
        let request = exec_request(&format!("grant-{number}"), TEMPLATE, "3h");
        // The webhook is down: the request fails, and is repeated.
        while alice.create(&request).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The exec is denied as well, or is interrupted at any moment; or it runs.
        let (pod, command) = (&names[number % names.len()], command(number, &opened));
        let session = async {
            let process = pods.exec(pod, command, &AttachParams::default()).await?;
            process.join().await.context("broken off")
        };
        drop(tokio::time::timeout(Duration::from_secs(5), session).await);
    };
    let began = Instant::now();
    let mut bound = BTreeSet::new();
    // Each kill falls into its share of the grants.
    let shares: Vec<usize> = (0..grants).collect();
    for (kill, share) in shares.chunks(grants.div_ceil(kills)).enumerate() {
        let asked = async {
            for number in share {
                ask(*number).await;
            }
            anyhow::Ok(())
        };
        let killed = async {
            // Moments that no two runs share.
            let nanos = u64::from(began.elapsed().subsec_nanos());
            tokio::time::sleep(Duration::from_millis(50 + nanos % 900)).await;
            let options = Options::default();
            if kill % 2 == 0 {
                system.operator.process.kill9();
                auditor.log(&system.operator.process);
                system.operator = Operator::start(cluster, &options).await?;
            } else {
                system.webhook.process.kill9();
                auditor.log(&system.webhook.process);
                system.webhook = Webhook::start(cluster, &options).await?;
            }
            anyhow::Ok(())
        };
        tokio::try_join!(asked, killed)?;
        for number in share {
            let granted = alice.ready(&format!("grant-{number}")).await?;
            bound.insert(granted.object_name());
        }
    }
    auditor.log(&system.operator.process);
    auditor.log(&system.webhook.process);
    let all = ListParams::default();
    let bindings = scene.api::<RoleBinding>().list(&all).await?;
    let bindings: BTreeSet<String> = bindings.iter().map(ResourceExt::name_any).collect();
    assert!(bound.len() == grants && bound.is_subset(&bindings));

    let events = auditor.events().list(&ListParams::default()).await?;
    let of = |action: &str| -> Vec<&Value> {
        let specs = events.iter().map(|event| &event.data["spec"]);
        specs.filter(|spec| spec["action"] == action).collect()
    };
    let recorded: BTreeSet<String> = of("AccessGranted")
        .into_iter()
        .filter_map(|spec| {
            let uid = spec["request"]["uid"].as_str()?.get(..8)?;
            Some(format!("{}-{uid}", spec["request"]["name"].as_str()?))
        })
        .collect();
    let without: Vec<_> = bound.difference(&recorded).collect();
    assert!(without.is_empty(), "granted without a record: {without:?}");

    let recorded: BTreeSet<&str> = of("SessionOpened")
        .into_iter()
        .filter_map(|spec| spec["details"]["commandDigest"].as_str())
        .collect();
    let text = std::fs::read_to_string(&opened).context("no session was opened")?;
    let ran: Vec<usize> = text
        .lines()
        .map(|line| Ok(line.parse()?))
        .collect::<Result<_>>()?;
    let digest = |number: &usize| encode::digest(&command(*number, &opened));
    let without: Vec<_> = ran
        .iter()
        .filter(|number| !recorded.contains(digest(number).as_str()))
        .collect();
    assert!(without.is_empty(), "opened without a record: {without:?}");

    let report = auditor.report().await?;
    assert!(report.is_whole(), "{:#?}", report.problems);
    assert!(
        report.chains.len() > kills / 2,
        "{} chains",
        report.chains.len()
    );
    eprintln!(
        "{grants} grants, {} sessions, {kills} kills, {} records of {} processes, in {:?}",
        ran.len(),
        report.records(),
        report.chains.len(),
        began.elapsed()
    );
    Ok(())
}
