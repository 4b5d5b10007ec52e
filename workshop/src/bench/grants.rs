//! Figures that differ from run to run: the duration of a grant, the number of grants in a second, their
//! cost, and the precision of their end.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use oz_api::{labels, names};
use oz_e2e::{NAMESPACE, Options, System};
use oz_testkit::{AuditEntries, AuditMark, Cluster, eventually};
use serde_json::json;

use super::process::processor_time;
use super::report::{Budget, Compared, Report};
use super::scene::{self, BenchScene, CHANGE_TIMEOUT};
use super::stats::{Values, number};
use super::{Size, ends};
use crate::changes::Watching;

/// The system for all runs, on a separate cluster.
struct Measured {
    system: System,
    /// The grants of earlier runs stay: ending them would be work that disturbs the next run.
    scenes: Vec<BenchScene>,
    cluster: &'static Cluster,
    _owner: Cluster,
}

impl Measured {
    /// Starts oz from the current build, or from the programs in a directory.
    async fn start(programs: Option<&Path>) -> Result<Self> {
        let (owner, cluster) = scene::cluster().await?;
        let options = programs.map_or_else(Options::default, |programs| {
            Options::default().programs(programs)
        });
        let leading = options.clone().flag("--leader-elect");
        Ok(Self {
            system: System::start_as(cluster, &options, &leading).await?,
            scenes: Vec::new(),
            cluster,
            _owner: owner,
        })
    }

    /// Runs once, in a separate namespace.
    async fn run(&mut self, size: Size, report: &mut Report) -> Result<()> {
        let cluster = self.cluster;
        let mut bench = BenchScene::set(cluster, "bench").await?;
        one_by_one(cluster, &mut bench, size, report).await?;
        at_once(cluster, &self.system, &mut bench, size, report).await?;
        endings(&mut bench, size, "", report).await?;
        bench.ask_in_vain(size.endings).await?;
        let beside = format!(" beside {} hopeless requests", size.endings);
        endings(&mut bench, size, &beside, report).await?;
        self.scenes.push(bench);
        Ok(())
    }
}

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let mut measured = Measured::start(None).await?;
    for _ in 0..size.runs {
        measured.run(size, report).await?;
    }
    Ok(())
}

/// Measures the current build and another one in turns: the first one in one run is the second one in the
/// next, so that other activity of the machine affects both.
pub(super) async fn compare(size: Size, programs: &Path, reports: &mut Compared) -> Result<()> {
    let mut other = Measured::start(Some(programs)).await?;
    let mut at_hand = Measured::start(None).await?;
    for run in 0..size.runs {
        if run % 2 == 0 {
            other.run(size, &mut reports.other).await?;
        }
        at_hand.run(size, &mut reports.at_hand).await?;
        if run % 2 == 1 {
            other.run(size, &mut reports.other).await?;
        }
    }
    Ok(())
}

/// Returns the user name of the operator.
pub(super) fn operator() -> String {
    format!("system:serviceaccount:{NAMESPACE}:oz-operator")
}

/// The pause between two grants that are not consecutive without a pause.
pub(super) const PAUSE: Duration = Duration::from_millis(800);
/// The namespace of manual Roles and RoleBindings: different from that in which grants are counted.
const BY_HAND: &str = "default";

/// Measures requests one after the other, each next to the creation of a ConfigMap, which no webhook reviews,
/// and next to a manual Role and RoleBinding.
async fn one_by_one(
    cluster: &Cluster,
    bench: &mut BenchScene,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let maps = bench.scene.api::<ConfigMap>();
    let mark = cluster.audit().mark()?;
    let mut hand = ByHand::new(cluster).await?;
    let (mut baseline, mut ready) = (Vec::new(), Vec::new());
    for number in 0..size.one_by_one {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("baseline-{number}")),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        let began = Instant::now();
        maps.create(&PostParams::default(), &map).await?;
        baseline.push(began.elapsed());
        hand.grant().await?;
        ready.push(bench.ask_one(&format!("one-{number}")).await?);
    }
    let (baseline, ready): (Values, Values) =
        (baseline.into_iter().collect(), ready.into_iter().collect());
    let unit = baseline.median();
    report.add("ConfigMap create, p50", "ms", Budget::None, unit);
    report.add(
        "ConfigMap create, p99",
        "ms",
        Budget::None,
        baseline.percentile(99),
    );
    report.add("create to Ready, p50", "ms", Budget::None, ready.median());
    report.add(
        "create to Ready, p99",
        "ms",
        Budget::None,
        ready.percentile(99),
    );
    api_calls(cluster, mark, bench.scene.name(), size.one_by_one, report).await?;
    let grants = size.one_by_one;
    over_hand("back to back", 1.15, hand, &ready, report);
    // Between these, the API server is idle, and its caches receive no changes.
    let mut hand = ByHand::new(cluster).await?;
    let mut ready = Vec::new();
    for number in 0..(grants / 3).max(10) {
        tokio::time::sleep(PAUSE).await;
        hand.grant().await?;
        tokio::time::sleep(PAUSE).await;
        ready.push(bench.ask_one(&format!("spaced-{number}")).await?);
    }
    let ready: Values = ready.into_iter().collect();
    over_hand("0.8 s between two", 1.5, hand, &ready, report);
    Ok(())
}

