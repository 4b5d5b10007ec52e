//! Watches that deliver no more changes, while the API server answers all other requests: the data of a process is old,
//! and gives no user access.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use oz_api::{Phase, TargetKind};
use oz_e2e::{
    ApiProxy, GrantedRequest, Kept, Options, Scene, System, exec_request, exec_template, refusal,
};
use oz_testkit::{Cluster, eventually, fixtures};

use crate::alone;

/// The timeout of the tests: longer than it takes until a silent watch is given up.
const TIMEOUT: Duration = Duration::from_secs(180);
const PROGRAMS: [&str; 2] = ["oz-webhook", "oz-operator"];

/// A setup of oz behind proxies. A grant gives alice access to `db-0` of an enforcing namespace, where she also has a
/// standing right: only the hook can deny her access.
struct Stage {
    webhook: ApiProxy,
    operator: ApiProxy,
    system: System,
    scene: Scene,
    asked: GrantedRequest,
}

impl Stage {
    async fn set(cluster: &'static Cluster, prefix: &str) -> Result<Self> {
        let [webhook, operator] = PROGRAMS.map(|program| ApiProxy::start(cluster, program));
        let (webhook, operator) = (webhook.await?, operator.await?);
        let through = |proxy: &ApiProxy| Options::default().through(proxy);
        let system = System::start_as(cluster, &through(&webhook), &through(&operator)).await?;
        let scene = Scene::set(cluster, prefix).await?;
        fixtures::stateful_set(&scene.admin, scene.name(), "db", 1).await?;
        let template = exec_template("db", TargetKind::StatefulSet, "db");
        scene.template(&template).await?;
        let alice = scene.requests("alice").await?;
        let asked = alice.granted(&exec_request("mine", "db", "1h")).await?;
        for user in ["alice", "bob"] {
            scene
                .standing(user, "pods/exec", &["get", "create"])
                .await?;
        }
        scene.enforce().await?;
        let stage = Self {
            webhook,
            operator,
            system,
            scene,
            asked,
        };
        eventually("the namespace to be enforcing", TIMEOUT, async || {
            stage.refused("bob")
        })
        .await?;
        eventually("alice to get in", TIMEOUT, async || {
            match stage.refused("alice")? {
                None => Ok(Some(())),
                Some(why) => bail!("{why}"),
            }
        })
        .await?;
        Ok(stage)
    }

    /// Returns the denial for a user who connects to the pod; `None` if the user gets access.
    fn refused(&self, user: &str) -> Result<Option<String>> {
        let pod = self.asked.pod();
        Ok(refusal(
            &self.scene.exec(user, &[&pod, "--", "true"]).output()?,
        ))
    }

    fn alice_is_refused(&self, why: &str) -> Result<()> {
        let said = self.refused("alice")?.context("alice is in the pod")?;
        ensure!(said.contains(why), "{said}");
        Ok(())
    }
}

/// Waits until a process that is ready reports that one of its watches is silent, or that none is.
async fn says(
    title: &str,
    degraded: bool,
    readiness: impl AsyncFn() -> Result<(u16, String)>,
) -> Result<()> {
    let wanted = if degraded { "degraded" } else { "whole" };
    eventually(&format!("it to say it is {wanted}"), TIMEOUT, async || {
        let (code, text) = readiness().await?;
        ensure!(code == 200, "{code}: {text}");
        let told = text.contains("degraded: ") && text.contains(&format!("{title} fails: "));
        ensure!(told == degraded, "{text}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn successor_is_inaccessible_while_pod_watches_are_silent() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let stage = Stage::set(cluster, "silent").await?;
    let pods: Api<Pod> = stage.scene.api();
    let before = pods.get(&stage.asked.pod()).await?.uid();
    for proxy in [&stage.webhook, &stage.operator] {
        proxy.keep_back("pods", Kept::Silent);
    }
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete(&stage.asked.pod(), &at_once).await?;
    eventually("the successor", TIMEOUT, async || {
        let now = pods.get_opt(&stage.asked.pod()).await?;
        Ok(now.filter(|now| now.uid() != before && fixtures::is_ready(now)))
    })
    .await?;
    stage.alice_is_refused("oz: ")?;
    let operator = &stage.system.operator;
    says("Pod", true, async || operator.readiness().await).await?;
    // The operator does not know of the new pod.
    let (_, binding) = stage.scene.grant(&stage.asked.object_name()).await?;
    ensure!(binding.is_some(), "the operator knows: no attempt at all");
    stage.alice_is_refused("oz: ")?;

    stage.operator.release();
    let alice = stage.scene.requests("alice").await?;
    alice.phase("mine", Phase::Revoked).await?;
    says("Pod", false, async || operator.readiness().await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_grant_admits_no_user_while_webhook_cannot_watch() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let stage = Stage::set(cluster, "cut").await?;
    for resource in ["roles", "execaccessrequests"] {
        stage.webhook.keep_back(resource, Kept::Cut);
    }
    let webhook = &stage.system.webhook;
    says("ExecAccessRequest", true, async || {
        webhook.readiness().await
    })
    .await?;
    let alice = stage.scene.requests("alice").await?;
    alice.api().delete("mine", &DeleteParams::default()).await?;
    eventually("the grant to go", TIMEOUT, async || {
        let (role, _) = stage.scene.grant(&stage.asked.object_name()).await?;
        Ok(role.is_none().then_some(()))
    })
    .await?;
    let gone = format!("its Role in {} does not exist", stage.scene.name());
    stage.alice_is_refused(&gone)?;

    stage.webhook.release();
    says("ExecAccessRequest", false, async || {
        webhook.readiness().await
    })
    .await?;
    stage.alice_is_refused("oz: ")
}
