//! Transient bindings: the precision of their begin and end when many do so within a minute, the cost of each
//! end for the API server, and the cost of waiting ones.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::{Api, Client, ResourceExt as _};
use oz_api::{Phase, TransientRoleBinding};
use oz_e2e::{Operator, Options, Webhook, install, repository, run};
use oz_testkit::{AuditEntries, AuditMark, Cluster, TestNamespace, eventually};
use serde_json::json;

use super::grants::operator;
use super::process::{processor_time, resident};
use super::report::{Budget, Report};
use super::scene::{self, CHANGE_TIMEOUT};
use super::stats::{Values, number};
use crate::changes::Watching;

/// The size of the bench.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Bindings with windows that begin and end within a minute.
    pub(super) windows: usize,
    /// Bindings that wait.
    pub(super) pending: usize,
    /// Duration of the idle phase.
    pub(super) idle: Duration,
    pub(super) runs: u32,
}

impl Size {
    pub(super) const fn full(runs: u32) -> Self {
        Self {
            windows: 200,
            pending: 5_000,
            idle: Duration::from_secs(60),
            runs,
        }
    }

    pub(super) const fn quick() -> Self {
        Self {
            windows: 60,
            pending: 300,
            idle: Duration::from_secs(15),
            runs: 1,
        }
    }
}

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    install(cluster).await?;
    let mut kubectl = cluster.kubectl("admin");
    kubectl
        .args(["apply", "--server-side", "-f"])
        .arg(repository().join("deploy/rbac/transient"));
    run(kubectl)?;
    let options = Options::default().set("transient.bindableRoles", "[view]");
    let leading = options.clone().flag("--leader-elect");
    let (_webhook, operator) = tokio::try_join!(
        Webhook::start(cluster, &options),
        Operator::start(cluster, &leading)
    )?;
    for number in 0..size.runs {
        let namespace = TestNamespace::create(cluster, &format!("windows-{number}")).await?;
        windows(cluster, namespace.name(), size, report).await?;
    }
    let namespace = TestNamespace::create(cluster, "pending").await?;
    pending(cluster, &operator, namespace.name(), size, report).await
}

fn binding(name: &str, from: Timestamp, until: Timestamp) -> Result<TransientRoleBinding> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alice"}],
            "validFrom": from, "validUntil": until,
        },
    }))?)
}

async fn create(clients: &[Client], namespace: &str, all: &[TransientRoleBinding]) -> Result<()> {
    scene::create_all(clients, all, |client| Api::namespaced(client, namespace)).await
}

async fn in_phase(client: &Client, namespace: &str, phase: Phase, count: usize) -> Result<()> {
    let api = Api::<TransientRoleBinding>::namespaced(client.clone(), namespace);
    eventually(
        &format!("{count} to be {phase}"),
        CHANGE_TIMEOUT * 5,
        async || {
            let all = api.list(&kube::api::ListParams::default()).await?.items;
            let found = all.iter().filter(|object| {
                let status = object.status.as_ref();
                status.is_some_and(|status| status.phase == phase && !status.conditions.is_empty())
            });
            Ok((found.count() >= count).then_some(()))
        },
    )
    .await
}

/// Returns the operator's writes for the bindings of a namespace since that mark.
fn writes(cluster: &Cluster, mark: AuditMark, namespace: &str) -> Result<AuditEntries> {
    let entries = cluster.audit().since(mark)?.by_user(&operator());
    let entries = entries.in_namespace(namespace).writes();
    Ok(entries.filter(|entry| entry.resource != "events"))
}

