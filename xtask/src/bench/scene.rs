//! Where grants are measured: a namespace with a Deployment and a template, and alice, who asks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::future::try_join_all;
use kube::ResourceExt as _;
use oz_core::api::ExecAccessRequest;
use oz_e2e::{Asked, ExecRequests, Scene, TEMPLATE, conditions_line, exec_request};
use oz_testkit::{Cluster, ClusterOptions};

use crate::seen::{Seen, Watching};

/// How long anything may take before the bench is called broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Connections that alice asks over when she asks for much at once.
const CONNECTIONS: usize = 8;
/// Requests that are under way at once while many are made.
const BATCH: usize = 200;

/// A new cluster, which ends with the first value, and a handle on it to hand around: the scene takes
/// one that is there for good, which costs a few bytes.
pub(crate) async fn cluster() -> Result<(Cluster, &'static Cluster)> {
    let owner = Cluster::start(ClusterOptions::default()).await?;
    let handle = Cluster::attach(owner.state_dir())?;
    Ok((owner, Box::leak(Box::new(handle))))
}

/// The place, and alice's view of it.
pub(crate) struct Place {
    pub(crate) scene: Scene,
    alice: Vec<ExecRequests>,
    watch: Watching<ExecAccessRequest>,
}

impl Place {
    pub(crate) async fn set(cluster: &'static Cluster, name: &str) -> Result<Self> {
        let scene = Scene::set(cluster, name).await?;
        let alice = try_join_all((0..CONNECTIONS).map(|_| scene.requests("alice"))).await?;
        let first = alice.first().context("nobody asks")?;
        let watch = Watching::start(first.api().clone()).await?;
        let mut place = Self {
            scene,
            alice,
            watch,
        };
        // Every connection is up before anything is measured.
        let names = (0..CONNECTIONS).map(|number| format!("warm-up-{number}"));
        place
            .ask(names.map(|name| (name, "1h".to_owned())).collect())
            .await?;
        Ok(place)
    }

    /// One request; how long until it was seen to be ready.
    pub(crate) async fn ask_one(&mut self, name: &str) -> Result<Duration> {
        let began = Instant::now();
        let alice = self.alice.first().context("nobody asks")?;
        alice.create(&exec_request(name, TEMPLATE, "1h")).await?;
        let seen = self
            .watch
            .until(name, PATIENCE, |seen| {
                seen.object.name_any() == name && settled(seen)
            })
            .await?;
        granted(&seen)?;
        Ok(seen.at - began)
    }

    /// Requests at once, each with its name and duration. Gives how long it took until the last was
    /// seen to be ready, and what was granted.
    pub(crate) async fn ask(
        &mut self,
        requests: Vec<(String, String)>,
    ) -> Result<(Duration, Vec<Asked>)> {
        let began = Instant::now();
        let creations = requests
            .iter()
            .enumerate()
            .map(async |(number, (name, duration))| {
                let request = exec_request(name, TEMPLATE, duration);
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
        let mut missing: BTreeMap<&str, ()> = requests
            .iter()
            .map(|(name, _)| (name.as_str(), ()))
            .collect();
        let mut asked = Vec::new();
        let mut last = began;
        while !missing.is_empty() {
            let seen = self.watch.next(PATIENCE).await?;
            if settled(&seen) && missing.remove(seen.object.name_any().as_str()).is_some() {
                granted(&seen)?;
                last = last.max(seen.at);
                asked.push(Asked {
                    request: seen.object,
                });
            }
        }
        Ok((last - began, asked))
    }

    /// Many requests for an hour each, so many at once as the API server bears.
    pub(crate) async fn ask_many(&mut self, prefix: &str, count: usize) -> Result<()> {
        let names: Vec<_> = (0..count)
            .map(|number| (format!("{prefix}-{number}"), "1h".to_owned()))
            .collect();
        for batch in names.chunks(BATCH) {
            self.ask(batch.to_vec()).await?;
        }
        Ok(())
    }

    /// Requests that cannot be satisfied: there is no such template.
    pub(crate) async fn ask_in_vain(&self, count: usize) -> Result<()> {
        let alice = self.alice.first().context("nobody asks")?;
        let creations = (0..count).map(async |number| {
            let request = exec_request(&format!("hopeless-{number}"), "no-such-template", "1h");
            alice
                .create(&request)
                .await
                .context("failed to create a request")
        });
        try_join_all(creations).await.map(drop)
    }
}

fn settled(seen: &Seen<ExecAccessRequest>) -> bool {
    let status = seen.object.status.as_ref();
    status.is_some_and(|status| status.ready || status.phase.is_terminal())
}

fn granted(seen: &Seen<ExecAccessRequest>) -> Result<()> {
    let status = seen.object.status.clone().unwrap_or_default();
    if !status.ready {
        let name = seen.object.name_any();
        bail!("{name} is {}: {}", status.phase, conditions_line(&status));
    }
    Ok(())
}
