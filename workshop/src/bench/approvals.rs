//! Requests that require approvals: the time from the last approval until access, compared with a grant that
//! requires none; many that are decided at once; the cost of waiting ones; and the time of an emergency.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use oz_api::{AccessRequestApproval, ExecAccessRequest};
use oz_e2e::{
    Options, System, answer_to, approval_rule, approved_template, emergency_request,
    emergency_template,
};
use oz_testkit::Cluster;

use super::grants::operator;
use super::process::processor_time;
use super::report::{Budget, Report};
use super::scene::{self, BenchScene};
use super::stats::{Values, number};

/// The template of which the requests require the approval of one of the approvers.
const APPROVED: &str = "approved";
/// The template by which users on call get access without approvals, if they declare an emergency.
const EMERGENCY: &str = "emergency";
/// The maximum number of unreviewed emergencies of one person.
const OPEN_REVIEWS: i32 = 16;
/// The number of connections for approvals.
const CONNECTIONS: usize = 8;

/// The size of the bench.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) one_by_one: usize,
    pub(super) at_once: usize,
    pub(super) pending: usize,
    pub(super) idle: Duration,
    pub(super) runs: u32,
}

impl Size {
    pub(super) const fn full(runs: u32) -> Self {
        Self {
            one_by_one: 50,
            at_once: 200,
            pending: 5_000,
            idle: Duration::from_secs(60),
            runs,
        }
    }

    pub(super) const fn quick() -> Self {
        Self {
            one_by_one: 15,
            at_once: 50,
            pending: 200,
            idle: Duration::from_secs(15),
            runs: 1,
        }
    }
}

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    let options = Options::default();
    let leading = options.clone().flag("--leader-elect");
    let system = System::start_as(cluster, &options, &leading).await?;
    // The grants of earlier runs stay: ending them would be work that disturbs the next run.
    let mut scenes = Vec::new();
    for run in 0..size.runs {
        let mut stage = Stage::set(cluster, &format!("approvals-{run}")).await?;
        stage.one_by_one(size.one_by_one, report).await?;
        stage.emergencies(size.one_by_one, run, report).await?;
        stage.at_once(size.at_once, report).await?;
        scenes.push(stage);
    }
    let mut stage = Stage::set(cluster, "approvals-pending").await?;
    stage.pending(&system, size, report).await
}

/// A scene, and the approvers.
struct Stage {
    cluster: &'static Cluster,
    bench: BenchScene,
    answers: Vec<Api<AccessRequestApproval>>,
}

impl Stage {
    async fn set(cluster: &'static Cluster, name: &str) -> Result<Self> {
        let bench = BenchScene::set(cluster, name).await?;
        let scene = &bench.scene;
        scene.may_approve("approvers").await?;
        let rules = vec![approval_rule("security", &[], &["approvers"], 1)];
        scene
            .template(&approved_template(APPROVED, rules, "3h"))
            .await?;
        scene
            .template(&emergency_template(EMERGENCY, "24h", OPEN_REVIEWS))
            .await?;
        cluster.issue_kubeconfig("bob", &["approvers"])?;
        let answers = try_join_all((0..CONNECTIONS).map(async |_| {
            let client = cluster.client("bob").await?;
            anyhow::Ok(Api::namespaced(client, scene.name()))
        }));
        Ok(Self {
            cluster,
            answers: answers.await?,
            bench,
        })
    }

    /// Requests access that requires approvals, and waits until its status contains the digest for an
    /// approval.
    async fn waiting(&mut self, names: &[String]) -> Result<Vec<ExecAccessRequest>> {
        self.bench.ask_all(APPROVED, names).await?;
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        self.bench.waiting(names).await
    }

    /// Approves requests over all connections, and returns the time until the last was seen to be ready.
    async fn approve(&mut self, requests: &[ExecAccessRequest]) -> Result<Duration> {
        let answers = requests
            .iter()
            .map(|request| answer_to(request, &format!("{}-yes", request.name_any()), true))
            .collect::<Result<Vec<_>>>()?;
        let names: Vec<String> = requests.iter().map(|one| one.name_any()).collect();
        let began = Instant::now();
        let each = answers.iter().zip(self.answers.iter().cycle());
        let given = each.map(async |(answer, api)| {
            let given = api.create(&PostParams::default(), answer).await;
            given.map(drop).context("failed to approve a request")
        });
        try_join_all(given).await?;
        let names = names.iter().map(String::as_str).collect();
        let (last, _) = self.bench.ready(began, names).await?;
        Ok(last - began)
    }

