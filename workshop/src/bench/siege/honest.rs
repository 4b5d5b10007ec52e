//! The honest users: a few namespaces with one user in each who requests access repeatedly, for 6 to 17
//! seconds each time, and an administrator who writes ConfigMaps, of which oz receives no review.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use oz_e2e::{GrantTimes, Outcome, Scene, Traffic, TrafficPlan};
use oz_testkit::Cluster;
use tokio::task::JoinSet;

use super::super::report::{Budget, Report};
use super::super::stats::Values;
use xtask::screen::Screen;

/// The users, each in a namespace of their own.
const PEOPLE: [&str; 4] = ["anna", "boris", "clara", "david"];
/// The interval between two requests, of all of them together: 200 in five minutes.
const PACE: Duration = Duration::from_millis(1500);
/// The shortest grant, in seconds.
const SHORTEST: usize = 6;
/// The budget for the delay of an end, in milliseconds.
const END: f64 = 1000.0;
const CONTROL: &str = "control-";

/// The users and their scenes, before they request access.
pub(super) struct Honest(Vec<(&'static str, Scene)>);

/// The waiting times, in milliseconds.
pub(super) struct Waits {
    /// Times from the request until its status is Ready.
    pub(super) ready: Values,
    /// Times until the response to the creation of a ConfigMap.
    pub(super) maps: Values,
    granted: usize,
    bound: Values,
    answering: Values,
    late: Values,
    turned_away: usize,
    in_vain: Vec<String>,
}

impl Honest {
    pub(super) async fn set(cluster: &'static Cluster, prefix: &str) -> Result<Self> {
        let mut places = Vec::new();
        for person in PEOPLE {
            cluster.issue_kubeconfig(person, &["devs"])?;
            places.push((person, Scene::set(cluster, prefix).await?));
        }
        Ok(Self(places))
    }

    /// Lets all users request access for this time; returns their waiting times, once all access has ended.
    pub(super) async fn ask(&self, time: Duration) -> Result<Waits> {
        let (_, first) = self.0.first().context("nobody asks")?;
        let mark = first.cluster.audit().mark()?;
        let mut control = JoinSet::new();
        control.spawn(write_maps(first.api()));
        let people = u32::try_from(self.0.len())?;
        let plan = TrafficPlan {
            pace: PACE * people,
            shortest: SHORTEST,
        };
        let everybody = (0..).zip(&self.0).map(async |(number, (person, scene))| {
            // One after the other, so that one requests at each beat.
            tokio::time::sleep(PACE * number).await;
            let traffic = Traffic::start_as(scene, person, plan).await?;
            tokio::time::sleep(time.saturating_sub(PACE * people)).await;
            traffic.stop(scene).await
        });
        let outcomes = try_join_all(everybody).await?;
        control.shutdown().await;
        let entries = first.cluster.audit().since(mark)?;
        let maps = entries.in_namespace(first.name()).writes();
        let maps = maps.filter(|entry| entry.name.starts_with(CONTROL));
        let maps = maps.iter().map(|entry| entry.took().as_millis_f64());
        Ok(Waits::from_outcomes(&outcomes, maps.collect()))
    }
}

/// Writes a ConfigMap at each beat, and ignores failures.
async fn write_maps(maps: Api<ConfigMap>) {
    let mut pace = tokio::time::interval(PACE);
    for number in 0.. {
        pace.tick().await;
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("{CONTROL}{number}")),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        let _ = maps.create(&PostParams::default(), &map).await;
    }
}

impl Waits {
    fn from_outcomes(outcomes: &[Outcome], maps: Values) -> Self {
        let granted = || outcomes.iter().flat_map(|outcome| &outcome.granted);
        let values = |of: fn(&GrantTimes) -> SignedDuration| -> Values {
            granted().map(|times| of(times).as_millis_f64()).collect()
        };
        let ready = granted().filter_map(GrantTimes::until_ready);
        let vain = |outcome: &Outcome| outcome.refused.len() + outcome.unreachable;
        Self {
            granted: granted().count(),
            ready: ready.map(|wait| wait.as_millis_f64()).collect(),
            maps,
            bound: values(GrantTimes::wait),
            answering: values(|times| times.answering),
            late: values(GrantTimes::late),
            turned_away: outcomes.iter().map(vain).sum(),
            in_vain: outcomes.iter().flat_map(|it| it.in_vain.clone()).collect(),
        }
    }

    /// Reports all of it; `when` begins each line.
    pub(super) fn tell(&self, when: &str, report: &mut Report) -> Result<()> {
        let count = |count: usize| anyhow::Ok(f64::from(u32::try_from(count)?));
        let (granted, turned_away) = (count(self.granted)?, count(self.turned_away)?);
        report.add(&format!("{when}: grants"), "", Budget::None, granted);
        for (what, values, budget) in [
            ("from asking to Ready", &self.ready, Budget::None),
            ("  from asking to access", &self.bound, Budget::None),
            (
                "  the API server over the four writes",
                &self.answering,
                Budget::None,
            ),
            ("ConfigMap create", &self.maps, Budget::None),
            ("end after its time", &self.late, Budget::AtMost(END)),
        ] {
            let mut row = |figure: &str, budget, value| {
                report.add(&format!("{when}: {what}, {figure}"), "ms", budget, value);
            };
            row("p50", Budget::None, values.median());
            row("p99", budget, values.percentile(99));
            row("max", Budget::None, values.max());
        }
        let what = format!("{when}: turned away");
        report.add(&what, "", Budget::AtMost(0.0), turned_away);
        for one in &self.in_vain {
            Screen::stdout().line(&format!("{when}: over before it was granted: {one}"))?;
        }
        let what = format!("{when}: over before they were granted");
        report.add(&what, "", Budget::AtMost(0.0), count(self.in_vain.len())?);
        Ok(())
    }
}
