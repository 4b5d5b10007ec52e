//! The usual installation of oz: two operators, of which one writes, and two webhooks behind a Service.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use oz_api::names;
use oz_testkit::{Cluster, Process, cargo_binary, eventually};
use serde_json::json;

use crate::{NAMESPACE, Operator, Options, Scene, Service, Traffic, Webhook, install};

/// The annotation that requests a new authority.
const ROTATE: &str = "oz-admission/rotate";
/// The timeout of each step here; far above the usual duration.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest delay of a grant or of its expiry (docs/concepts/availability.md): the lease after its last
/// renewal, and the turns of all waiting requests. One second is promised for the turns, which
/// `cargo xtask bench ha` measures on release builds.
pub const LEASE_AND_TURNS: SignedDuration = SignedDuration::from_secs(20);

/// The duty of a replica: a leader holds more resources than a waiting replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// An operator that writes.
    Leads,
    /// An operator that waits for the Lease.
    Waits,
    /// A webhook.
    Admits,
}

/// The replicas, the oldest first.
#[derive(Debug)]
pub struct Replicas {
    cluster: &'static Cluster,
    service: Service,
    webhooks: Vec<Webhook>,
    operators: Vec<(String, Operator)>,
    options: Options,
    made: usize,
}

impl Replicas {
    /// Installs oz and starts two replicas of each process.
    ///
    /// # Errors
    /// When a part cannot be installed or does not become ready.
    pub async fn start(cluster: &'static Cluster) -> Result<Self> {
        Self::start_with(cluster, Options::default()).await
    }

    /// Starts replicas like [`Replicas::start`], all of them with these options.
    ///
    /// # Errors
    /// As [`Replicas::start`].
    pub async fn start_with(cluster: &'static Cluster, options: Options) -> Result<Self> {
        for binary in ["oz-operator", "oz-webhook"] {
            cargo_binary(binary)?;
        }
        install(cluster).await?;
        let mut replicas = Self {
            cluster,
            service: Service::start().await?,
            webhooks: Vec::new(),
            operators: Vec::new(),
            options,
            made: 0,
        };
        for _ in 0..2 {
            replicas.add_webhook().await?;
            replicas.add_operator().await?;
        }
        replicas.leader().await?;
        Ok(replicas)
    }

    /// Returns the options of a new replica.
    fn options(&mut self) -> Options {
        self.made += 1;
        self.named(&format!("oz-{}", self.made))
    }

    /// Returns the options of the replica with this name.
    fn named(&self, name: &str) -> Options {
        Options {
            replica: name.to_owned(),
            ..self.options.clone()
        }
    }

