//! Either process killed without warning, again and again, while requests come in.
//!
//! By default a few times. `OZ_AUDIT_GRANTS=2000 OZ_AUDIT_KILLS=200 cargo test -p oz-e2e --test audit
//! killed` is the long run.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt;
use kube::api::ListParams;
use oz_e2e::{Auditor, Operator, Options, Scene, System, TEMPLATE, Webhook, exec_request};
use oz_testkit::eventually;

use crate::alone;
use crate::support::clean;

fn number(variable: &str, default: usize) -> usize {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test]
async fn killed_at_random_moments_every_grant_has_its_record_and_the_trail_is_whole() -> Result<()>
{
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let (grants, kills) = (number("OZ_AUDIT_GRANTS", 60), number("OZ_AUDIT_KILLS", 8));
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "killed").await?;
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    let alice = scene.requests("alice").await?;
    let asking = alice.clone();
    let ask = tokio::spawn(async move {
        for number in 0..grants {
            let request = exec_request(&format!("grant-{number}"), TEMPLATE, "1h");
            // Refused while the webhook is away: asked again.
            while asking.create(&request).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    let began = Instant::now();
    for kill in 0..kills {
        // Moments that no two runs share.
        let nanos = u64::from(began.elapsed().subsec_nanos());
        tokio::time::sleep(Duration::from_millis(50 + nanos % 900)).await;
        if kill % 2 == 0 {
            system.operator.process.kill9();
            auditor.log(&system.operator.process);
            system.operator = Operator::start(cluster, &Options::default()).await?;
        } else {
            system.webhook.process.kill9();
            auditor.log(&system.webhook.process);
            system.webhook = Webhook::start(cluster, &Options::default()).await?;
        }
    }
    ask.await?;
    auditor.log(&system.operator.process);
    auditor.log(&system.webhook.process);
    let patience = Duration::from_secs(120) + Duration::from_millis(100) * u32::try_from(grants)?;
    let bound = eventually("every request to be granted", patience, async || {
        let bindings = scene
            .api::<RoleBinding>()
            .list(&ListParams::default())
            .await?;
        let names: BTreeSet<String> = bindings.iter().map(ResourceExt::name_any).collect();
        let names: BTreeSet<_> = names
            .into_iter()
            .filter(|name| name.starts_with("grant-"))
            .collect();
        Ok((names.len() == grants).then_some(names))
    })
    .await?;

    let events = auditor.events().list(&ListParams::default()).await?;
    let recorded: BTreeSet<String> = events
        .iter()
        .map(|event| &event.data["spec"])
        .filter(|spec| spec["action"] == "AccessGranted")
        .filter_map(|spec| {
            let uid = spec["request"]["uid"].as_str()?.get(..8)?;
            Some(format!("{}-{uid}", spec["request"]["name"].as_str()?))
        })
        .collect();
    let without: Vec<_> = bound.difference(&recorded).collect();
    assert!(without.is_empty(), "granted without a record: {without:?}");

    let report = auditor.report().await?;
    assert!(report.is_whole(), "{:#?}", report.problems);
    assert!(
        report.chains.len() > kills / 2,
        "{} chains",
        report.chains.len()
    );
    Ok(())
}
