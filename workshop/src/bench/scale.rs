//! The effects of the size of a cluster: memory, the start, the time to Ready and an idle minute, with an
//! increasing number of pods, with templates and namespaces of teams, and then of grants; the time in which a
//! start ends overdue grants among them; and their size in etcd.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use oz_api::TargetKind;
use oz_e2e::{Operator, Options, TEMPLATE, WORKLOAD, Webhook, exec_template, install};
use oz_testkit::Cluster;
use serde_json::json;

use super::ends::gone;
use super::grants::{PAUSE, operator as account};
use super::process::{processor_time, resident};
use super::report::{Budget, Report};
use super::scene::{self, BenchScene, administrators, create_all};
use super::single;
use super::stats::{Values, number};
use crate::changes::Watching;

/// The namespace of the pods without requests.
const CROWD: &str = "crowd";
/// The time after its start before the memory of a process is read.
const SETTLING: Duration = Duration::from_secs(3);
/// The time in which the grants that will be overdue must be active.
const GRANTING: SignedDuration = SignedDuration::from_secs(60);
/// The budget for the memory of both processes together, in MiB.
const MEMORY: f64 = 120.0;
/// The budget for the time in which a start ends overdue grants, in milliseconds.
const OVERDUE: f64 = 2000.0;

/// The size of the bench.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) pods: [usize; 3],
    pub(super) grants: [usize; 3],
    /// Namespaces of teams, and templates, one in each as far as they suffice.
    pub(super) namespaces: usize,
    pub(super) templates: usize,
    pub(super) overdue: usize,
    /// Grants that are timed at each size.
    pub(super) timed: usize,
    pub(super) idle: Duration,
}

impl Size {
    pub(super) const fn full() -> Self {
        Self {
            pods: [0, 10_000, 50_000],
            grants: [0, 2_000, 10_000],
            namespaces: 1_000,
            templates: 500,
            overdue: 500,
            timed: 20,
            idle: Duration::from_secs(60),
        }
    }

    pub(super) const fn quick() -> Self {
        Self {
            pods: [0, 1_000, 4_000],
            grants: [0, 100, 400],
            namespaces: 100,
            templates: 50,
            overdue: 50,
            timed: 10,
            idle: Duration::from_secs(15),
        }
    }
}

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    install(cluster).await?;
    let options = Options::default();
    let mut stage = Stage {
        cluster,
        webhook: Webhook::start(cluster, &options).await?,
        operator: single::start(cluster).await?.0,
        options,
    };
    let mut bench = BenchScene::set(cluster, "scale").await?;
    stage.pods(size, &mut bench, report).await?;
    stage.teams(size, &mut bench, report).await?;
    stage.grants(size, &mut bench, report).await?;
    stage.idle(size, report).await?;
    stage.overdue(size, &mut bench, report).await
}

struct Stage {
    cluster: &'static Cluster,
    options: Options,
    webhook: Webhook,
    operator: Operator,
}

/// The memory of both processes, in MiB.
#[derive(Clone, Copy, Debug)]
struct MemoryUsage {
    operator: f64,
    webhook: f64,
}

impl Stage {
    /// Measures an increasing number of other pods, which are not scheduled.
    async fn pods(
        &mut self,
        size: Size,
        bench: &mut BenchScene,
        report: &mut Report,
    ) -> Result<()> {
        let clients = administrators(self.cluster).await?;
        create_all(&clients, &[namespace(CROWD)?], Api::all).await?;
        let (mut there, mut held, mut first) = (0, Vec::new(), None);
        for count in size.pods {
            let pods = (there..count).map(pod).collect::<Result<Vec<_>>>()?;
            create_all(&clients, &pods, |client| Api::namespaced(client, CROWD)).await?;
            there = count;
            held.push((count, self.begin_again("pods", count, report).await?));
            let took = timed(bench, &count.to_string(), size.timed).await?;
            let what = format!("create to Ready with {count} pods, p50");
            report.add(&what, "ms", Budget::None, took);
            let before = *first.get_or_insert(took);
            if count > 0 {
                let what = format!("  over the same without pods, {count} pods");
                report.add(&what, "×", Budget::AtMost(1.1), took / before);
            }
        }
        each("a pod", &held, report)
    }