    /// Measures requests one after the other, each next to a grant that requires no approval.
    async fn one_by_one(&mut self, count: usize, report: &mut Report) -> Result<()> {
        let (mut plain, mut approved) = (Vec::new(), Vec::new());
        for number in 0..count {
            plain.push(self.bench.ask_one(&format!("plain-{number}")).await?);
            let waiting = self.waiting(&[format!("approved-{number}")]).await?;
            approved.push(self.approve(&waiting).await?);
        }
        compared("last approval to Ready", 1.5, &plain, &approved, report);
        Ok(())
    }

    /// Measures the same for emergencies, as many as one person may have before a review.
    async fn emergencies(&mut self, count: usize, run: u32, report: &mut Report) -> Result<()> {
        let most = usize::try_from(OPEN_REVIEWS)? - 1;
        let person = format!("oncall-{run}");
        self.cluster
            .issue_kubeconfig(&person, &["devs", "oncall"])?;
        let client = self.cluster.client(&person).await?;
        let theirs = Api::<ExecAccessRequest>::namespaced(client, self.bench.scene.name());
        let (mut plain, mut emergencies) = (Vec::new(), Vec::new());
        for number in 0..count.min(most) {
            plain.push(self.bench.ask_one(&format!("beside-{number}")).await?);
            let request = emergency_request(&format!("emergency-{number}"), EMERGENCY);
            let began = Instant::now();
            theirs.create(&PostParams::default(), &request).await?;
            let name = request.name_any();
            let (ready, _) = self.bench.ready(began, [name.as_str()].into()).await?;
            emergencies.push(ready - began);
        }
        compared("emergency to Ready", 1.5, &plain, &emergencies, report);
        Ok(())
    }

    /// Measures many requests that are approved at once.
    async fn at_once(&mut self, count: usize, report: &mut Report) -> Result<()> {
        let names: Vec<String> = (0..count)
            .map(|number| format!("at-once-{number}"))
            .collect();
        let waiting = self.waiting(&names).await?;
        let took = self.approve(&waiting).await?;
        let what = format!("{count} approved at once, first answer to last Ready");
        report.add(&what, "s", Budget::None, took.as_secs_f64());
        Ok(())
    }

    /// Measures waiting requests, which cost nothing.
    async fn pending(&mut self, system: &System, size: Size, report: &mut Report) -> Result<()> {
        let names: Vec<String> = (0..size.pending)
            .map(|number| format!("pending-{number}"))
            .collect();
        for batch in names.chunks(200) {
            self.waiting(batch).await?;
        }
        let (cluster, pid) = (self.cluster, system.operator.process.pid());
        let mark = cluster.audit().mark()?;
        let spent = processor_time(pid)?;
        tokio::time::sleep(size.idle).await;
        let spent = processor_time(pid)?.saturating_sub(spent);
        let calls = cluster.audit().since(mark)?.by_user(&operator());
        // Events are sent at a separate pace: those concern earlier requests.
        let writes = calls.in_namespace(self.bench.scene.name()).writes();
        let writes = writes.filter(|entry| entry.resource != "events");
        let (count, idle) = (size.pending, size.idle.as_secs());
        let what = format!("API writes for {count} that wait, in {idle} s");
        let writes = number(writes.len())?;
        report.add(&what, "", Budget::AtMost(0.0), writes);
        let part = spent.as_secs_f64() / size.idle.as_secs_f64() * 100.0;
        report.add("  CPU of the operator meanwhile", "%", Budget::None, part);
        Ok(())
    }
}

/// Reports a duration as a ratio to a plain grant of the same run.
fn compared(
    what: &str,
    budget: f64,
    plain: &[Duration],
    measured: &[Duration],
    report: &mut Report,
) {
    let plain: Values = plain.iter().copied().collect();
    let measured: Values = measured.iter().copied().collect();
    report.add(
        &format!("  plain grant beside, {what}, p50"),
        "ms",
        Budget::None,
        plain.median(),
    );
    for (name, value) in [("p50", measured.median()), ("p99", measured.percentile(99))] {
        report.add(&format!("{what}, {name}"), "ms", Budget::None, value);
    }
    let ratio = measured.median() / plain.median();
    report.add(
        &format!("{what} over a plain grant, p50"),
        "×",
        Budget::AtMost(budget),
        ratio,
    );
}
