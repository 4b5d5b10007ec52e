//! Repeated kills of brokers and operator while proxies fetch a credential: no value leaves a broker without its record,
//! and the trail is complete.
//!
//! Fifty lends and five kills; 500 lends and 50 kills in the long form (`OZ_LONG=1`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::ListParams;
use oz_api::harness::wire::PROXY_AUDIENCE;
use oz_api::harness::{BrokerPolicy, HarnessRun, HarnessTemplate};
use oz_api::names;
use oz_e2e::lending::{HOST, NAME, SECRET, grants, permit_reads, set_secret};
use oz_e2e::{
    Auditor, Broker, BrokerClient, NAMESPACE, Operator, Options, Scene, Webhook, apply, apply_as,
    by_hand_overlay, install_harness, node_by_hand,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually, scaled};
use parking_lot::Mutex;
use serde_json::json;

use crate::alone;
use crate::support::clean;

/// The number of runs with proxies that fetch the credential at once.
const RUNS: usize = 5;
const VALUE: &str = "the-real-key";
/// The pause of a proxy without an answer, which keeps it from the limits of the brokers.
const PAUSE: Duration = Duration::from_millis(100);

/// Creates the Service of the brokers, the template, the Secret that the broker may read, and the policy that grants it.
async fn set(scene: &Scene) -> Result<()> {
    node_by_hand(&scene.admin).await?;
    let service = json!({"metadata": {"name": names::BROKER}, "spec": {"ports": [{"name": "broker", "port": 8443}]}});
    apply_as(
        &Api::<Service>::namespaced(scene.admin.clone(), NAMESPACE),
        service,
    )
    .await?;
    let template = json!({"metadata": {"name": "lends"}, "spec": {
        "harness": "echo", "image": "echo:1", "command": ["echo"], "podTemplateOverlay": by_hand_overlay(),
        "requires": {"credentials": [{"name": NAME}], "egress": [{"host": HOST, "ports": [443]}]},
    }});
    apply_as(&scene.api::<HarnessTemplate>(), template).await?;
    set_secret(scene, SECRET, VALUE).await?;
    permit_reads(scene, &[SECRET]).await?;
    let policy = json!({"metadata": {"name": "lends"}, "spec": {
        "appliesToTemplates": ["lends"], "grants": grants(),
    }});
    apply_as(&scene.api::<BrokerPolicy>(), policy).await?;
    Ok(())
}

/// Submits a run once the webhook knows its policy. Returns the UID of its pod and the token of the pod's proxy.
async fn proxied(scene: &Scene, name: &str) -> Result<(String, String)> {
    let run = json!({"metadata": {"name": name}, "spec": {"templateRef": {"name": "lends"}, "prompt": "hi"}});
    let runs = scene.api::<HarnessRun>();
    eventually("the policy to be known", CONDITION_TIMEOUT, async || {
        Ok(apply_as(&runs, run.clone()).await.ok().map(drop))
    })
    .await?;
    let pods = scene.api::<Pod>();
    let of_job = ListParams::default().labels(&format!("job-name={name}"));
    let title = format!("the pod of {name}");
    let pod = eventually(&title, CONDITION_TIMEOUT, async || {
        Ok(pods.list(&of_job).await?.items.into_iter().next())
    })
    .await?;
    let token = scene.token(PROXY_AUDIENCE, Some(&pod)).await?;
    Ok((pod.metadata.uid.context("no UID")?, token))
}

/// The processes, of which some are killed.
struct Parts<'a> {
    cluster: &'a Cluster,
    scene: &'a Scene,
    operator: Operator,
    brokers: [Broker; 2],
    /// The ways to the brokers, for the proxies.
    clients: &'a Mutex<[BrokerClient; 2]>,
}

fn broker_options(number: usize) -> Options {
    Options::replica(&format!("oz-broker-{number}"))
}

impl Parts<'_> {
    /// Kills one of the processes without warning and starts it again.
    async fn kill(&mut self, number: usize, auditor: &mut Auditor) -> Result<()> {
        if number == 2 {
            self.operator.process.kill9();
            auditor.log(&self.operator.process);
            self.operator = Operator::start(self.cluster, &Options::default().harness()).await?;
            return Ok(());
        }
        self.brokers[number].process.kill9();
        auditor.log(&self.brokers[number].process);
        self.brokers[number] = Broker::start(self.cluster, &broker_options(number)).await?;
        let client = self.brokers[number].connect(&self.scene.admin).await?;
        self.clients.lock()[number] = client;
        Ok(())
    }
}

/// The number of lends and kills. Each kill has its share of the lends, and occurs in the middle of it.
struct Pace {
    lends: usize,
    kills: usize,
    lent: AtomicUsize,
    killed: AtomicUsize,
}

impl Pace {
    /// Returns the number of lends before the kill of this number, from one.
    fn middle(&self, kill: usize) -> usize {
        (2 * kill - 1) * self.lends / (2 * self.kills)
    }

