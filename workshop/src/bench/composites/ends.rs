//! The delays of the begin and end of children that a policy names within windows, and of the end of grants:
//! alone, and while the functions of fifty other composites never respond.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::{Api, ResourceExt as _};
use oz_testkit::{Cluster, TestNamespace};
use serde_json::json;

use super::super::ends::gone;
use super::super::report::{Budget, Report};
use super::super::scene::{BenchScene, CHANGE_TIMEOUT};
use super::super::stats::Values;
use super::Size;
use super::policy::WINDOWS;
use super::world::World;
use crate::changes::Watching;

/// The maximum ratio of the delay of an end while functions hang.
const RATIO: f64 = 1.2;
/// The time in which every grant must be active.
const GRANTING: SignedDuration = SignedDuration::from_secs(20);

pub(super) async fn measure(
    cluster: &'static Cluster,
    world: &World,
    run: u32,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let alone = windows(cluster, world, &format!("alone-{run}"), size).await?;
    let grants_alone = grants(cluster, &format!("grants-alone-{run}"), size).await?;
    let namespace = TestNamespace::create(cluster, &format!("hanging-{run}")).await?;
    let hanging: Vec<String> = (0..size.hanging)
        .map(|number| format!("hanging-{run}-{number}"))
        .collect();
    for name in &hanging {
        let parent = [(name.clone(), json!({}))];
        world.parents(namespace.name(), name, &parent).await?;
        world.by_function(name, "hang").await?;
    }
    let beside = windows(cluster, world, &format!("beside-{run}"), size).await?;
    let grants_beside = grants(cluster, &format!("grants-beside-{run}"), size).await?;
    for name in &hanging {
        world.remove(name).await?;
    }

    let second = Budget::AtMost(1000.0);
    for (what, lags) in [
        ("child there after its window began", &alone.begun),
        ("child gone after its window ended", &alone.ended),
        ("  while 50 functions hang", &beside.ended),
        ("grant gone after its end", &grants_alone),
        ("  grant, while 50 functions hang", &grants_beside),
    ] {
        report.add(&format!("{what}, p50"), "ms", Budget::None, lags.median());
        report.add(&format!("{what}, p99"), "ms", second, lags.percentile(99));
    }
    let ratio = |what: &str, beside: &Values, alone: &Values, report: &mut Report| {
        let ratio = beside.median() / alone.median();
        report.add(what, "x", Budget::AtMost(RATIO), ratio);
    };
    ratio(
        "ends of children, hanging to alone, p50",
        &beside.ended,
        &alone.ended,
        report,
    );
    ratio(
        "ends of grants, hanging to alone, p50",
        &grants_beside,
        &grants_alone,
        report,
    );
    Ok(())
}

struct Lags {
    begun: Values,
    ended: Values,
}

/// Measures windows that begin within half a minute and end within the next; between, the policy is broken.
async fn windows(cluster: &'static Cluster, world: &World, name: &str, size: Size) -> Result<Lags> {
    let namespace = TestNamespace::create(cluster, name).await?;
    world.policy(WINDOWS).await?;
    world.by_policy(name).await?;
    let maps = Api::<ConfigMap>::namespaced(world.client().clone(), namespace.name());
    let mut children = Watching::start(maps).await?;
    let count = i64::try_from(size.windows)?;
    let first = Timestamp::now() + SignedDuration::from_secs(3 + count / 20);
    let mut due = BTreeMap::new();
    let mut parents = Vec::new();
    for number in 0..count {
        let from = first + SignedDuration::from_millis(25_000 * number / count);
        let until = from + SignedDuration::from_secs(30);
        let name = format!("window-{number}");
        let spec = json!({"validFrom": from, "validUntil": until, "value": "open"});
        parents.push((name.clone(), spec));
        due.insert(name, (from, until));
    }
    world.parents(namespace.name(), name, &parents).await?;
    anyhow::ensure!(
        Timestamp::now() < first,
        "the machine is too slow: creating took too long"
    );
    let (mut begun, mut ended) = (BTreeMap::new(), Vec::new());
    while ended.len() < size.windows {
        let seen = children.next(CHANGE_TIMEOUT).await?;
        let name = seen.object.name_any();
        let Some((from, until)) = due.get(&name) else {
            continue;
        };
        let since = |instant: &Timestamp| seen.time.duration_since(*instant).as_secs_f64() * 1000.0;
        if seen.deleted {
            ended.push(since(until));
        } else {
            begun.entry(name).or_insert_with(|| since(from));
            if begun.len() == size.windows {
                world.policy("package windows\n\nthis is no policy").await?;
            }
        }
    }
    world.policy(WINDOWS).await?;
    world.remove(name).await?;
    Ok(Lags {
        begun: begun.into_values().collect(),
        ended: ended.into_iter().collect(),
    })
}

/// Measures grants that end at one instant.
async fn grants(cluster: &'static Cluster, name: &str, size: Size) -> Result<Values> {
    let mut bench = BenchScene::set(cluster, name).await?;
    let mut bindings = Watching::start(bench.scene.api::<RoleBinding>()).await?;
    let until = Timestamp::from_second((Timestamp::now() + GRANTING).as_second())?;
    let names = (0..size.grants).map(|number| format!("grant-{number}"));
    let asked = bench.ask_until(names.collect(), until).await?;
    gone(&mut bindings, &asked).await
}
