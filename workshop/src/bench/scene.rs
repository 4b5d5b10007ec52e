//! The scene in which grants are measured: a namespace with a Deployment and a template, and alice, the
//! requester.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::future::try_join_all;
use jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use oz_api::{ExecAccessRequest, PodAccessRequest};
use oz_e2e::{AccessRequest, GrantedRequest, Requests, Scene, TEMPLATE, conditions_line};
use oz_testkit::{Cluster, ClusterOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::changes::{Change, Watching};

/// The timeout of each operation, after which the bench fails.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(120);
/// The number of alice's connections when she creates many requests at once.
const CONNECTIONS: usize = 8;
/// The maximum number of concurrent requests while many are created.
const BATCH: usize = 200;
/// The number of objects of other kinds that are created at once.
const AT_ONCE: usize = 100;

/// Starts a new cluster, which ends with the first value, and returns also a reference to it: the scene
/// requires a static one, which costs a few bytes.
pub(crate) async fn cluster() -> Result<(Cluster, &'static Cluster)> {
    let owner = Cluster::start(ClusterOptions::default()).await?;
    let handle = Cluster::attach(owner.state_dir())?;
    Ok((owner, Box::leak(Box::new(handle))))
}

/// Returns connections of the administrator, for the creation of many objects.
pub(crate) async fn administrators(cluster: &Cluster) -> Result<Vec<Client>> {
    connections(cluster, "admin").await
}

/// Returns connections of a user, as many as alice has.
pub(crate) async fn connections(cluster: &Cluster, user: &str) -> Result<Vec<Client>> {
    try_join_all((0..CONNECTIONS).map(|_| cluster.client(user))).await
}

/// Creates objects over these connections, a batch at a time.
pub(crate) async fn create_all<K>(
    clients: &[Client],
    all: &[K],
    api: impl Fn(Client) -> Api<K>,
) -> Result<()>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    for batch in all.chunks(AT_ONCE) {
        let each = batch.iter().zip(clients.iter().cycle());
        let creations = each.map(async |(object, client)| {
            let created = api(client.clone())
                .create(&PostParams::default(), object)
                .await;
            created.map(drop).context("failed to create an object")
        });
        try_join_all(creations).await?;
    }
    Ok(())
}

/// A scene, and alice's view of it.
pub(crate) struct BenchScene<K = ExecAccessRequest> {
    pub(crate) scene: Scene,
    alice: Vec<Requests<K>>,
    watch: Watching<K>,
}

impl BenchScene {
    pub(crate) async fn set(cluster: &'static Cluster, name: &str) -> Result<Self> {
        Self::from_scene(Scene::set(cluster, name).await?).await
    }
}

impl BenchScene<PodAccessRequest> {
    /// Does the same as [`BenchScene::set`], for pods: they have a template of the same name.
    pub(crate) async fn set_pods(cluster: &'static Cluster, name: &str) -> Result<Self> {
        let scene = Scene::set(cluster, name).await?;
        scene.pod_template(TEMPLATE, &serde_json::json!({})).await?;
        Self::from_scene(scene).await
    }
}

impl<K: AccessRequest> BenchScene<K> {
    async fn from_scene(scene: Scene) -> Result<Self> {
        let alice = try_join_all((0..CONNECTIONS).map(async |_| {
            let client = scene.cluster.client("alice").await?;
            anyhow::Ok(Requests::new(client, scene.name()))
        }))
        .await?;
        let first = alice.first().context("nobody asks")?;
        let watch = Watching::start(first.api().clone()).await?;
        let mut bench = Self {
            scene,
            alice,
            watch,
        };
        // Every connection is open before the measurements.
        let names = (0..CONNECTIONS).map(|number| format!("warm-up-{number}"));
        bench
            .ask(names.map(|name| (name, "1h".to_owned())).collect())
            .await?;
        Ok(bench)
    }

    /// Creates one request; returns the time until it was seen to be ready.
    pub(crate) async fn ask_one(&mut self, name: &str) -> Result<Duration> {
        self.ask_one_by(TEMPLATE, name).await
    }

    /// Does the same as [`BenchScene::ask_one`], by another template.
    pub(crate) async fn ask_one_by(&mut self, template: &str, name: &str) -> Result<Duration> {
        let began = Instant::now();
        let alice = self.alice.first().context("nobody asks")?;
        alice.create(&K::by(name, template, "1h")).await?;
        let seen = self
            .watch
            .until(name, CHANGE_TIMEOUT, |seen| {
                seen.object.name_any() == name && settled(seen)
            })
            .await?;
        granted(&seen)?;
        Ok(seen.at - began)
    }

    /// Creates a request, and does not wait for its result.
    pub(crate) async fn ask_only(&self, template: &str, name: &str) -> Result<()> {
        let alice = self.alice.first().context("nobody asks")?;
        alice.create(&K::by(name, template, "1h")).await?;
        Ok(())
    }

