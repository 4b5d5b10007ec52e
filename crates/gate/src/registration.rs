//! The APIService by which the API server knows the gate: the installation creates it, and the gate keeps in it the
//! certificates that it serves with. The operator deletes it while no gate is ready, and recreates it without
//! certificates.
//! See <https://kubernetes.io/docs/concepts/extend-kubernetes/api-extension/apiserver-aggregation/>.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use oz_admission::BUNDLE_KEY;
use oz_api::names::{GATE, GATE_CA};
use oz_gating::API_SERVICE;
use oz_runtime::{CallError, Feeds, Kind, Selection, Store, within};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The interval of unconditional checks: others may write the object.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The pause after a pass that failed, and while the APIService does not exist.
const AGAIN: Duration = Duration::from_secs(2);

/// The controller of the APIService.
pub(crate) struct Registration {
    bundle: Store<ConfigMap>,
    namespace: String,
    services: Api<APIService>,
}

impl Registration {
    pub(crate) fn new(client: Client, feeds: &Feeds, namespace: &str) -> Self {
        let named = Selection::with_name(GATE_CA);
        Self {
            bundle: feeds.store_in(&Kind::from_type::<ConfigMap>(), namespace, named),
            namespace: namespace.to_owned(),
            services: Api::all(client),
        }
    }

    /// Runs passes until it is stopped.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let _subscription = self.bundle.subscribe({
            let changed = Arc::clone(&changed);
            move |_| changed.notify_one()
        });
        let mut was_there = true;
        loop {
            let rest = match self.pass().await {
                Ok(is_there) => {
                    if was_there && !is_there {
                        tracing::warn!(
                            "there is no APIService {API_SERVICE}, so the gate is not reachable; \
                             the operator creates it again if gate.unregisterWhenUnavailable is true"
                        );
                    }
                    was_there = is_there;
                    if is_there { LOOK_EVERY } else { AGAIN }
                }
                Err(error) => {
                    tracing::warn!(%error, "the APIService is not as configured");
                    AGAIN
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = changed.notified() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// Runs one pass. Returns whether the APIService exists.
    async fn pass(&self) -> Result<bool, CallError> {
        let map = self.bundle.get(Some(&self.namespace), GATE_CA);
        let Some(wanted) = map.and_then(|map| map.data.as_ref()?.get(BUNDLE_KEY).cloned()) else {
            // The bundle is published soon, and the next pass follows.
            return Ok(true);
        };
        let what = |verb: &str| format!("failed to {verb} APIService {API_SERVICE}");
        let found = self.services.get_opt(API_SERVICE);
        let Some(found) = within(found, || what("read")).await? else {
            return Ok(false);
        };
        let wanted = ByteString(wanted.into_bytes());
        if found.spec.and_then(|spec| spec.ca_bundle).as_ref() == Some(&wanted) {
            return Ok(true);
        }
        let patch = Patch::Merge(json!({"spec": {"caBundle": wanted}}));
        let parameters = PatchParams {
            field_manager: Some(GATE.to_owned()),
            ..PatchParams::default()
        };
        let patched = self.services.patch(API_SERVICE, &parameters, &patch);
        within(patched, || what("write")).await?;
        tracing::info!("published the certificates in the APIService");
        Ok(true)
    }
}
