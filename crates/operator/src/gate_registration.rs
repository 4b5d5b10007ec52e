//! The registration of the gate: the operator deletes the APIService of the gate while no gate is
//! ready, and restores it later: an APIService that does not respond prevents the API server from
//! deleting namespaces.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use oz_api::names::OPERATOR;
use oz_gating::API_SERVICE;
use oz_gating::registration::{
    GateService, SERVICE_NAME, Step, definition, is_ready, registered, step,
};
use oz_runtime::{CallError, Feeds, Kind, Selection, Store, Task, within};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The interval between two checks without changes: another client may have deleted or restored the
/// APIService.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The pause after a failed pass.
const AGAIN: Duration = Duration::from_secs(2);

/// The task that keeps the APIService in line with the gate.
pub(crate) struct GateRegistration {
    services: Api<APIService>,
    slices: Store<EndpointSlice>,
    namespace: String,
    service: GateService,
}

impl GateRegistration {
    /// Creates the task for a gate behind this Service.
    pub(crate) fn new(
        client: &Client,
        feeds: &Feeds,
        namespace: &str,
        service: &GateService,
    ) -> Self {
        let of_it = Selection::default().labels(&format!("{SERVICE_NAME}={}", service.name));
        Self {
            services: Api::all(client.clone()),
            slices: feeds.store_in(&Kind::from_type::<EndpointSlice>(), namespace, of_it),
            namespace: namespace.to_owned(),
            service: service.clone(),
        }
    }

    /// Performs the next step; returns the maximum time until the next pass.
    async fn pass(&self, away: Option<Duration>) -> Result<Duration, CallError> {
        let what = |verb: &str| format!("failed to {verb} APIService {API_SERVICE}");
        let found = within(self.services.get_opt(API_SERVICE), || what("read")).await?;
        let away = away.map(|away| SignedDuration::try_from(away).unwrap_or(SignedDuration::MAX));
        let registered = registered(found.as_ref(), &self.namespace, &self.service);
        match step(away, registered) {
            Step::Leave => {}
            Step::Wait(left) => return Ok(left.unsigned_abs().min(LOOK_EVERY)),
            Step::Withdraw => {
                // An APIService that has since been replaced is not deleted.
                let Some(metadata) = found.map(|found| found.metadata) else {
                    return Ok(LOOK_EVERY);
                };
                let parameters = DeleteParams::default().preconditions(Preconditions {
                    uid: metadata.uid,
                    resource_version: metadata.resource_version,
                });
                let deleted = self.services.delete(API_SERVICE, &parameters);
                within(deleted, || what("delete")).await?;
                tracing::warn!(
                    "no replica of the gate is ready: deleted APIService {API_SERVICE}, which \
                     would block the deletion of namespaces; the operator creates it again when a \
                     replica is ready"
                );
            }
            Step::PutBack => {
                let definition = definition(&self.namespace, &self.service);
                let parameters = PatchParams::apply(OPERATOR).force();
                let patch = Patch::Apply(&definition);
                let written = self.services.patch(API_SERVICE, &parameters, &patch);
                within(written, || what("write")).await?;
                tracing::info!(
                    "a replica of the gate is ready: created APIService {API_SERVICE} \
                    again"
                );
            }
        }
        Ok(LOOK_EVERY)
    }
}

impl Task for GateRegistration {
    async fn run(&self) {
        let changed = Arc::new(Notify::new());
        let _subscription = self.slices.subscribe({
            let changed = Arc::clone(&changed);
            move |_| changed.notify_one()
        });
        self.slices.ready().await;
        // A new leader does not know the earlier state.
        let mut away_since = None;
        loop {
            away_since = match is_ready(&self.slices.objects()) {
                true => None,
                false => away_since.or_else(|| Some(Instant::now())),
            };
            let away = away_since.map(|since: Instant| since.elapsed());
            let rest = self.pass(away).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the registration of the gate is not as configured");
                AGAIN
            });
            tokio::select! {
                () = changed.notified() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }
}
