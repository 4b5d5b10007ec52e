//! Leadership: a Lease allows one process at a time to write. The code is part of oz and not a
//! library; the reasons are in docs/adr/0003-lease.md. The rules are those of client-go's leader
//! election: another process's Lease has expired when it has not changed for its duration *as seen
//! by the monotonic clock of this process*, so no two wall clocks are ever compared.
//! See <https://pkg.go.dev/k8s.io/client-go/tools/leaderelection>.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::RuntimeError;
use crate::call::{CallError, within};
use crate::clock::Clock;
use crate::metrics::Metrics;

/// The durations of a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// The time without a renewal after which other processes may take the Lease.
    pub duration: Duration,
    /// The time without a successful renewal after which the holder stops writing. Less than
    /// `duration`.
    pub renew_deadline: Duration,
    /// The pause between two renewals.
    pub retry_period: Duration,
    /// The pause between two reads of a process that waits for the Lease. Other processes take a
    /// Lease at most this much later than `duration` after its last renewal, since only observed
    /// changes count.
    pub look_period: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            look_period: Duration::from_millis(250),
        }
    }
}

/// The election of this process for a Lease, if it competes for one before it writes.
#[derive(Clone, Debug)]
pub enum Election {
    /// The process writes at once: by configuration, it is the only replica.
    Off,
    /// The process writes while it holds the Lease.
    Lease {
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Lease.
        name: String,
        /// The name of this process: the pod's name, so that a restarted process takes its own
        /// Lease back.
        identity: String,
        /// Durations.
        timing: LeaseTiming,
        /// True if the process competes again after it lost the Lease; otherwise the process ends.
        again: bool,
    },
}

impl Election {
    /// Returns an election for a Lease with the default durations.
    pub fn lease(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self::Lease {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            timing: LeaseTiming::default(),
            again: false,
        }
    }

    /// Returns the elector, if the election uses a Lease.
    pub(crate) fn elector(
        self,
        client: Client,
        clock: Arc<dyn Clock>,
        leadership: Leadership,
        metrics: Metrics,
    ) -> Option<Elector> {
        let Self::Lease {
            namespace,
            name,
            identity,
            timing,
            again,
        } = self
        else {
            return None;
        };
        Some(Elector {
            client,
            namespace,
            name,
            identity,
            timing,
            again,
            clock,
            leadership,
            metrics,
        })
    }
}

/// The permission of this process to write. Clones are cheap and share one state.
#[derive(Clone, Debug)]
pub struct Leadership {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    epoch: Instant,
    /// Milliseconds after `epoch` until which writing is allowed.
    until: AtomicU64,
    begun: watch::Sender<bool>,
}

impl Leadership {
    /// Creates a leadership that does not allow writes yet.
    pub(crate) fn none() -> Self {
        Self {
            shared: Arc::new(Shared {
                epoch: Instant::now(),
                until: AtomicU64::new(0),
                begun: watch::Sender::new(false),
            }),
        }
    }

    /// Allows writes permanently from now on, without a Lease.
    pub(crate) fn always(&self) {
        self.shared.until.store(u64::MAX, Ordering::Release);
        self.shared.begun.send_replace(true);
    }

    /// Checks whether writes are allowed at this moment.
    pub fn holds(&self) -> bool {
        let now = self.shared.epoch.elapsed().as_millis();
        now < u128::from(self.shared.until.load(Ordering::Acquire))
    }

    /// Waits until writes are allowed for the first time.
    pub async fn begun(&self) {
        // The sender lives as long as `self`.
        let _ = self.shared.begun.subscribe().wait_for(|begun| *begun).await;
    }

    fn extend(&self, until: Instant) {
        let until = until.saturating_duration_since(self.shared.epoch);
        let until = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.shared.until.store(until, Ordering::Release);
        self.shared
            .begun
            .send_if_modified(|begun| !std::mem::replace(begun, true));
    }

    fn end(&self) {
        self.shared.until.store(0, Ordering::Release);
    }
}