    /// Measures the objects of teams without requests: namespaces, and a template in some.
    async fn teams(
        &mut self,
        size: Size,
        bench: &mut BenchScene,
        report: &mut Report,
    ) -> Result<()> {
        let clients = administrators(self.cluster).await?;
        let names: Vec<String> = (0..size.namespaces)
            .map(|it| format!("team-{it}"))
            .collect();
        let all = names.iter().map(|name| namespace(name));
        create_all(&clients, &all.collect::<Result<Vec<_>>>()?, Api::all).await?;
        let template = exec_template(TEMPLATE, TargetKind::Deployment, WORKLOAD);
        let template = std::slice::from_ref(&template);
        for name in names.iter().take(size.templates) {
            create_all(&clients, template, |client| Api::namespaced(client, name)).await?;
        }
        let what = format!("namespaces and {} templates", size.templates);
        self.begin_again(&what, size.namespaces, report).await?;
        let took = timed(bench, "teams", size.timed).await?;
        report.add(
            "create to Ready beside these, p50",
            "ms",
            Budget::None,
            took,
        );
        Ok(())
    }

    /// Measures an increasing number of grants, all of them active, together with these pods.
    async fn grants(
        &mut self,
        size: Size,
        bench: &mut BenchScene,
        report: &mut Report,
    ) -> Result<()> {
        let before = stored(self.cluster).await?;
        let (mut there, mut held) = (0, Vec::new());
        for count in size.grants {
            bench
                .ask_many(&format!("of-{count}"), count - there)
                .await?;
            there = count;
            held.push((count, self.begin_again("grants", count, report).await?));
        }
        each("a grant", &held, report)?;
        let bytes = (stored(self.cluster).await? - before) / number(there)?;
        let what = "a grant in etcd, with its records and every revision";
        report.add(what, "KiB", Budget::None, bytes / 1024.0);
        Ok(())
    }

    /// Restarts both, and measures them once they have read everything.
    async fn begin_again(
        &mut self,
        what: &str,
        count: usize,
        report: &mut Report,
    ) -> Result<MemoryUsage> {
        let (operator, took) = single::start(self.cluster).await?;
        self.operator = operator;
        self.webhook = Webhook::start(self.cluster, &self.options).await?;
        let figure = format!("start to ready with {count} {what}");
        let milliseconds = took.as_secs_f64() * 1000.0;
        report.add(&figure, "ms", Budget::AtMost(1000.0), milliseconds);
        tokio::time::sleep(SETTLING).await;
        let held = MemoryUsage {
            operator: resident(self.operator.process.pid())?,
            webhook: resident(self.webhook.process.pid())?,
        };
        for (process, memory) in [("operator", held.operator), ("webhook", held.webhook)] {
            let figure = format!("memory of the {process} with {count} {what}");
            report.add(&figure, "MiB", Budget::AtMost(MEMORY), memory);
        }
        Ok(held)
    }

    /// Measures the activity of the operator without requests.
    async fn idle(&self, size: Size, report: &mut Report) -> Result<()> {
        let pid = self.operator.process.pid();
        let (mark, before) = (self.cluster.audit().mark()?, processor_time(pid)?);
        tokio::time::sleep(size.idle).await;
        let spent = processor_time(pid)?.saturating_sub(before);
        let part = spent.as_secs_f64() / size.idle.as_secs_f64() * 100.0;
        report.add("CPU of the operator at rest", "%", Budget::None, part);
        let calls = self.cluster.audit().since(mark)?.by_user(&account());
        let writes = number(calls.writes().filter(|entry| !entry.dry_run).len())?;
        let hourly = writes * 3600.0 / size.idle.as_secs_f64();
        report.add("writes of the operator at rest", "/h", Budget::None, hourly);
        Ok(())
    }

