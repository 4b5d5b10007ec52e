//! Two operators and two webhooks under constant requests: the delays of access and its end after an event of
//! a replica, the authority or the API server, and the number of refused requests.

use anyhow::Result;
use oz_e2e::{Outcome, Replicas, Scene, Traffic};
use oz_testkit::Cluster;

use super::report::{Budget, Report};
use super::scene;
use super::stats::{Values, number};

/// The budget of a lease and a second, in milliseconds.
const PROMISE: Budget = Budget::AtMost(16_000.0);

/// Uses one cluster for all runs; a namespace and new replicas for each event.
pub(super) async fn measure(runs: u32, report: &mut Report) -> Result<()> {
    let (owner, cluster) = scene::cluster().await?;
    for _ in 0..runs {
        let (replicas, scene, traffic) = set(cluster).await?;
        traffic.more(50).await?;
        add("nothing happens", &traffic.stop(&scene).await?, report)?;
        drop(replicas);

        let (mut replicas, scene, traffic) = set(cluster).await?;
        replicas.kill_leader().await?;
        traffic.granted(&scene).await?;
        add("leader killed", &traffic.stop(&scene).await?, report)?;
        drop(replicas);

        let (mut replicas, scene, traffic) = set(cluster).await?;
        replicas.roll(&traffic, &scene).await?;
        add("all replaced", &traffic.stop(&scene).await?, report)?;
        drop(replicas);

        let (replicas, scene, traffic) = set(cluster).await?;
        replicas.rotate_authority().await?;
        traffic.more(20).await?;
        add("authority replaced", &traffic.stop(&scene).await?, report)?;
        drop(replicas);

        let (replicas, scene, traffic) = set(cluster).await?;
        let (killed, back) = owner.restart_api_server().await?;
        traffic.granted(&scene).await?;
        let outcome = traffic.stop(&scene).await?;
        let without = back.duration_since(killed).as_millis_f64();
        report.add("API server killed: back after", "ms", Budget::None, without);
        add_times("API server killed", &outcome, Budget::None, report);
        drop(replicas);
    }
    Ok(())
}

async fn set(cluster: &'static Cluster) -> Result<(Replicas, Scene, Traffic)> {
    let replicas = Replicas::start(cluster).await?;
    let scene = Scene::set(cluster, "ha").await?;
    let traffic = Traffic::start(&scene).await?;
    traffic.flows(&scene).await?;
    Ok((replicas, scene, traffic))
}

fn add(what: &str, outcome: &Outcome, report: &mut Report) -> Result<()> {
    add_times(what, outcome, PROMISE, report);
    let turned_away = outcome.refused.len() + outcome.unreachable + outcome.in_vain.len();
    let turned_away = number(turned_away)?;
    report.add(
        &format!("{what}: turned away"),
        "",
        Budget::AtMost(0.0),
        turned_away,
    );
    Ok(())
}

fn add_times(what: &str, outcome: &Outcome, promise: Budget, report: &mut Report) {
    let granted = outcome.granted.iter();
    let wait: Values = granted
        .clone()
        .map(|it| it.wait().as_millis_f64())
        .collect();
    let late: Values = granted.map(|it| it.late().as_millis_f64()).collect();
    for (figure, values) in [("access after asking", wait), ("end after its time", late)] {
        let mut row = |name: &str, budget, value| {
            report.add(&format!("{what}: {figure}, {name}"), "ms", budget, value);
        };
        row("p50", Budget::None, values.median());
        row("p99", Budget::None, values.percentile(99));
        row("max", promise, values.max());
    }
}