/// The component that competes for a Lease and renews it.
pub(crate) struct Elector {
    client: Client,
    namespace: String,
    name: String,
    pub(crate) identity: String,
    timing: LeaseTiming,
    /// True if the elector competes again after it lost the Lease.
    pub(crate) again: bool,
    clock: Arc<dyn Clock>,
    leadership: Leadership,
    metrics: Metrics,
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Elector")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The state of the Lease for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chance {
    /// This process holds the Lease: renew it.
    Ours,
    /// The Lease has no holder, or its holder has not renewed it in time: take it.
    Free,
    /// Another process holds the Lease for this time from now, unless it renews the Lease.
    Taken(Duration),
}

/// The version of a Lease that was seen last, and the instant since which it has not changed.
#[derive(Debug, Default)]
struct LastSeen {
    version: Option<String>,
    since: Option<Instant>,
}

impl LastSeen {
    /// Determines the state of the Lease as it is now.
    fn judge(&mut self, lease: &Lease, identity: &str, now: Instant) -> Chance {
        if self.version != lease.metadata.resource_version || self.since.is_none() {
            self.version.clone_from(&lease.metadata.resource_version);
            self.since = Some(now);
        }
        let spec = lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        match holder {
            None | Some("") => Chance::Free,
            Some(holder) if holder == identity => Chance::Ours,
            Some(_) => {
                let lasts = spec
                    .and_then(|spec| spec.lease_duration_seconds)
                    .and_then(|seconds| u64::try_from(seconds).ok())
                    .map_or(Duration::ZERO, Duration::from_secs);
                let silent = self
                    .since
                    .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
                match lasts.checked_sub(silent) {
                    None | Some(Duration::ZERO) => Chance::Free,
                    Some(left) => Chance::Taken(left),
                }
            }
        }
    }
}

impl Elector {
    /// Returns the error for a Lease that was lost.
    pub(crate) fn lost(&self, reason: String) -> RuntimeError {
        RuntimeError::LeaseLost {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            reason,
        }
    }

