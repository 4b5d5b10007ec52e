//! Leadership: one process writes at a time, and a process that has lost the Lease does not write.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use oz_api::names;
use oz_runtime::{Election, LeaseTiming, RuntimeError};
use oz_testkit::{CONDITION_TIMEOUT, TestNamespace, eventually, with_namespace};
use serde_json::json;

use crate::harness::{api, cluster, phase, run_with, timebox};
use crate::timebox::{Timebox, outer_name};

/// A duration so long that no test passes because it elapses.
const NEVER: Duration = Duration::from_secs(3_600);

fn lease(namespace: &TestNamespace, identity: &str) -> Election {
    Election::Lease {
        namespace: namespace.name().to_owned(),
        name: names::LEASE.to_owned(),
        identity: identity.to_owned(),
        timing: LeaseTiming {
            duration: NEVER,
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_millis(100),
            look_period: Duration::from_millis(100),
        },
        again: false,
    }
}

async fn held_by(leases: &kube::Api<Lease>, identity: &str) -> Result<()> {
    eventually(
        &format!("the lease to be {identity}'s"),
        CONDITION_TIMEOUT,
        async || {
            let lease = leases.get_opt(names::LEASE).await?;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity);
            anyhow::ensure!(holder.as_deref() == Some(identity), "it is {holder:?}'s");
            Ok(Some(()))
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_writes_only_once_the_leader_has_given_the_lease_back() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "handover", async |namespace| {
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let leases = api::<Lease>(&admin, namespace);
        let first = run_with(
            cluster,
            "engine-first",
            namespace,
            lease(namespace, "first"),
        )
        .await?;
        held_by(&leases, "first").await?;
        let mark = cluster.audit().mark()?;
        let second = run_with(
            cluster,
            "engine-second",
            namespace,
            lease(namespace, "second"),
        )
        .await?;
        boxes.create(&PostParams::default(), &timebox("a")).await?;
        phase(&boxes, "a", "Open").await?;
        let writes = cluster
            .audit()
            .since(mark)?
            .by_user("engine-second")
            .writes();
        assert!(writes.is_empty(), "{:#?}", writes.counts());

        first.stop().await?;
        held_by(&leases, "second").await?;
        boxes.create(&PostParams::default(), &timebox("b")).await?;
        phase(&boxes, "b", "Open").await?;
        second.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_process_takes_its_own_lease_back_at_once() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "restart", async |namespace| {
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let leases = api::<Lease>(&admin, namespace);
        let leadership = lease(namespace, "pod-0");
        let killed = run_with(cluster, "engine-killed", namespace, leadership.clone()).await?;
        held_by(&leases, "pod-0").await?;
        killed.kill().await;

        let back = run_with(cluster, "engine-back", namespace, leadership).await?;
        boxes.create(&PostParams::default(), &timebox("a")).await?;
        phase(&boxes, "a", "Open").await?;
        back.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_ends_the_engine_and_all_its_writes() -> Result<()> {
    let cluster = cluster().await?;
    with_namespace(cluster, "lost", async |namespace| {
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let leases = api::<Lease>(&admin, namespace);
        let engine = run_with(cluster, "engine-lost", namespace, lease(namespace, "loser")).await?;
        held_by(&leases, "loser").await?;
        let usurp = Patch::Merge(json!({"spec": {"holderIdentity": "usurper"}}));
        leases.patch(names::LEASE, &PatchParams::default(), &usurp).await?;

        let ended = engine.ended().await?;
        assert!(
            matches!(&ended, Err(RuntimeError::LeaseLost { reason, .. }) if reason.contains("usurper")),
            "{ended:?}"
        );
        boxes.create(&PostParams::default(), &timebox("a")).await?;
        held_by(&leases, "usurper").await?;
        let maps = api::<ConfigMap>(&admin, namespace);
        assert!(maps.get_opt(&outer_name("a")).await?.is_none());
        Ok(())
    })
    .await
}
