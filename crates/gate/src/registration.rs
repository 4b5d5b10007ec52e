//! The APIService by which the API server knows the gate: made by whoever installs it, and kept to the certificates
//! that the gate serves with.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use oz_admission::BUNDLE_KEY;
use oz_core::gate::API_SERVICE;
use oz_core::names::{GATE, GATE_CA};
use oz_runtime::{CallError, Feeds, Kind, Selection, Store, within};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How often it is looked at, whatever happens: somebody else may write it.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// After a pass that failed.
const AGAIN: Duration = Duration::from_secs(2);

/// Keeps the APIService.
pub(crate) struct Registration {
    bundle: Store<ConfigMap>,
    namespace: String,
    services: Api<APIService>,
}

impl Registration {
    pub(crate) fn new(client: Client, feeds: &Feeds, namespace: &str) -> Self {
        let named = Selection::named(GATE_CA);
        Self {
            bundle: feeds.store_in(&Kind::of::<ConfigMap>(), namespace, named),
            namespace: namespace.to_owned(),
            services: Api::all(client),
        }
    }

    /// Passes, until stopped.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let _subscription = self.bundle.subscribe({
            let changed = Arc::clone(&changed);
            move |_| changed.notify_one()
        });
        loop {
            let rest = match self.pass().await {
                Ok(()) => LOOK_EVERY,
                Err(error) => {
                    tracing::warn!(%error, "the APIService is not as it should be");
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

    async fn pass(&self) -> Result<(), CallError> {
        let map = self.bundle.get(Some(&self.namespace), GATE_CA);
        let Some(wanted) = map.and_then(|map| map.data.as_ref()?.get(BUNDLE_KEY).cloned()) else {
            // It is published soon, and then this is called again.
            return Ok(());
        };
        let what = |verb: &str| format!("failed to {verb} APIService {API_SERVICE}");
        let found = self.services.get_opt(API_SERVICE);
        let Some(found) = within(found, || what("read")).await? else {
            tracing::warn!("there is no APIService {API_SERVICE}: nobody reaches the gate");
            return Ok(());
        };
        let wanted = ByteString(wanted.into_bytes());
        if found.spec.and_then(|spec| spec.ca_bundle).as_ref() == Some(&wanted) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"spec": {"caBundle": wanted}}));
        let parameters = PatchParams {
            field_manager: Some(GATE.to_owned()),
            ..PatchParams::default()
        };
        let patched = self.services.patch(API_SERVICE, &parameters, &patch);
        within(patched, || what("write")).await?;
        tracing::info!("put the certificates into the APIService");
        Ok(())
    }
}