    /// Measures grants that end while the operator is down.
    async fn overdue(
        &mut self,
        size: Size,
        bench: &mut BenchScene,
        report: &mut Report,
    ) -> Result<()> {
        let until = Timestamp::from_second((Timestamp::now() + GRANTING).as_second())?;
        let names = (0..size.overdue).map(|number| format!("overdue-{number}"));
        let asked = bench.ask_until(names.collect(), until).await?;
        let mut bindings = Watching::start(bench.scene.api::<RoleBinding>()).await?;
        self.operator.process.kill9();
        let left = until.duration_since(Timestamp::now());
        tokio::time::sleep(left.try_into().unwrap_or_default()).await;
        let began = Timestamp::now();
        self.operator = single::start(self.cluster).await?.0;
        // The times at which the watch reported each, which is before the operator is ready.
        let late = gone(&mut bindings, &asked).await?.max();
        let waited = began.duration_since(until).as_secs_f64() * 1000.0;
        let what = format!("{} that are overdue, gone after the start", size.overdue);
        report.add(&what, "ms", Budget::AtMost(OVERDUE), late - waited);
        Ok(())
    }
}

fn namespace(name: &str) -> Result<Namespace> {
    let namespace = json!({"metadata": {"name": name}});
    serde_json::from_value(namespace).context("not a namespace")
}

fn pod(number: usize) -> Result<Pod> {
    let labels = json!({"app": format!("app-{}", number % 100), "pod-template-hash": "5d9c7b8f6"});
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example/team/{name}:1.2.3"),
            "env": [{"name": "LOG_LEVEL", "value": "info"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        })
    };
    let pod = json!({
        "metadata": {"name": format!("crowd-{number}"), "labels": labels},
        "spec": {"schedulerName": "nobody", "containers": [container("app"), container("proxy")]},
    });
    serde_json::from_value(pod).context("not a pod")
}

/// Measures the duration of grants at this size, one after the other.
async fn timed(bench: &mut BenchScene, size: &str, count: usize) -> Result<f64> {
    let mut took = Vec::new();
    for number in 0..count {
        tokio::time::sleep(PAUSE).await;
        let began = Instant::now();
        bench.ask_one(&format!("timed-{size}-{number}")).await?;
        took.push(began.elapsed());
    }
    Ok(took.into_iter().collect::<Values>().median())
}

/// Reports the memory of one object: the slope of the line that is nearest to the measured values.
fn each(what: &str, held: &[(usize, MemoryUsage)], report: &mut Report) -> Result<()> {
    for (process, memory) in [
        (
            "operator",
            (|held| held.operator) as fn(&MemoryUsage) -> f64,
        ),
        ("webhook", |held| held.webhook),
    ] {
        let points = held
            .iter()
            .map(|(count, held)| Ok((number(*count)?, memory(held))));
        let slope = slope(&points.collect::<Result<Vec<_>>>()?);
        let what = format!("{what} in the memory of the {process}");
        report.add(&what, "KiB", Budget::None, slope * 1024.0);
    }
    Ok(())
}

/// Returns the slope of the line that is nearest to these points, by least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let mean = |of: fn(&(f64, f64)) -> f64| {
        points.iter().map(of).sum::<f64>() / points.iter().map(|_| 1.0).sum::<f64>()
    };
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let together: f64 = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    together
        / points
            .iter()
            .map(|point| (point.0 - x).powi(2))
            .sum::<f64>()
}

/// Returns the number of bytes in etcd.
async fn stored(cluster: &Cluster) -> Result<f64> {
    let client = cluster.client("admin").await?;
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let page = client.request_text(request).await?;
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with("apiserver_storage_size_bytes"));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value
        .context("the size of etcd is not told")?
        .parse()
        .context("no number")
}

#[cfg(test)]
mod tests {
    use super::slope;

    #[test]
    fn a_line_through_points_on_it_has_their_slope() {
        for (points, expected) in [
            (vec![(0.0, 20.0), (10.0, 25.0), (50.0, 45.0)], 0.5),
            (vec![(0.0, 1.0), (1.0, 0.0), (2.0, 2.0)], 0.5),
            (vec![(0.0, 3.0), (7.0, 3.0)], 0.0),
        ] {
            assert!((slope(&points) - expected).abs() < 1e-9, "{points:?}");
        }
    }
}
