//! One write of a run's events into its status.

use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use oz_api::harness::{GROUP, HarnessRun};
use oz_api::names;
use oz_runs::objects::KIND;
use oz_runtime::within;
use serde::Serialize;
use serde_json::value::RawValue;

/// A run, by name and UID: one that comes back under the same name is another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RunName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is written.
    Written,
    /// It never will be: the run is gone, or the API server does not take the events.
    Lost,
    /// It may be worth another try.
    Failed,
}

/// Writes events into statuses.
pub(crate) trait Write: Send + Sync + 'static {
    /// `events` is a list as JSON.
    fn write(&self, run: &RunName, events: &RawValue) -> impl Future<Output = Outcome> + Send;
}

/// Writes by server-side apply, as a manager of its own: what is no event of a run stays as it is, whatever is
/// written meanwhile.
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
    /// With another UID, the API server refuses.
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
                // Another UID is a conflict.
                let lost = error.rejected || ["NotFound", "Changed"].contains(&error.reason);
                tracing::debug!(%error, lost, "events were not written");
                if lost { Outcome::Lost } else { Outcome::Failed }
            }
        }
    }
}