/// Measures bindings that all begin within half a minute, and all end within the next.
async fn windows(
    cluster: &Cluster,
    namespace: &str,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let clients = scene::administrators(cluster).await?;
    let client = clients.first().context("no client")?;
    let mut bindings =
        Watching::start(Api::<RoleBinding>::namespaced(client.clone(), namespace)).await?;
    // Enough to create them all before the first begins.
    let lead = 5 + i64::try_from(size.windows)? / 8;
    let start = Timestamp::now() + SignedDuration::from_secs(lead);
    let step = SignedDuration::from_millis(25_000 / i64::try_from(size.windows)?);
    let mut ends = BTreeMap::new();
    let mut objects = Vec::new();
    let mut from = start;
    for number in 0..size.windows {
        let until = from + SignedDuration::from_secs(30);
        let name = format!("window-{number}");
        objects.push(binding(&name, from, until)?);
        ends.insert(name, (from, until));
        from += step;
    }
    create(&clients, namespace, &objects).await?;
    let count = size.windows;
    in_phase(client, namespace, Phase::Pending, count).await?;
    anyhow::ensure!(
        Timestamp::now() < start,
        "the machine is too slow: creating took too long"
    );

    let mark = cluster.audit().mark()?;
    let (mut late, mut over) = (Vec::new(), Vec::new());
    let mut between = None;
    while over.len() < count {
        let seen = bindings.next(CHANGE_TIMEOUT).await?;
        let name = seen.object.name_any();
        let Some((from, until)) = ends.get(&name) else {
            continue;
        };
        let since = |due: &Timestamp| seen.time.duration_since(*due).as_secs_f64() * 1000.0;
        if seen.deleted {
            over.push(since(until));
        } else {
            late.push(since(from));
        }
        if late.len() == count && between.is_none() {
            in_phase(client, namespace, Phase::Active, count).await?;
            between = Some((
                writes(cluster, mark, namespace)?.len(),
                cluster.audit().mark()?,
            ));
        }
    }
    in_phase(client, namespace, Phase::Expired, count).await?;
    let (activating, mark) = between.context("not all began before the first ended")?;
    let ending = writes(cluster, mark, namespace)?.len();
    let second = Budget::AtMost(1000.0);
    for (what, lags) in [
        ("made after validFrom", late),
        ("gone after validUntil", over),
    ] {
        let lags: Values = lags.into_iter().collect();
        let figure = |name: &str| format!("binding {what}, {name} of {count}");
        report.add(&figure("p50"), "ms", Budget::None, lags.median());
        report.add(&figure("p99"), "ms", second, lags.percentile(99));
        report.add(&figure("max"), "ms", second, lags.max());
    }
    let each = |writes: usize| -> Result<f64> { Ok(number(writes)? / number(count)?) };
    report.add(
        "API writes to activate",
        "",
        Budget::AtMost(2.0),
        each(activating)?,
    );
    report.add(
        "API writes to revoke",
        "",
        Budget::AtMost(2.0),
        each(ending)?,
    );
    Ok(())
}

/// Measures waiting bindings, which cost nothing.
async fn pending(
    cluster: &Cluster,
    oz: &Operator,
    namespace: &str,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let clients = scene::administrators(cluster).await?;
    let client = clients.first().context("no client")?;
    let before = resident(oz.process.pid())?;
    let from = Timestamp::now() + SignedDuration::from_hours(12);
    let until = from + SignedDuration::from_hours(1);
    let names = (0..size.pending).map(|number| format!("pending-{number}"));
    let objects: Vec<_> = names
        .map(|name| binding(&name, from, until))
        .collect::<Result<_>>()?;
    create(&clients, namespace, &objects).await?;
    in_phase(client, namespace, Phase::Pending, size.pending).await?;
    let grown = resident(oz.process.pid())? - before;

    let mark = cluster.audit().mark()?;
    let spent = processor_time(oz.process.pid())?;
    tokio::time::sleep(size.idle).await;
    let spent = processor_time(oz.process.pid())?.saturating_sub(spent);
    // The lease, the canary and the renewal of watches cost the same without any of them.
    let about = [
        "transientrolebindings",
        "rolebindings",
        "clusterroles",
        "subjectaccessreviews",
    ];
    let calls = cluster
        .audit()
        .since(mark)?
        .by_user(&operator())
        .filter(|entry| about.contains(&entry.resource.as_str()) && entry.verb != "watch");
    let count = size.pending;
    let idle = size.idle.as_secs();
    let what = format!("API calls for {count} that wait, in {idle} s");
    report.add(&what, "", Budget::AtMost(0.0), number(calls.len())?);
    let part = spent.as_secs_f64() / size.idle.as_secs_f64() * 100.0;
    report.add("  CPU of the operator meanwhile", "%", Budget::None, part);
    report.add("  memory that they take", "MiB", Budget::None, grown);
    Ok(())
}