    /// Releases the Lease, so that another process need not wait until it expires.
    pub(crate) async fn release(&self) {
        self.leadership.end();
        self.metrics.leads(false);
        let api = self.api();
        let released = async {
            let mut lease = within(api.get(&self.name), || {
                "failed to read the lease".to_owned()
            })
            .await?;
            let Some(spec) = lease.spec.as_mut() else {
                return Ok(());
            };
            if spec.holder_identity.as_ref() != Some(&self.identity) {
                return Ok(());
            }
            spec.holder_identity = None;
            spec.renew_time = Some(MicroTime(self.clock.now()));
            self.replace(&lease).await.map(|_| ())
        };
        let released: Result<(), CallError> = released.await;
        if let Err(failure) = released {
            tracing::warn!(%failure, "failed to release the lease; it expires automatically");
        }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Takes the Lease as soon as it is free.
    pub(crate) async fn acquire(&self) -> Lease {
        let mut seen = LastSeen::default();
        loop {
            let pause = match self.try_acquire(&mut seen).await {
                Ok(Attempt::Taken(lease)) => {
                    tracing::info!(lease = self.name, identity = self.identity, "leading");
                    self.metrics.leads(true);
                    return *lease;
                }
                Ok(Attempt::Held(left)) => self.timing.look_period.min(left),
                Err(failure) => {
                    tracing::warn!(%failure, "failed to take the lease");
                    self.timing.retry_period
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Renews the Lease until that fails, and returns the reason. After that, [`Leadership::holds`]
    /// returns `false`.
    pub(crate) async fn keep(&self, mut lease: Lease) -> String {
        let reason = self.renew_until_lost(&mut lease).await;
        self.leadership.end();
        self.metrics.leads(false);
        reason
    }

    async fn try_acquire(&self, seen: &mut LastSeen) -> Result<Attempt, CallError> {
        let what = || format!("failed to read the lease {}/{}", self.namespace, self.name);
        let begun = Instant::now();
        let written = match within(self.api().get_opt(&self.name), what).await? {
            None => self.create().await?,
            Some(lease) => {
                let chance = seen.judge(&lease, &self.identity, Instant::now());
                if let Chance::Taken(left) = chance {
                    return Ok(Attempt::Held(left));
                }
                self.replace(&self.claimed(lease, chance)).await?
            }
        };
        self.leadership.extend(begun + self.timing.renew_deadline);
        Ok(Attempt::Taken(Box::new(written)))
    }

    /// Renews the Lease until that fails for too long; returns the reason.
    async fn renew_until_lost(&self, lease: &mut Lease) -> String {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.timing.retry_period).await;
            let begun = Instant::now();
            let problem = match self.renew(lease).await {
                Ok(()) => {
                    renewed = begun;
                    self.leadership.extend(begun + self.timing.renew_deadline);
                    continue;
                }
                Err(Renewal::Lost(reason)) => return reason,
                Err(Renewal::Failed(failure)) => failure,
            };
            tracing::warn!(%problem, "failed to renew the lease");
            if renewed.elapsed() >= self.timing.renew_deadline {
                return format!("it could not be renewed in time: {problem}");
            }
        }
    }

    /// Renews the Lease as last written. If another process changed it, reads the holder.
    async fn renew(&self, lease: &mut Lease) -> Result<(), Renewal> {
        let claim = self.claimed(lease.clone(), Chance::Ours);
        let failure = match self.replace(&claim).await {
            Ok(written) => {
                *lease = written;
                return Ok(());
            }
            Err(failure) => failure,
        };
        if !matches!(failure.reason, "Changed" | "NotFound") {
            return Err(Renewal::Failed(failure));
        }
        let what = || "failed to read the lease".to_owned();
        let found = within(self.api().get_opt(&self.name), what).await;
        match found.map_err(Renewal::Failed)? {
            None => {
                *lease = self.create().await.map_err(Renewal::Failed)?;
                Ok(())
            }
            Some(found) => {
                let holder = found
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.holder_identity.as_deref());
                if holder != Some(&self.identity) {
                    return Err(Renewal::Lost(format!(
                        "the holder is {}",
                        holder.unwrap_or("nobody")
                    )));
                }
                // A renewal that took too long may have been written after all. To wait until the next attempt
                // could be too late.
                *lease = found;
                let claim = self.claimed(lease.clone(), Chance::Ours);
                *lease = self.replace(&claim).await.map_err(Renewal::Failed)?;
                Ok(())
            }
        }
    }

    async fn create(&self) -> Result<Lease, CallError> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        };
        let lease = self.claimed(lease, Chance::Free);
        within(self.api().create(&PostParams::default(), &lease), || {
            format!(
                "failed to create the lease {}/{}",
                self.namespace, self.name
            )
        })
        .await
    }

    /// Writes the Lease with its resource version, so that the API server rejects the write if
    /// another process was faster.
    async fn replace(&self, lease: &Lease) -> Result<Lease, CallError> {
        let parameters = PostParams::default();
        within(self.api().replace(&self.name, &parameters, lease), || {
            format!("failed to write the lease {}/{}", self.namespace, self.name)
        })
        .await
    }

    /// Returns the Lease with this process as its holder.
    fn claimed(&self, mut lease: Lease, chance: Chance) -> Lease {
        let now = MicroTime(self.clock.now());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.timing.duration.as_secs()).ok();
        if chance != Chance::Ours {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.renew_time = Some(now);
        lease
    }
}

/// The result of an attempt to take the Lease.
enum Attempt {
    /// This process holds the Lease now.
    Taken(Box<Lease>),
    /// Another process holds the Lease for this time from now, unless it renews the Lease.
    Held(Duration),
}

/// The failure of a renewal.
enum Renewal {
    /// The next attempt may succeed.
    Failed(CallError),
    /// Another process holds the Lease.
    Lost(String),
}

#[cfg(test)]
mod tests;
