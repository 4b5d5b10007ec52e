//! Writes of a run's events into its status.

use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use oz_api::harness::{GROUP, HarnessRun};
use oz_api::names;
use oz_runs::objects::KIND;
use oz_runtime::within;
use serde::Serialize;
use serde_json::value::RawValue;

/// A run, by name and UID: a run that is created again under the same name is another run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RunName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The events are written.
    Written,
    /// The events cannot be written: the run does not exist any more, or the API server rejects the events.
    Lost,
    /// The write failed and may be retried.
    Failed,
}

/// The writer of events into statuses.
pub(crate) trait Write: Send + Sync + 'static {
    /// Writes `events`, a list as JSON.
    fn write(&self, run: &RunName, events: &RawValue) -> impl Future<Output = Outcome> + Send;
}

/// The writer with server-side apply and a separate field manager: it changes only the events of a run, also if other
/// fields change at the same time.
pub(crate) struct Applied(pub(crate) Client);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Apply<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Metadata<'a>,
    status: Status<'a>,
}

#[derive(Debug, Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    /// The API server rejects the write if the run has another UID.
    uid: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    recent_events: &'a RawValue,
}

impl Write for Applied {
    async fn write(&self, run: &RunName, events: &RawValue) -> Outcome {
        let resource = kube::core::ApiResource::erase::<HarnessRun>(&());
        let runs: Api<DynamicObject> =
            Api::namespaced_with(self.0.clone(), &run.namespace, &resource);
        let api_version = format!("{GROUP}/{}", resource.version);
        let apply = Patch::Apply(Apply {
            api_version: &api_version,
            kind: KIND,
            metadata: Metadata {
                name: &run.name,
                namespace: &run.namespace,
                uid: &run.uid,
            },
            status: Status {
                recent_events: events,
            },
        });
        let parameters = PatchParams::apply(names::BROKER).force();
        let patched = runs.patch_status(&run.name, &parameters, &apply);
        let what = || {
            format!(
                "failed to write the events of run {}/{}",
                run.namespace, run.name
            )
        };
        match within(patched, what).await {
            Ok(_) => Outcome::Written,
            Err(error) => {
                // The API server reports another UID as a conflict.
                let lost = error.rejected || ["NotFound", "Changed"].contains(&error.reason);
                tracing::debug!(%error, lost, "events were not written");
                if lost { Outcome::Lost } else { Outcome::Failed }
            }
        }
    }
}