    fn is_over(&self) -> bool {
        self.lent.load(Ordering::Relaxed) >= self.lends
    }

    /// Checks whether the share of the next kill is used up.
    fn waits(&self) -> bool {
        let shares = self.killed.load(Ordering::Relaxed) + 1;
        self.lent.load(Ordering::Relaxed) >= shares * self.lends / self.kills
    }
}

/// Fetches the credential from one broker and the other, until all proxies together have fetched it often enough.
/// Returns how often this one did.
async fn fetch(token: &str, clients: &Mutex<[BrokerClient; 2]>, pace: &Pace) -> Result<usize> {
    let mut own = 0;
    for number in 0.. {
        if pace.is_over() {
            break;
        }
        if pace.waits() {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let client = clients.lock()[number % 2].clone();
        // A broker that was killed does not answer; one that has just started may refuse.
        match client.credential(token, NAME, HOST).await {
            Ok(answer) if answer.status == 200 => {
                ensure!(answer.body["value"] == VALUE, "{answer:?}");
                own += 1;
                pace.lent.fetch_add(1, Ordering::Relaxed);
            }
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
    Ok(own)
}

/// Returns the IDs of the records of lends, by the UIDs of the pods.
async fn recorded(scene: &Scene, auditor: &Auditor) -> Result<BTreeMap<String, BTreeSet<String>>> {
    // A record that is in a log and an object counts once.
    let mut recorded: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for record in auditor.records().await? {
        let is_lend =
            record["action"] == "CredentialLent" && record["request"]["namespace"] == scene.name();
        if let (true, Some(pod), Some(id)) = (
            is_lend,
            record["pod"]["uid"].as_str(),
            record["id"].as_str(),
        ) {
            ensure!(!record.to_string().contains(VALUE), "{record}");
            recorded
                .entry(pod.to_owned())
                .or_default()
                .insert(id.to_owned());
        }
    }
    Ok(recorded)
}

#[tokio::test]
async fn killed_again_and_again_brokers_lend_nothing_without_its_record() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let (lends, kills) = scaled((50, 5), (500, 50));
    install_harness(cluster)?;
    let options = Options::default().harness();
    let webhook = Webhook::start(cluster, &options).await?;
    apply(cluster, "deploy/policies/harness")?;
    let scene = Scene::empty(cluster, "lends").await?;
    let operator = Operator::start(cluster, &options).await?;
    let brokers = [
        Broker::start(cluster, &broker_options(0)).await?,
        Broker::start(cluster, &broker_options(1)).await?,
    ];
    let mut auditor = Auditor::pinning(&scene.admin).await?;
    auditor.log(&webhook.process);
    set(&scene).await?;
    let mut proxies = Vec::new();
    for number in 0..RUNS {
        proxies.push(proxied(&scene, &format!("run-{number}")).await?);
    }

    let clients = Mutex::new([
        brokers[0].connect(&scene.admin).await?,
        brokers[1].connect(&scene.admin).await?,
    ]);
    let pace = Pace {
        lends,
        kills,
        lent: AtomicUsize::new(0),
        killed: AtomicUsize::new(0),
    };
    let fetched = proxies
        .iter()
        .map(|(_, token)| fetch(token, &clients, &pace));
    let mut parts = Parts {
        cluster,
        scene: &scene,
        operator,
        brokers,
        clients: &clients,
    };
    let killed = async {
        for kill in 0..kills {
            let middle = pace.middle(kill + 1);
            eventually("further lends", CONDITION_TIMEOUT, async || {
                Ok((pace.lent.load(Ordering::Relaxed) >= middle).then_some(()))
            })
            .await?;
            parts.kill(kill % 3, &mut auditor).await?;
            pace.killed.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(())
    };
    let (fetched, ()) = tokio::try_join!(futures::future::try_join_all(fetched), killed)?;

    auditor.log(&parts.operator.process);
    for broker in &parts.brokers {
        auditor.log(&broker.process);
    }
    let recorded = recorded(&scene, &auditor).await?;
    for ((pod, _), fetched) in proxies.iter().zip(&fetched) {
        let recorded = recorded.get(pod).map_or(0, BTreeSet::len);
        assert!(
            recorded >= *fetched,
            "{pod}: {fetched} values, {recorded} records"
        );
    }
    // The operator vouches for the keys of the brokers soon.
    eventually("the trail to be whole", CONDITION_TIMEOUT, async || {
        let report = auditor.report().await?;
        ensure!(report.is_whole(), "{:#?}", report.problems);
        Ok(Some(()))
    })
    .await?;
    eprintln!(
        "{} lends, {kills} kills, {} records",
        fetched.iter().sum::<usize>(),
        recorded.values().map(BTreeSet::len).sum::<usize>()
    );
    Ok(())
}
