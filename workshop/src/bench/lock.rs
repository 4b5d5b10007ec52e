//! The time that a lock takes to end all access in a namespace, on a real node: hundreds of grants, some of
//! them with an open session. From the creation of the lock until the last RoleBinding is gone, the last
//! session is over for its user, and the last of its processes was seen.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::{AccessLock, labels};
use oz_e2e::{Options, System};
use oz_testkit::Cluster;
use serde_json::json;

use super::report::{Budget, Report};
use super::scene::{BenchScene, CHANGE_TIMEOUT};
use super::sessions::{END_TIMEOUT, Open, ProcessWatch, User, gone, milliseconds, open};
use super::stats::Values;
use crate::changes::Watching;
use crate::real_node;

/// The number of sessions that are opened at once.
const AT_ONCE: usize = 4;
/// The budget for the last of all, in milliseconds.
const ENDED: f64 = 2000.0;

/// The size of the bench.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) grants: usize,
    pub(super) sessions: usize,
    pub(super) runs: u32,
}

impl Size {
    pub(super) const fn full(runs: u32) -> Self {
        Self {
            grants: 200,
            sessions: 20,
            runs,
        }
    }

    pub(super) const fn quick() -> Self {
        Self {
            grants: 40,
            sessions: 4,
            runs: 1,
        }
    }
}

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = real_node::cluster().await?;
    let _system = System::start_with(cluster, &Options::default().cutting()).await?;
    for run in 0..size.runs {
        locked(cluster, run, size, report).await?;
    }
    Ok(())
}

async fn locked(
    cluster: &'static Cluster,
    run: u32,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let mut bench = BenchScene::set(cluster, &format!("lock-{run}")).await?;
    let bindings = bench.scene.api::<RoleBinding>();
    let granted = |all: &[RoleBinding]| {
        let ours = all
            .iter()
            .filter(|one| labels::owner_uid(&one.metadata).is_some());
        ours.count()
    };
    let until = Timestamp::now() + SignedDuration::from_mins(30);
    let scene = &bench.scene;
    let sessions: Vec<Open> = futures::stream::iter(0..size.sessions)
        .map(async |number| {
            let name = format!("locked-{run}-{number}");
            open(scene, name, User::Plain, number % 2 == 1, until).await
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let there = granted(&bindings.list(&Default::default()).await?.items);
    let more = size.grants.saturating_sub(there);
    bench.ask_many("beside", more).await?;
    let count = granted(&bindings.list(&Default::default()).await?.items);

    let watch = ProcessWatch::start();
    let mut changes = Watching::start(bindings).await?;
    let locks = Api::<AccessLock>::all(bench.scene.admin.clone());
    let lock: AccessLock = serde_json::from_value(json!({
        "metadata": {"name": bench.scene.name()},
        "spec": {"target": {"namespace": bench.scene.name()}, "reason": "measured"},
    }))?;
    let (began, instant) = (Timestamp::now(), Instant::now());
    locks.create(&PostParams::default(), &lock).await?;
    let mut ends = Vec::new();
    while ends.len() < count {
        let seen = changes.next(CHANGE_TIMEOUT).await?;
        if seen.deleted && labels::owner_uid(&seen.object.metadata).is_some() {
            ends.push(seen.at.duration_since(instant));
        }
    }
    let over = sessions.iter().map(|one| {
        let ended = one.session.ended(END_TIMEOUT);
        ended.with_context(|| one.name.clone())
    });
    let over: Vec<Timestamp> = over.collect::<Result<_>>()?;
    let processes = gone(&sessions, &watch)?;
    locks
        .delete(&lock.name_any(), &DeleteParams::default())
        .await?;
    report_ends(count, ends, report);
    let after = |instants: Vec<Timestamp>| -> Values {
        let each = instants
            .iter()
            .map(|at| milliseconds(at.duration_since(began)));
        each.collect()
    };
    for (what, values) in [
        ("session over for its user", after(over)),
        ("process of a session seen", after(processes)),
    ] {
        let figure = format!("last {what}, {} sessions", size.sessions);
        report.add(&figure, "ms", Budget::AtMost(ENDED), values.max());
    }
    Ok(())
}

fn report_ends(count: usize, ends: Vec<Duration>, report: &mut Report) {
    let ends: Values = ends.into_iter().collect();
    report.add(
        &format!("RoleBinding gone after the lock, p50 of {count}"),
        "ms",
        Budget::None,
        ends.median(),
    );
    report.add(
        "last RoleBinding gone after the lock",
        "ms",
        Budget::AtMost(ENDED),
        ends.max(),
    );
}
