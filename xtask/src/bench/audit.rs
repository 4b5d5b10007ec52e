//! What the audit trail costs: the processor's time for one record, and what a grant takes longer
//! because its record is in the cluster before its RoleBinding.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use oz_core::access::stamp::Requester;
use oz_core::api::AuditEvent;
use oz_core::audit::verify::{Evidence, Terms, verify};
use oz_core::audit::{
    Action, AuditKey, Chain, Decision, Entry, PodRef, Record, RequestRef, Trust, Writer,
};
use oz_e2e::{Operator, Options, Webhook, install};

use super::Size;
use super::report::{Budget, Report};
use super::scene::{self, Place};
use super::stats::Values;

const RECORDS: i64 = 20_000;
const BATCH: usize = 100;
/// How long an operator has to end in an orderly way.
const END: Duration = Duration::from_secs(30);

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    for _ in 0..size.runs {
        records(report)?;
    }
    durable(size, report).await
}

fn record(number: i64, start: Timestamp) -> Record {
    let uid = format!("0a1b2c3d-0000-4000-8000-{number:012}");
    // As many a second as the grants that are asked of oz, twice over.
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

/// All that a record costs before it is on its way: its place in the chain, its digest, a signature
/// once a second, its line and its object.
fn records(report: &mut Report) -> Result<()> {
    let start: Timestamp = "2026-01-01T12:00:00Z".parse()?;
    let key = AuditKey::new(&[7; AuditKey::BYTES]);
    let writer = Writer::new("oz-operator", "oz-0", start, 7);
    let (mut chain, first) = Chain::begin(writer, start, &[], &key);
    let records: Vec<Record> = (0..RECORDS).map(|number| record(number, start)).collect();
    let mut lines = vec![first.value().to_string()];
    let mut batches = Vec::new();
    let (mut signed, mut left) = (start, records.into_iter());
    loop {
        let batch: Vec<Record> = left.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        let many = f64::from(u32::try_from(batch.len())?);
        let began = Instant::now();
        for record in batch {
            let due = record.time.duration_since(signed) >= SignedDuration::from_secs(1);
            if due {
                signed = record.time;
            }
            let entry: Entry = chain.append(record, due.then_some(&key));
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
    let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(u32::try_from(lines.len())?);
    report.add("  to verify one", "µs", Budget::None, each);
    Ok(())
}

/// The same grants with and without AuditEvents, one after the other, by turns.
async fn durable(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    install(cluster).await?;
    let _webhook = Webhook::start(cluster, &Options::default()).await?;
    for run in 0..size.runs {
        let mut medians = Vec::new();
        for (flag, what) in [
            ("--audit-objects=false", "create to Ready p50, log only"),
            (
                "--audit-objects=true",
                "create to Ready p50, AuditEvents too",
            ),
        ] {
            let mut operator = Operator::start(cluster, &Options::default().flag(flag)).await?;
            let name = format!("audit-{run}-{}", medians.len());
            let mut place = Place::set(cluster, &name).await?;
            let mut took = Vec::new();
            for number in 0..size.one_by_one {
                took.push(place.ask_one(&format!("one-{number}")).await?);
            }
            let median = took.into_iter().collect::<Values>().median();
            report.add(what, "ms", Budget::None, median);
            medians.push(median);
            operator.process.terminate(END).await?;
        }
        if let [without, with] = medians[..] {
            let added = with - without;
            report.add(
                "  the durable write adds",
                "ms",
                Budget::AtMost(10.0),
                added,
            );
        }
    }
    Ok(())
}
