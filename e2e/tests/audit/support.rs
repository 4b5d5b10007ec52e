//! Functions that the tests of the trail share.

use anyhow::{Result, bail};
use kube::api::{DeleteParams, ListParams};
use oz_e2e::{Auditor, unregister};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use oz_trail::verify::Report;

/// Removes the objects that other tests have left: without oz running, an administrator can.
pub(crate) async fn clean(cluster: &Cluster) -> Result<()> {
    oz_e2e::install(cluster).await?;
    unregister(cluster)?;
    let admin = cluster.client("admin").await?;
    let events: kube::Api<oz_trail::AuditEvent> = kube::Api::all(admin.clone());
    eventually("the events to go", CONDITION_TIMEOUT, async || {
        let nothing = events
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await;
        let left = events.list(&ListParams::default()).await?;
        Ok((nothing.is_ok() && left.items.is_empty()).then_some(()))
    })
    .await?;
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(admin, oz_e2e::NAMESPACE);
    for name in ["oz-audit-checkpoints"] {
        match maps.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// Waits until all records are signed, and returns the report.
pub(crate) async fn settled(auditor: &Auditor) -> Result<Report> {
    eventually(
        "the trail to be signed to its end",
        CONDITION_TIMEOUT,
        async || {
            let report = auditor.report().await?;
            if !report.is_whole() {
                bail!("not whole: {:#?}", report.problems);
            }
            let done = report
                .chains
                .iter()
                .all(|chain| chain.complete_through == chain.last);
            Ok((done && report.records() > 0).then_some(report))
        },
    )
    .await
}
