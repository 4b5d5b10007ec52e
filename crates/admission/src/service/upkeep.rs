//! The upkeep of the certificates of a service: the authority in its Secret, its published certificates,
//! and the serving certificate.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use oz_runtime::{CallError, Clock, Gate, Runtime, with_causes};

use super::bundle::Bundle;
use crate::{
    CertPolicy,
    caller::KnownCallers,
    certificate::{
        authority,
        resolver::Current,
        rotation::after,
        secret::SecretAddress,
        signer::Signer,
        store::{self, Circumstances, Store},
    },
    metrics::Metrics,
};

/// The maximum interval between passes, even without a change.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The pause after a failed pass.
const AGAIN: Duration = Duration::from_secs(2);

/// The reason for which the certificates are not as declared.
#[derive(Debug, thiserror::Error)]
enum UpkeepError {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Certificate(#[from] authority::Error),
    #[error(transparent)]
    Publish(#[from] CallError),
}

/// The owner of the certificates, and their place in the cluster.
pub(super) struct Settings {
    pub(super) fingerprint: String,
    pub(super) namespace: String,
    pub(super) config_map: String,
    pub(super) names: Vec<String>,
    pub(super) policy: CertPolicy,
}

pub(super) struct Upkeep {
    store: Store,
    policy: CertPolicy,
    names: Vec<String>,
    bundle: Bundle,
    current: Current,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    ready: Gate,
    published: BTreeMap<String, Timestamp>,
}

impl Upkeep {
    pub(super) fn new(
        settings: Settings,
        runtime: &Runtime,
        current: Current,
        metrics: Metrics,
    ) -> Self {
        let client = runtime.client();
        let Settings {
            fingerprint,
            namespace,
            config_map,
            names,
            policy,
        } = settings;
        let bundle = Bundle::new(client, &fingerprint, &namespace, &config_map);
        let home = SecretAddress {
            name: policy.secret_name(&fingerprint),
            namespace,
            fingerprint,
        };
        Self {
            store: Store::new(client.clone(), home, policy.clone(), metrics.clone()),
            policy,
            names,
            bundle,
            current,
            clock: Arc::clone(runtime.clock()),
            metrics,
            ready: runtime.readiness().gate("certificate"),
            published: BTreeMap::new(),
        }
    }

    /// Runs passes without end.
    pub(super) async fn run(mut self) {
        loop {
            let now = self.clock.now();
            let passed = self.pass(now).await;
            self.metrics.upkeep("certificate", passed.is_ok(), now);
            let rest = match passed {
                Ok(wake) => wake
                    .duration_since(self.clock.now())
                    .max(SignedDuration::ZERO)
                    .unsigned_abs()
                    .clamp(AGAIN, LOOK_EVERY),
                Err(error) => {
                    let error = with_causes(&error);
                    tracing::warn!(error, "the certificates are not as they should be");
                    AGAIN
                }
            };
            tokio::time::sleep(rest).await;
        }
    }

    /// Performs the due steps: an authority is published first, and signs second. Returns the instant of
    /// the next pass.
    async fn pass(&mut self, now: Timestamp) -> Result<Timestamp, UpkeepError> {
        let leaf = self.current.leaf();
        let published = &self.published;
        let circumstances = Circumstances {
            now,
            serving: leaf.as_ref().and_then(|leaf| leaf.serving(now)),
            published_since: &|pem| published.get(pem).copied(),
            may_stage: true,
            // There are no hooks, so no paths with a key.
            started: None,
            callers: &KnownCallers::default(),
        };
        let settled = self.store.settle(&circumstances).await;
        let signer = Signer {
            policy: &self.policy,
            names: &self.names,
            current: &self.current,
        };
        // A failure to read the Secret must not let a valid certificate expire.
        if let Some(held) = self.store.held() {
            signer.renew(&held, now)?;
        }
        let (stored, wake) = settled?;
        let wanted: Vec<String> = stored.trusted().map(str::to_owned).collect();
        self.published = self.bundle.publish(&wanted, now).await?;
        self.ready.open();
        let since = |pem: &String| self.published.get(pem).copied();
        let follow = signer.follow(&stored, since(&stored.active.certificate), now)?;
        let next = stored.next.as_ref().and_then(|it| since(&it.certificate));
        let promotion = next.map(|since| after(since, self.policy.settle));
        self.metrics.expires("ca", stored.active.until);
        if let Some(leaf) = self.current.leaf() {
            self.metrics.expires("leaf", leaf.until);
        }
        let wakes = [wake, follow, promotion];
        Ok(wakes.into_iter().flatten().min().unwrap_or(Timestamp::MAX))
    }
}
