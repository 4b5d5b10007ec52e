//! Ends during scripts that hang: hundreds of grants on pods of a node that accepts every exec and never
//! responds, all ending at one instant, and others that end a second later.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use oz_api::ExecAccessRequest;
use oz_e2e::{GrantedRequest, Options, System};
use oz_testkit::Cluster;
use serde_json::json;
use tokio::net::TcpListener;

use super::Size;
use super::report::{Budget, Report};
use super::scene::{self, BenchScene, CHANGE_TIMEOUT};
use super::stats::Values;
use crate::changes::Watching;

/// The time in which everything must be granted.
const GRANTING: SignedDuration = SignedDuration::from_secs(90);

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    let options = Options::default().cutting().flag("--leader-elect");
    let _system = System::start_with(cluster, &options).await?;
    for run in 0..size.runs {
        let mut hang = BenchScene::set(cluster, &format!("hang-{run}")).await?;
        let mut beside = BenchScene::set(cluster, &format!("beside-{run}")).await?;
        deafen(cluster).await?;
        let mut hanging = Watching::start(hang.scene.api::<RoleBinding>()).await?;
        let mut others = Watching::start(beside.scene.api::<RoleBinding>()).await?;
        let until = Timestamp::from_second((Timestamp::now() + GRANTING).as_second())?;
        let names = |prefix: &str, count: usize| -> Vec<String> {
            let names = (0..count).map(|number| format!("{prefix}-{number}"));
            names.collect()
        };
        let later = until + SignedDuration::from_secs(1);
        let (first, second) = tokio::try_join!(
            hang.ask_until(names("hang", size.hanging), until),
            beside.ask_until(names("beside", size.endings), later),
        )?;
        let (first, second) =
            tokio::try_join!(gone(&mut hanging, &first), gone(&mut others, &second))?;
        for (what, lags) in [
            (format!("{} whose scripts hang", size.hanging), first),
            (format!("{} a second later", size.endings), second),
        ] {
            let figure = |name: &str| format!("RoleBinding gone after the end, {what}, {name}");
            let second = Budget::AtMost(1000.0);
            report.add(&figure("p50"), "ms", Budget::None, lags.median());
            report.add(&figure("p99"), "ms", second, lags.percentile(99));
            report.add(&figure("max"), "ms", Budget::None, lags.max());
        }
    }
    Ok(())
}

/// Replaces every node's kubelet by one that accepts each connection and never responds.
async fn deafen(cluster: &'static Cluster) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            held.push(connection);
        }
    });
    let nodes: Api<Node> = Api::all(cluster.client("admin").await?);
    let endpoint = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(&endpoint));
    for node in nodes.list(&Default::default()).await? {
        let name = node.name_any();
        let patched = nodes.patch_status(&name, &parameters, &patch);
        patched.await.context("failed to deafen a node")?;
    }
    Ok(())
}

/// Returns the delays after the ends of these until the RoleBindings were seen to be gone.
pub(super) async fn gone(
    bindings: &mut Watching<RoleBinding>,
    asked: &[GrantedRequest<ExecAccessRequest>],
) -> Result<Values> {
    let mut ends: BTreeMap<String, Timestamp> = BTreeMap::new();
    for grant in asked {
        let until = grant.status().expires_at.context("a grant has no end")?;
        ends.insert(grant.object_name(), until);
    }
    let mut lags = Vec::new();
    while !ends.is_empty() {
        let seen = bindings.next(CHANGE_TIMEOUT).await?;
        if !seen.deleted {
            continue;
        }
        if let Some(until) = ends.remove(&seen.object.name_any()) {
            lags.push(seen.time.duration_since(until).as_secs_f64() * 1000.0);
        }
    }
    Ok(lags.into_iter().collect())
}
