//! Thousands of parents: the time until they converge, and their cost afterwards.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use oz_e2e::Operator;
use oz_testkit::{Cluster, TestNamespace, eventually};
use serde_json::json;

use super::super::process::{processor_time, resident};
use super::super::report::{Budget, Report};
use super::super::scene::CHANGE_TIMEOUT;
use super::Size;
use super::world::{World, fleets};
use crate::changes::Watching;

/// The goal, in seconds, for 2,500 parents.
const SETTLED: f64 = 60.0;
/// The goal for 5,000 parents and their children, in MiB.
const MEMORY: f64 = 40.0;

pub(super) async fn measure(
    cluster: &'static Cluster,
    world: &World,
    oz: &Operator,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let namespace = TestNamespace::create(cluster, "many").await?;
    let namespace = namespace.name();
    let count = size.parents;
    let names = (0..count).map(|number| (format!("fleet-{number}"), json!({})));
    world
        .parents(namespace, "many", &names.collect::<Vec<_>>())
        .await?;
    let before = resident(oz.process.pid())?;
    let maps = Api::<ConfigMap>::namespaced(world.client().clone(), namespace);
    let mut children = Watching::start(maps).await?;
    let spent = processor_time(oz.process.pid())?;
    let began = Instant::now();
    world.by_function("many", "one").await?;
    let mut seen = BTreeSet::new();
    let mut last = began;
    while seen.len() < count {
        let change = children.next(CHANGE_TIMEOUT).await?;
        if change.object.name_any().starts_with("fleet-") {
            seen.insert(change.object.name_any());
            last = change.at;
        }
    }
    let took = (last - began).as_secs_f64();
    let what = format!("{count} parents with a function of 5 ms, the last child there after");
    report.add(&what, "s", Budget::AtMost(SETTLED), took);
    settled(world, namespace, count).await?;
    let spent = processor_time(oz.process.pid())?.saturating_sub(spent);
    let each = spent.as_secs_f64() * 1000.0 / count_of(count)?;
    report.add("  CPU of the operator, each", "ms", Budget::None, each);
    let grown = (resident(oz.process.pid())? - before) * 5000.0 / count_of(count)?;
    report.add(
        "memory for 5,000 such parents and children",
        "MiB",
        Budget::AtMost(MEMORY),
        grown,
    );

    let mark = cluster.audit().mark()?;
    tokio::time::sleep(size.idle).await;
    let writes = cluster
        .audit()
        .since(mark)?
        .in_namespace(namespace)
        .writes()
        .len();
    let what = format!(
        "API writes for {count} idle parents, in {} s",
        size.idle.as_secs()
    );
    report.add(&what, "", Budget::AtMost(0.0), count_of(writes)?);
    Ok(())
}

/// Waits until every parent has its status.
async fn settled(world: &World, namespace: &str, count: usize) -> Result<()> {
    let parents = fleets(world.client(), namespace);
    let what = format!("{count} parents to have a status");
    eventually(&what, CHANGE_TIMEOUT * 3, async || {
        let list = parents.list(&ListParams::default()).await?;
        let settled = list
            .iter()
            .filter(|parent| parent.data["status"]["settled"] == true);
        Ok((settled.count() == count).then_some(()))
    })
    .await
}

fn count_of(count: usize) -> Result<f64> {
    Ok(f64::from(u32::try_from(count).context("too many")?))
}