    /// Adds a webhook, which accepts new connections.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn add_webhook(&mut self) -> Result<()> {
        let options = self.options();
        let webhook = Webhook::start_behind(self.cluster, &options, &self.service).await?;
        self.webhooks.push(webhook);
        Ok(())
    }

    /// Adds an operator, which waits for the Lease.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn add_operator(&mut self) -> Result<()> {
        let options = self.options();
        self.start_operator(options).await
    }

    async fn start_operator(&mut self, options: Options) -> Result<()> {
        let options = options.flag("--leader-elect");
        let operator = Operator::start(self.cluster, &options).await?;
        self.operators.push((options.replica, operator));
        Ok(())
    }

    /// Starts an operator that was killed again under its name, as a kubelet starts a container of a pod. It takes
    /// its own Lease back at once.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_again(&mut self, name: &str) -> Result<()> {
        self.start_operator(self.named(name)).await
    }

    /// Returns the names of the running operators, in alphabetical order.
    #[must_use]
    pub fn operators(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .operators
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        names.sort();
        names
    }

    /// Returns every running process and its duty.
    ///
    /// # Errors
    /// When no running operator holds the Lease for a long time.
    pub async fn processes(&self) -> Result<Vec<(Duty, &Process)>> {
        let leader = self.leader().await?;
        let operators = self.operators.iter().map(|(name, one)| {
            let leads = *name == leader;
            let duty = if leads { Duty::Leads } else { Duty::Waits };
            (duty, &one.process)
        });
        let webhooks = self.webhooks.iter().map(|one| (Duty::Admits, &one.process));
        Ok(operators.chain(webhooks).collect())
    }

    /// Returns the name of the operator that holds the Lease.
    ///
    /// # Errors
    /// When no running operator holds it for a long time.
    pub async fn leader(&self) -> Result<String> {
        let client = self.cluster.client("admin").await?;
        let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
        eventually("an operator to lead", REPLICA_TIMEOUT, async || {
            let spec = leases.get(names::LEASE).await?.spec.unwrap_or_default();
            let holder = spec.holder_identity.unwrap_or_default();
            let runs = self.operators.iter().any(|(name, _)| *name == holder);
            Ok(runs.then_some(holder))
        })
        .await
    }

    /// Kills the leader without warning.
    ///
    /// # Errors
    /// When no operator leads.
    pub async fn kill_leader(&mut self) -> Result<()> {
        let leader = self.leader().await?;
        self.kill(&leader).map(drop)
    }

    /// Kills the operator with this name without warning, and returns its process.
    ///
    /// # Errors
    /// When no such operator runs.
    pub fn kill(&mut self, name: &str) -> Result<Process> {
        let mut operator = self.take(name)?;
        operator.process.kill9();
        Ok(operator.process)
    }

    /// Requests the leader to end, and waits until it has ended.
    ///
    /// # Errors
    /// When no operator leads, or the leader does not end.
    pub async fn drain_leader(&mut self) -> Result<()> {
        let leader = self.leader().await?;
        self.take(&leader)?
            .process
            .terminate(REPLICA_TIMEOUT)
            .await?;
        Ok(())
    }

    fn take(&mut self, name: &str) -> Result<Operator> {
        let place = self.operators.iter().position(|(one, _)| one == name);
        let place = place.with_context(|| format!("no operator {name}"))?;
        Ok(self.operators.remove(place).1)
    }

    /// Requests the oldest webhook to end, and waits until it has ended. As in a cluster, the Service is
    /// notified later than the webhook: after `meanwhile` has completed.
    ///
    /// # Errors
    /// When no webhook exists, it does not end, or `meanwhile` fails.
    pub async fn drain_webhook(
        &mut self,
        meanwhile: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        anyhow::ensure!(!self.webhooks.is_empty(), "no webhook");
        let mut webhook = self.webhooks.remove(0);
        let serving = webhook.serving;
        let told = async {
            meanwhile.await?;
            self.service.remove(serving);
            Ok(())
        };
        let (ended, told) = tokio::join!(webhook.process.terminate(REPLICA_TIMEOUT), told);
        ended?;
        told
    }

    /// Replaces every replica by a new one, one after the other, including the leader, as an upgrade does.
    ///
    /// # Errors
    /// When a replica does not become ready, or does not end.
    pub async fn roll(&mut self, traffic: &Traffic, scene: &Scene) -> Result<()> {
        for _ in 0..2 {
            self.add_webhook().await?;
            self.drain_webhook(traffic.more(10)).await?;
            self.add_operator().await?;
            self.drain_leader().await?;
            traffic.granted(scene).await?;
        }
        Ok(())
    }

    /// Requests a new authority for the webhooks' certificates, and waits until it signs them.
    ///
    /// # Errors
    /// When the authority is not created in time.
    pub async fn rotate_authority(&self) -> Result<()> {
        let client = self.cluster.client("admin").await?;
        let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
        let authority = async || -> Result<_> {
            let secret = secrets.get(names::ADMISSION_AUTHORITY).await?;
            let certificate = secret.data.and_then(|mut data| data.remove("ca.crt"));
            certificate.context("the Secret holds no certificate")
        };
        let before = authority().await?;
        let ask = json!({"metadata": {"annotations": {ROTATE: Timestamp::now().to_string()}}});
        let (parameters, ask) = (PatchParams::default(), Patch::Merge(&ask));
        secrets
            .patch(names::ADMISSION_AUTHORITY, &parameters, &ask)
            .await?;
        eventually("another authority", REPLICA_TIMEOUT, async || {
            Ok((authority().await? != before).then_some(()))
        })
        .await
    }
}
