//! The cost of the audit trail: the processor time for one audit record, the additional time of a grant
//! because its record is in the cluster before its RoleBinding, and the memory for the deletion of old
//! events.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use oz_api::{ExecAccessRequest, Requester, labels};
use oz_core::kinds::AccessRequest as _;
use oz_e2e::{Operator, Options, Scene, Webhook, install};
use oz_testkit::{AuditMark, eventually};
use oz_trail::verify::{Evidence, Terms, verify};
use oz_trail::{
    Action, AuditEvent, AuditKey, Chain, Decision, Entry, PodRef, Record, RequestRef, Trust,
    Writer, time_in_name,
};

use super::Size;
use super::process::peak;
use super::report::{Budget, Report};
use super::scene::{self, BenchScene};
use super::stats::{Values, number};

const RECORDS: i64 = 20_000;
const BATCH: usize = 100;
/// The number of events that are created at once.
const AT_ONCE: usize = 32;
/// The timeout for the deletion of old events, after which the bench fails.
const REAPED: Duration = Duration::from_secs(3_600);
/// The budget for the operator's additional memory because of old events, in MiB: a few pages of metadata.
const MEMORY: f64 = 16.0;
/// The timeout for the orderly end of an operator.
const END: Duration = Duration::from_secs(30);

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    for _ in 0..size.runs {
        records(report)?;
    }
    durable(size, report).await?;
    retention(size, report).await
}

fn record(number: i64, start: Timestamp) -> Record {
    let uid = format!("0a1b2c3d-0000-4000-8000-{number:012}");
    // Twice as many per second as the grants that oz must support.
    let time = start + SignedDuration::from_millis(number * 5);
    Record {
        user: Some(Requester {
            user: "alice@example.com".to_owned(),
            uid: String::new(),
            groups: vec!["devs".to_owned(), "system:authenticated".to_owned()],
        }),
        request: RequestRef {
            kind: "ExecAccessRequest".to_owned(),
            namespace: "shop".to_owned(),
            name: format!("debug-{number}"),
            uid: uid.clone(),
        },
        template: "shell".to_owned(),
        template_digest: Some(format!("sha256:{}", "ab".repeat(32))),
        pod: Some(PodRef {
            name: "web-7854b9b975-4z5bv".to_owned(),
            uid: uid.clone(),
            container: None,
        }),
        until: Some(time + SignedDuration::from_mins(5)),
        ..Record::about(
            time,
            Action::AccessGranted,
            Decision::Allow,
            &uid,
            "Success",
            "alice@example.com may use pod web-7854b9b975-4z5bv until 2026-01-01T12:05:00Z",
        )
    }
}

/// Measures the whole cost of an audit record before it is sent: its place in the chain, its digest, a
/// signature once a second, its line and its object.
fn records(report: &mut Report) -> Result<()> {
    let start: Timestamp = "2026-01-01T12:00:00Z".parse()?;
    let key = AuditKey::new(&[7; AuditKey::BYTES]);
    let writer = Writer::new("oz-operator", "oz-0", start, 7);
    let (mut chain, first) = Chain::begin(writer, start, &[], &key);
    let records: Vec<Record> = (0..RECORDS).map(|number| record(number, start)).collect();
    let mut lines = vec![first.value().to_string()];
    let mut batches = Vec::new();
    let mut left = records.into_iter();
    loop {
        let batch: Vec<Record> = left.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        let many = number(batch.len())?;
        let began = Instant::now();
        for record in batch {
            let entry: Entry = chain.append(record, &key);
            lines.push(entry.value().to_string());
            black_box(AuditEvent::from(entry));
        }
        batches.push(began.elapsed().as_secs_f64() * 1e6 / many);
    }
    let median = batches.into_iter().collect::<Values>().median();
    report.add("one record", "µs", Budget::AtMost(20.0), median);

    let alone = (0..200).map(|_| {
        let began = Instant::now();
        black_box(key.sign("bench\n", black_box(b"sha256:abc")));
        began.elapsed().as_secs_f64() * 1e6
    });
    let alone = alone.collect::<Values>().median();
    report.add("  a signature alone", "µs", Budget::None, alone);

    let began = Instant::now();
    let mut evidence = Evidence::default();
    evidence.log("log", &lines.join("\n"));
    let terms = Terms {
        trust: Trust::pinned([key.public().as_str()])?,
        ..Terms::default()
    };
    let whole = verify(evidence, &terms).is_whole();
    anyhow::ensure!(whole, "the trail that was measured is not whole");
    let each = began.elapsed().as_secs_f64() * 1e6 / number(lines.len())?;
    report.add("  to verify one", "µs", Budget::None, each);
    Ok(())
}