/// Reports the duration of grants as a ratio to that of the manual writes.
fn over_hand(how: &str, budget: f64, hand: ByHand, ready: &Values, report: &mut Report) {
    let floor: Values = hand.took.into_iter().collect();
    let what = format!("  Role and RoleBinding by hand, {how}, p50");
    report.add(&what, "ms", Budget::None, floor.median());
    let what = format!("  create to Ready, {how}, p50");
    report.add(&what, "ms", Budget::None, ready.median());
    let what = format!("  Ready over by hand, {how}, p50");
    let ratio = ready.median() / floor.median();
    report.add(&what, "×", Budget::AtMost(budget), ratio);
}

/// The two writes that every grant requires, made manually with the operator's rights, under a name that it
/// may bind: the share of Kubernetes in the time to Ready. Kubernetes checks that no user passes on more
/// rights than they have, for which it reads all bindings, and waits until that read is guaranteed to be the
/// newest.
struct Writes {
    roles: Api<Role>,
    bindings: Api<RoleBinding>,
}

impl Writes {
    fn new(client: Client) -> Self {
        Self {
            roles: Api::namespaced(client.clone(), BY_HAND),
            bindings: Api::namespaced(client, BY_HAND),
        }
    }

    /// Writes a grant under one of the names that oz reserves.
    async fn grant(&self, number: usize) -> Result<()> {
        let group = "rbac.authorization.k8s.io";
        let name = name(number)?;
        let metadata = json!({"name": name, "labels": {labels::OWNER_UID: "by-hand"}});
        let role = serde_json::from_value(json!({
            "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}],
        }))?;
        let binding = serde_json::from_value(json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "nobody"}],
        }))?;
        self.roles.create(&PostParams::default(), &role).await?;
        self.bindings
            .create(&PostParams::default(), &binding)
            .await?;
        Ok(())
    }

    async fn take(&self, number: usize) -> Result<()> {
        let (name, now) = (name(number)?, DeleteParams::default());
        self.bindings.delete(&name, &now).await?;
        self.roles.delete(&name, &now).await?;
        Ok(())
    }
}

fn name(number: usize) -> Result<String> {
    Ok(names::grant_role(number.try_into()?))
}

/// The durations of these writes, one after the other.
struct ByHand {
    writes: Writes,
    took: Vec<Duration>,
}

impl ByHand {
    async fn new(cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            writes: Writes::new(cluster.client(&operator()).await?),
            took: Vec::new(),
        })
    }

    async fn grant(&mut self) -> Result<()> {
        let began = Instant::now();
        self.writes.grant(0).await?;
        self.took.push(began.elapsed());
        self.writes.take(0).await
    }
}

/// Counts the operator's API calls for these grants.
pub(super) async fn api_calls(
    cluster: &Cluster,
    mark: AuditMark,
    namespace: &str,
    grants: usize,
    report: &mut Report,
) -> Result<()> {
    let calls = || -> Result<AuditEntries> {
        let entries = cluster.audit().since(mark)?;
        Ok(entries.by_user(&operator()).in_namespace(namespace))
    };
    // A line of the log may be written a moment after the response.
    eventually(
        "the audit log to have every status",
        CHANGE_TIMEOUT,
        async || {
            let statuses = calls()?.filter(|entry| entry.subresource == "status").len();
            Ok((statuses >= grants).then_some(()))
        },
    )
    .await?;
    let is_event = |resource: &str| resource == "events";
    let each = |calls: usize| -> Result<f64> { Ok(number(calls)? / number(grants)?) };
    let writes = calls()?.filter(|entry| entry.is_write() && !is_event(&entry.resource));
    let reads = calls()?.filter(|entry| ["get", "list"].contains(&entry.verb.as_str()));
    let events = calls()?.filter(|entry| is_event(&entry.resource));
    report.add(
        "API writes for a grant",
        "",
        Budget::AtMost(3.0),
        each(writes.len())?,
    );
    report.add(
        // The pods of the workload, and the chosen one; the quota of time between; and once the check whether a
        // request waits for the Role.
        "API reads for a grant",
        "",
        Budget::AtMost(4.0),
        each(reads.len())?,
    );
    report.add(
        "  events for a grant",
        "",
        Budget::AtMost(2.0),
        each(events.len())?,
    );
    Ok(())
}

