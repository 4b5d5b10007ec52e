//! Kills of the operator while composites run.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::conditions;
use oz_api::rego::RegoController;
use oz_e2e::{Operator, Options, System, install_composites, install_example};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, TestNamespace, eventually};
use serde_json::{Value, json};

use crate::alone;

/// A cluster with Sprints, each with a quota until its expiry, and an operator that may be killed.
struct World {
    cluster: &'static Cluster,
    namespace: TestNamespace,
    composites: Api<RegoController>,
    sprints: Api<DynamicObject>,
    quotas: Api<ResourceQuota>,
}

fn options() -> Options {
    Options::default().set("composites.enabled", true)
}

impl World {
    async fn set(cluster: &'static Cluster, name: &str) -> Result<Self> {
        oz_e2e::install(cluster).await?;
        install_composites(cluster)?;
        oz_e2e::established(cluster)?;
        install_example(cluster, "sprint_quota").await?;
        let namespace = TestNamespace::create(cluster, name).await?;
        let admin = cluster.client("admin").await?;
        let sprint = ApiResource {
            group: "example.org".to_owned(),
            version: "v1".to_owned(),
            api_version: "example.org/v1".to_owned(),
            kind: "Sprint".to_owned(),
            plural: "sprints".to_owned(),
        };
        Ok(Self {
            cluster,
            composites: Api::all(admin.clone()),
            sprints: Api::namespaced_with(admin.clone(), namespace.name(), &sprint),
            quotas: Api::namespaced(admin, namespace.name()),
            namespace,
        })
    }

    async fn sprint(&self, name: &str, until: Timestamp) -> Result<()> {
        let from = Timestamp::now().to_string();
        let sprint = serde_json::from_value(json!({
            "apiVersion": "example.org/v1", "kind": "Sprint", "metadata": {"name": name},
            "spec": {"pods": 5, "from": from, "until": until.to_string()},
        }))?;
        self.sprints.create(&PostParams::default(), &sprint).await?;
        self.quota(name, "5").await.map(drop)
    }

    /// Waits for a quota with this limit, in which the cluster's quota controller has written how much is used.
    async fn quota(&self, name: &str, pods: &str) -> Result<ResourceQuota> {
        let what = format!("{name} to have a quota of {pods}");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let quota = self.quotas.get_opt(&format!("sprint-{name}")).await?;
            Ok(quota.filter(|quota| {
                let spec = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
                let status = quota.status.as_ref();
                let counted = status.and_then(|status| status.hard.as_ref());
                let is_limit = |hard: &BTreeMap<String, Quantity>| {
                    hard.get("pods").is_some_and(|hard| hard.0 == pods)
                };
                spec.is_some_and(is_limit) && counted.is_some_and(is_limit)
            }))
        })
        .await
    }

    /// Changes the composite.
    async fn patch(&self, patch: Value) -> Result<()> {
        let parameters = PatchParams::default();
        let patch = Patch::Merge(patch);
        self.composites
            .patch("sprint-quota", &parameters, &patch)
            .await?;
        Ok(())
    }

    /// Waits until the composite runs.
    async fn runs(&self) -> Result<()> {
        eventually("the composite to run", CONDITION_TIMEOUT, async || {
            let found = self.composites.get("sprint-quota").await?;
            let seen = found
                .status
                .as_ref()
                .and_then(|status| status.observed_generation);
            let conditions = found.status.map(|status| status.conditions);
            let conditions = conditions.unwrap_or_default();
            let running = conditions::find(&conditions, "Running");
            let runs = running.is_some_and(|running| running.status == "True");
            ensure!(runs && seen == found.metadata.generation, "{conditions:?}");
            Ok(Some(()))
        })
        .await
    }
}

#[tokio::test]
async fn child_that_expired_during_downtime_is_deleted_despite_broken_policy() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let world = World::set(cluster, "sprints").await?;
    let mut system = System::start_with(cluster, &options()).await?;
    world.runs().await?;
    let until = Timestamp::now() + SignedDuration::from_secs(4);
    world.sprint("short", until).await?;
    world
        .sprint("long", until + SignedDuration::from_hours(1))
        .await?;
    // Both have converged: their status is written.
    eventually("the status of both", CONDITION_TIMEOUT, async || {
        let list = world.sprints.list(&Default::default()).await?;
        let settled = list.iter().filter(|one| !one.data["status"].is_null());
        Ok((settled.count() == 2).then_some(()))
    })
    .await?;
    let before = world.quota("long", "5").await?;
    let sprint = world.sprints.get("long").await?;
    system.operator.process.kill9();
    world
        .patch(json!({"spec": {"policy": {"inline": "package sprint\n\nchildren contains {"}}}))
        .await?;
    eventually("the end to pass", CONDITION_TIMEOUT, async || {
        Ok((Timestamp::now() > until).then_some(()))
    })
    .await?;
    let there = world.quotas.get_opt("sprint-short").await?;
    ensure!(there.is_some(), "nobody ended it meanwhile");

    system.operator = Operator::start(cluster, &options()).await?;
    eventually("what is over to go", CONDITION_TIMEOUT, async || {
        let quota = world.quotas.get_opt("sprint-short").await?;
        Ok(quota.is_none().then_some(()))
    })
    .await?;
    let after = world.quota("long", "5").await?;
    assert_eq!(before.resource_version(), after.resource_version());
    let again = world.sprints.get("long").await?;
    assert_eq!(sprint.resource_version(), again.resource_version());
    install_example(world.cluster, "sprint_quota").await?;
    world.runs().await
}

#[tokio::test]
async fn killed_at_any_moment_of_an_exchange_the_next_one_completes_it() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let world = World::set(cluster, "exchanged").await?;
    let mut system = System::start_with(cluster, &options()).await?;
    let recreate = json!([{
        "apiVersion": "v1", "resource": "resourcequotas", "update": "Recreate",
    }]);
    world.patch(json!({"spec": {"children": recreate}})).await?;
    world.runs().await?;
    let until = Timestamp::now() + SignedDuration::from_hours(1);
    world.sprint("one", until).await?;
    // The moment of the kill moves through the few milliseconds that an exchange takes.
    for (number, milliseconds) in (0..=30).step_by(5).enumerate() {
        let before = world.quotas.get("sprint-one").await?;
        let pods = 10 + number;
        let patch = Patch::Merge(json!({"spec": {"pods": pods}}));
        let parameters = PatchParams::default();
        world.sprints.patch("one", &parameters, &patch).await?;
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        system.operator.process.kill9();
        system.operator = Operator::start(cluster, &options()).await?;
        let after = world.quota("one", &pods.to_string()).await?;
        ensure!(before.uid() != after.uid(), "it is another one");
    }
    let quotas = world.quotas.list(&Default::default()).await?;
    assert_eq!(quotas.items.len(), 1, "in {}", world.namespace.name());
    install_example(world.cluster, "sprint_quota").await
}