    /// Does the same as [`BenchScene::ask_only`], many at once.
    pub(crate) async fn ask_all(&self, template: &str, names: &[String]) -> Result<()> {
        let each = names.iter().zip(self.alice.iter().cycle());
        let creations = each.map(async |(name, alice)| {
            let created = alice.create(&K::by(name, template, "1h")).await;
            created.map(drop).context("failed to create a request")
        });
        try_join_all(creations).await.map(drop)
    }

    /// Waits until the status of requests with these names shows the required approvals.
    pub(crate) async fn waiting(&mut self, mut missing: BTreeSet<&str>) -> Result<Vec<K>> {
        let mut waiting = Vec::new();
        while !missing.is_empty() {
            let seen = self.watch.next(CHANGE_TIMEOUT).await?;
            let status = seen.object.status();
            let is_asked = status.is_some_and(|status| status.approval.is_some());
            if is_asked && missing.remove(seen.object.name_any().as_str()) {
                waiting.push(seen.object);
            }
        }
        Ok(waiting)
    }

    /// Creates requests at once, each with its name and duration. Returns the time until the last was seen to
    /// be ready, and the grants.
    pub(crate) async fn ask(
        &mut self,
        requests: Vec<(String, String)>,
    ) -> Result<(Duration, Vec<GrantedRequest<K>>)> {
        let began = Instant::now();
        let creations = requests
            .iter()
            .enumerate()
            .map(async |(number, (name, duration))| {
                let request = K::by(name, TEMPLATE, duration);
                let alice = self
                    .alice
                    .get(number % CONNECTIONS)
                    .context("nobody asks")?;
                alice
                    .create(&request)
                    .await
                    .context("failed to create a request")
            });
        try_join_all(creations).await?;
        let names = requests.iter().map(|(name, _)| name.as_str()).collect();
        let (last, asked) = self.ready(began, names).await?;
        Ok((last - began, asked))
    }

    /// Creates requests that all end at the instant `until`, a whole second, as far as the second in which
    /// each is created is predictable. Returns the grants.
    pub(crate) async fn ask_until(
        &mut self,
        names: Vec<String>,
        until: Timestamp,
    ) -> Result<Vec<GrantedRequest<K>>> {
        let began = Instant::now();
        // One at a time for each connection: a request that is created in its turn is not created late.
        let connections = self.alice.iter().enumerate();
        let creations = connections.map(async |(number, alice)| {
            for name in names.iter().skip(number).step_by(CONNECTIONS) {
                let left = until.as_second() - Timestamp::now().as_second();
                let request = K::by(name, TEMPLATE, &format!("{left}s"));
                let created = alice.create(&request).await;
                created.context("failed to create a request")?;
            }
            anyhow::Ok(())
        });
        try_join_all(creations).await?;
        let names = names.iter().map(String::as_str).collect();
        Ok(self.ready(began, names).await?.1)
    }

    /// Waits until requests with these names were seen to be ready. Returns the time of the last.
    pub(crate) async fn ready(
        &mut self,
        began: Instant,
        mut missing: BTreeSet<&str>,
    ) -> Result<(Instant, Vec<GrantedRequest<K>>)> {
        let mut asked = Vec::new();
        let mut last = began;
        while !missing.is_empty() {
            let seen = self.watch.next(CHANGE_TIMEOUT).await?;
            if settled(&seen) && missing.remove(seen.object.name_any().as_str()) {
                granted(&seen)?;
                last = last.max(seen.at);
                asked.push(GrantedRequest {
                    request: seen.object,
                });
            }
        }
        Ok((last, asked))
    }

    /// Creates many requests for an hour each, as many at once as the API server can process.
    pub(crate) async fn ask_many(&mut self, prefix: &str, count: usize) -> Result<()> {
        let names: Vec<_> = (0..count)
            .map(|number| (format!("{prefix}-{number}"), "1h".to_owned()))
            .collect();
        for batch in names.chunks(BATCH) {
            self.ask(batch.to_vec()).await?;
        }
        Ok(())
    }

    /// Creates requests that cannot be satisfied: their template does not exist.
    pub(crate) async fn ask_in_vain(&self, count: usize) -> Result<()> {
        let alice = self.alice.first().context("nobody asks")?;
        let creations = (0..count).map(async |number| {
            let request = K::by(&format!("hopeless-{number}"), "no-such-template", "1h");
            alice
                .create(&request)
                .await
                .context("failed to create a request")
        });
        try_join_all(creations).await.map(drop)
    }
}

fn settled<K: AccessRequest>(seen: &Change<K>) -> bool {
    let status = seen.object.status();
    status.is_some_and(|status| status.ready || status.phase.is_terminal())
}

fn granted<K: AccessRequest>(seen: &Change<K>) -> Result<()> {
    let status = seen.object.status().cloned().unwrap_or_default();
    if !status.ready {
        let name = seen.object.name_any();
        bail!("{name} is {}: {}", status.phase, conditions_line(&status));
    }
    Ok(())
}