async fn at_once(
    cluster: &Cluster,
    system: &System,
    bench: &mut BenchScene,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let processes = [
        (
            "operator CPU for a grant",
            &system.operator.process,
            Budget::AtMost(3.0),
        ),
        (
            "  webhook CPU for a grant",
            &system.webhook.process,
            Budget::None,
        ),
    ];
    let before = processes.map(|(_, process, _)| processor_time(process.pid()));
    let names = (0..size.at_once).map(|number| (format!("at-once-{number}"), "1h".to_owned()));
    let (took, _) = bench.ask(names.collect()).await?;
    let count = u32::try_from(size.at_once)?;
    let rate = f64::from(count) / took.as_secs_f64();
    let what = format!("{count} requests at once");
    report.add(&what, "/s", Budget::None, rate);
    for ((what, process, budget), before) in processes.into_iter().zip(before) {
        let spent = processor_time(process.pid())?.saturating_sub(before?);
        let each = spent.as_secs_f64() * 1000.0 / f64::from(count);
        report.add(what, "ms", budget, each);
    }
    let bare = f64::from(count) / by_hand_at_once(cluster, size.at_once).await?.as_secs_f64();
    let what = format!("  {count} by hand at once, of four writes each");
    report.add(&what, "/s", Budget::None, bare);
    let what = format!("{count} requests at once, over by hand");
    report.add(&what, "×", Budget::AtLeast(0.7), rate / bare);
    Ok(())
}

/// Measures the work of many grants in Kubernetes: for each a ConfigMap instead of the request, a Role, a
/// RoleBinding, and the ConfigMap again instead of the status, over the same number of connections as
/// requests use.
async fn by_hand_at_once(cluster: &Cluster, count: usize) -> Result<Duration> {
    let operator = operator();
    let (admins, operators) = tokio::try_join!(
        scene::administrators(cluster),
        scene::connections(cluster, &operator),
    )?;
    let clients = admins.into_iter().zip(operators);
    let clients: Vec<_> = clients
        .map(|(admin, operator)| {
            let maps = Api::<ConfigMap>::namespaced(admin, BY_HAND);
            (maps, Writes::new(operator))
        })
        .collect();
    let began = Instant::now();
    let each = (0..count).zip(clients.iter().cycle());
    let granted = each.map(async |(number, (maps, writes))| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("by-hand-{number}"));
        let mut map = maps.create(&PostParams::default(), &map).await?;
        writes.grant(number).await?;
        map.data = Some([("ready".to_owned(), "yes".to_owned())].into());
        maps.replace(&map.name_any(), &PostParams::default(), &map)
            .await?;
        anyhow::Ok(())
    });
    try_join_all(granted).await?;
    let took = began.elapsed();
    let taken = (0..count).zip(clients.iter().cycle());
    let taken = taken.map(async |(number, (maps, writes))| {
        let name = format!("by-hand-{number}");
        maps.delete(&name, &DeleteParams::default()).await?;
        writes.take(number).await
    });
    try_join_all(taken).await?;
    Ok(took)
}

/// Measures the delay after the end of grants of 5 to 15 seconds until the RoleBinding was gone.
async fn endings(
    bench: &mut BenchScene,
    size: Size,
    beside: &str,
    report: &mut Report,
) -> Result<()> {
    let mut bindings = Watching::start(bench.scene.api::<RoleBinding>()).await?;
    let prefix = if beside.is_empty() { "short" } else { "beside" };
    let requests = (0..size.endings).map(|number| {
        (
            format!("{prefix}-{number}"),
            format!("{}s", 5 + number % 11),
        )
    });
    let (_, asked) = bench.ask(requests.collect()).await?;
    let lags = ends::gone(&mut bindings, &asked).await?;
    let second = Budget::AtMost(1000.0);
    let figure = |name: &str| format!("RoleBinding gone after the end{beside}, {name}");
    report.add(&figure("p50"), "ms", Budget::None, lags.median());
    report.add(&figure("p99"), "ms", second, lags.percentile(99));
    report.add(&figure("max"), "ms", second, lags.max());
    Ok(())
}
