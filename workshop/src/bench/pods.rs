//! Dedicated pods: the duration and cost of a grant, the effect of a pod that never becomes ready on the
//! others, and the precision of the end of many pods at one instant. Nodes are simulated by kwok, on which a
//! pod is ready as soon as it is scheduled: the bench measures oz and the control plane.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt as _;
use oz_api::PodAccessRequest;
use oz_e2e::{GrantedRequest, Options, System, TEMPLATE};
use oz_testkit::{AuditMark, Cluster, eventually};
use serde_json::json;

use super::Size;
use super::grants::operator;
use super::report::{Budget, Report};
use super::scene::{self, BenchScene, CHANGE_TIMEOUT};
use super::stats::{Values, number};
use crate::changes::{Change, Watching};

/// The templates in addition to the plain one.
const NARROW: &str = "narrow";
const STUCK: &str = "stuck";
/// The time before their common end at which pods are requested: long enough for all to become ready.
const AHEAD: i64 = 25;
/// The number of measurements of 50 requests with and without a stuck one, in turns.
const TURNS: usize = 3;

type Pods = BenchScene<PodAccessRequest>;

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = scene::cluster().await?;
    let leading = Options::default().flag("--leader-elect");
    let _system = System::start_with(cluster, &leading).await?;
    for _ in 0..size.runs {
        let mut bench = BenchScene::set_pods(cluster, "pods").await?;
        one_by_one(cluster, &mut bench, size, report).await?;
        beside_a_stuck_one(&mut bench, size.pods, report).await?;
        at_one_instant(cluster, &mut bench, size.pod_endings, report).await?;
    }
    Ok(())
}

/// Measures requests one after the other, plain ones and ones with a NetworkPolicy.
async fn one_by_one(
    cluster: &Cluster,
    bench: &mut Pods,
    size: Size,
    report: &mut Report,
) -> Result<()> {
    let network = json!({"network": {"egress": "Dns", "ingress": "None"}});
    bench.scene.pod_template(NARROW, &network).await?;
    for (template, title, most) in [(TEMPLATE, "", 5.0), (NARROW, ", with a NetworkPolicy", 6.0)] {
        let mark = cluster.audit().mark()?;
        let mut took = Vec::new();
        for number in 0..size.one_by_one / 2 {
            let name = format!("{template}-{number}");
            took.push(bench.ask_one_by(template, &name).await?);
        }
        let count = took.len();
        let took: Values = took.into_iter().collect();
        let figure = |name: &str| format!("create to Ready{title}, {name}");
        report.add(&figure("p50"), "ms", Budget::None, took.median());
        report.add(&figure("p99"), "ms", Budget::None, took.percentile(99));
        let (granting, ready) = writes(cluster, mark, bench, count).await?;
        let what = format!("API writes for a grant{title}");
        report.add(&what, "", Budget::AtMost(most - 1.0), granting);
        let what = "  and until it is Ready";
        report.add(&format!("{what}{title}"), "", Budget::AtMost(1.0), ready);
    }
    Ok(())
}

/// Counts the operator's writes for this number of grants: for the grant, with its status, and for the
/// readiness of the pod. Each is a status at least.
async fn writes(
    cluster: &Cluster,
    mark: AuditMark,
    bench: &Pods,
    grants: usize,
) -> Result<(f64, f64)> {
    let writes =
        || -> Result<_> {
            let all = cluster.audit().since(mark)?.by_user(&operator());
            let all = all.in_namespace(bench.scene.name()).writes();
            // The template's own status does not belong to a grant.
            Ok(all.filter(|entry| {
                !["events", "podaccesstemplates"].contains(&entry.resource.as_str())
            }))
        };
    eventually(
        "the audit log to have every status",
        CHANGE_TIMEOUT,
        async || {
            let statuses = writes()?
                .filter(|entry| entry.subresource == "status")
                .len();
            Ok((statuses >= grants).then_some(()))
        },
    )
    .await?;
    let all = writes()?;
    let mut statuses: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in all.iter().filter(|entry| entry.subresource == "status") {
        *statuses.entry(&entry.name).or_default() += 1;
    }
    let second = statuses.values().map(|count| count.saturating_sub(1)).sum();
    let each = |count: usize| -> Result<f64> { Ok(number(count)? / number(grants)?) };
    Ok((each(all.len() - second)?, each(second)?))
}