/// Measures the same grants with and without AuditEvents, one after the other, by turns; and with AuditEvents
/// the time for which the RoleBinding waited for the event after the Role existed.
async fn durable(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    install(cluster).await?;
    let _webhook = Webhook::start(cluster, &Options::default()).await?;
    for run in 0..size.runs {
        let mut medians = [0.0; 2];
        // The order alternates from run to run: the machine changes in between.
        for turn in 0..2 {
            let with = (turn + run) % 2 == 1;
            let options = Options::default().set("audit.objects", with);
            let mut operator = Operator::start(cluster, &options).await?;
            let mut bench = BenchScene::set(cluster, &format!("audit-{run}-{turn}")).await?;
            let mark = cluster.audit().mark()?;
            let mut took = Vec::new();
            for number in 0..size.one_by_one {
                took.push(bench.ask_one(&format!("one-{number}")).await?);
            }
            let median = took.into_iter().collect::<Values>().median();
            let what = match with {
                true => "create to Ready p50, AuditEvents too",
                false => "create to Ready p50, log only",
            };
            report.add(what, "ms", Budget::None, median);
            medians[usize::from(with)] = median;
            if with {
                let waited = waited(&bench.scene, mark).await?;
                let what = "  the binding waits for the event p50";
                report.add(what, "ms", Budget::AtMost(10.0), waited.median());
                let what = "  the binding waits for the event p99";
                report.add(what, "ms", Budget::None, waited.percentile(99));
            }
            operator.process.terminate(END).await?;
        }
        let [without, with] = medians;
        let what = "  the durable write adds";
        report.add(what, "ms", Budget::AtMost(10.0), with - without);
    }
    Ok(())
}

/// Returns the delay of the event of each grant of the scene after its Role, which is written at the same
/// time: for that time the RoleBinding waited for nothing else. By the API server's own log.
async fn waited(scene: &Scene, mark: AuditMark) -> Result<Values> {
    let entries = scene.cluster.audit().since(mark)?.writes();
    let made = |resource: &str| -> BTreeMap<String, Timestamp> {
        let entries = entries.iter().filter(|entry| {
            entry.resource == resource && entry.verb == "create" && entry.succeeded()
        });
        entries
            .map(|entry| (entry.name.clone(), entry.stage_timestamp))
            .collect()
    };
    let (roles, events) = (made("roles"), made("auditevents"));
    let granted =
        ListParams::default().labels(&format!("{}={}", labels::AUDIT_KIND, Action::AccessGranted));
    let granted = Api::<AuditEvent>::all(scene.admin.clone())
        .list(&granted)
        .await?;
    let requests = scene.api::<ExecAccessRequest>();
    let requests = requests.list(&ListParams::default()).await?;
    let names: BTreeMap<String, String> = requests
        .iter()
        .filter_map(|request| request.stored().ok())
        .map(|request| (request.uid().to_owned(), request.role_name()))
        .collect();
    let waits: Values = granted
        .iter()
        .filter(|event| event.spec.record.request.namespace == scene.name())
        .filter_map(|event| {
            let request = &event.spec.record.request;
            let role = roles.get(names.get(&request.uid)?)?;
            let event = events.get(&event.name_any())?;
            Some(event.duration_since(*role).as_secs_f64().max(0.0) * 1e3)
        })
        .collect();
    anyhow::ensure!(
        waits.max() > 0.0,
        "no grant of the scene was found in the API server's log"
    );
    Ok(waits)
}

/// Measures the deletion of many old events: the memory of the operator at that time. It is the same as
/// without any, if it never holds more of them than a page.
async fn retention(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    install(cluster).await?;
    let admin = cluster.client("admin").await?;
    let options = Options::default().set("audit.retention", "24h");
    let mut operator = Operator::start(cluster, &options).await?;
    let without = peak(operator.process.pid())?;
    report.add(
        "operator's memory, no events, peak",
        "MiB",
        Budget::None,
        without,
    );
    operator.process.terminate(END).await?;

    // An administrator writes the following objects, which admission policies prevent.
    oz_e2e::unregister(cluster)?;
    let events: Api<AuditEvent> = Api::all(admin);
    let start = Timestamp::now() - SignedDuration::from_hours(48);
    let key = AuditKey::new(&[7; AuditKey::BYTES]);
    let writer = Writer::new("oz-operator", "bench", start, 7);
    let (mut chain, first) = Chain::begin(writer, start, &[], &key);
    let records = (1..i64::try_from(size.events)?).map(|number| record(number, start));
    let entries = std::iter::once(first).chain(records.map(|record| chain.append(record, &key)));
    stream::iter(entries.map(AuditEvent::from))
        .map(|event| {
            let events = &events;
            async move { events.create(&PostParams::default(), &event).await }
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |_| Ok(()))
        .await?;

    let mut operator = Operator::start(cluster, &options).await?;
    let began = Instant::now();
    let one = ListParams::default().limit(1);
    eventually("the old events to go", REAPED, async || {
        let list = events.list_metadata(&one).await?;
        let name = list.items.first().map(ResourceExt::name_any);
        let oldest = name.and_then(|name| time_in_name(&name));
        let day = Timestamp::now() - SignedDuration::from_hours(24);
        Ok(oldest.is_none_or(|oldest| oldest > day).then_some(()))
    })
    .await?;
    let took = began.elapsed().as_secs_f64();
    let many = number(size.events)?;
    let with = peak(operator.process.pid())?;
    report.add(
        &format!("operator's memory, {many} old events, peak"),
        "MiB",
        Budget::None,
        with,
    );
    let budget = Budget::AtMost(MEMORY);
    report.add("  what they add", "MiB", budget, with - without);
    report.add("  deleted a second", "/s", Budget::None, many / took);
    operator.process.terminate(END).await?;
    Ok(())
}