/// Measures many requests at once, without and with a pod that can never become ready. In turns, so that
/// other activity of the machine affects both.
async fn beside_a_stuck_one(bench: &mut Pods, count: usize, report: &mut Report) -> Result<()> {
    let nowhere = json!({"nodeSelector": {"example.test/nowhere": "true"}});
    let nowhere = json!({"controllerTargetMutationConfig": nowhere});
    bench.scene.pod_template(STUCK, &nowhere).await?;
    many(bench, "warm", count).await?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        alone.push(many(bench, &format!("alone-{turn}"), count).await?);
        let stuck = format!("stuck-{turn}");
        bench.ask_only(STUCK, &stuck).await?;
        beside.push(many(bench, &format!("beside-{turn}"), count).await?);
    }
    let (alone, beside): (Values, Values) =
        (alone.into_iter().collect(), beside.into_iter().collect());
    let (alone, beside) = (alone.median(), beside.median());
    let what = format!("{count} pods at once, until the last is Ready");
    report.add_times(
        (&what, alone),
        ("  beside a stuck pod", beside),
        ("  how many times as long", 1.2),
    );
    Ok(())
}

async fn many(bench: &mut Pods, prefix: &str, count: usize) -> Result<Duration> {
    let names = (0..count).map(|number| (format!("{prefix}-{number}"), "1h".to_owned()));
    Ok(bench.ask(names.collect()).await?.0)
}

/// Measures the delays after the instant until the RoleBindings were gone, and until the pods were
/// terminating.
async fn at_one_instant(
    cluster: &Cluster,
    bench: &mut Pods,
    count: usize,
    report: &mut Report,
) -> Result<()> {
    let mut bindings = Watching::start(bench.scene.api::<RoleBinding>()).await?;
    let mut pods = Watching::start(bench.scene.api::<Pod>()).await?;
    let mark = cluster.audit().mark()?;
    let until = Timestamp::from_second(Timestamp::now().as_second() + AHEAD)?;
    let names = (0..count).map(|number| format!("together-{number}"));
    let asked = bench.ask_until(names.collect(), until).await?;
    // The API server's clock may have been in another second when one was created.
    let together = |one: &GrantedRequest<_>| one.status().expires_at == Some(until);
    let names: Vec<String> = asked
        .iter()
        .filter(|one| together(one))
        .map(GrantedRequest::pod)
        .collect();
    ensure!(
        Timestamp::now() < until,
        "they were not ready before their end"
    );
    let number = number(names.len())?;
    report.add("pods that end at one instant", "", Budget::None, number);

    let gone = lags(&mut bindings, &names, until, |seen| seen.deleted).await?;
    let told = lags(&mut pods, &names, until, |seen| {
        seen.deleted || seen.object.metadata.deletion_timestamp.is_some()
    })
    .await?;
    let second = Budget::AtMost(1000.0);
    for (what, lags) in [
        ("  RoleBinding gone after the end", &gone),
        ("  pod deleted after the end", &told),
    ] {
        report.add(&format!("{what}, p50"), "ms", Budget::None, lags.median());
        report.add(&format!("{what}, p99"), "ms", second, lags.percentile(99));
        report.add(&format!("{what}, max"), "ms", second, lags.max());
    }
    let deletions = || -> Result<_> {
        let all = cluster.audit().since(mark)?.by_user(&operator());
        Ok(all
            .in_namespace(bench.scene.name())
            .with_verb("delete")
            .on("", "pods"))
    };
    let lags: Values = deletions()?
        .iter()
        .filter(|entry| names.contains(&entry.name))
        .map(|entry| entry.stage_timestamp.duration_since(until).as_secs_f64() * 1000.0)
        .collect();
    let what = "  by the API server's audit log, p99";
    report.add(what, "ms", second, lags.percentile(99));
    Ok(())
}

/// Returns the delays after `until` at which each of these was first seen in the wanted state, in
/// milliseconds.
async fn lags<K>(
    watch: &mut Watching<K>,
    names: &[String],
    until: Timestamp,
    wanted: impl Fn(&Change<K>) -> bool,
) -> Result<Values>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut seen_at: BTreeMap<&str, Option<Timestamp>> =
        names.iter().map(|name| (name.as_str(), None)).collect();
    let mut left = names.len();
    while left > 0 {
        let seen = watch.next(CHANGE_TIMEOUT).await?;
        let wanted = wanted(&seen);
        if let Some(at @ None) = seen_at.get_mut(seen.object.name_any().as_str())
            && wanted
        {
            *at = Some(seen.time);
            left -= 1;
        }
    }
    let lag = |at: Option<Timestamp>| -> Result<f64> {
        let at = at.context("it was never seen")?;
        Ok(at.duration_since(until).as_secs_f64() * 1000.0)
    };
    seen_at.into_values().map(lag).collect()
}
