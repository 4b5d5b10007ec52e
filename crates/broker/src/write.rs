//! Writes of a run's events, and of the destinations of its connections, into its status.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use oz_api::harness::wire::EgressCount;
use oz_api::harness::{GROUP, HarnessRun, RunEgress};
use oz_api::names;
use oz_runs::lending::{merged, summed};
use oz_runs::objects::KIND;
use oz_runtime::{CallError, Clock, within};
use oz_trail::RequestRef;
use serde::Serialize;
use serde_json::value::RawValue;

/// A run, by name and UID: a run that is created again under the same name is another run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RunName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl RunName {
    /// Returns the run as audit records name it.
    pub(crate) fn reference(&self) -> RequestRef {
        RequestRef {
            kind: KIND.to_owned(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }
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

/// The content of reports that wait to be written.
pub(crate) trait Payload: Send + Sync + Sized + 'static {
    /// Returns the estimated size in bytes.
    fn bytes(&self) -> usize;

    /// Returns the content after a later report.
    fn followed_by(self, later: Self) -> Self;

    /// Returns the maximum size of the content if it follows an earlier report.
    fn bytes_after(&self, earlier: Option<&Self>) -> usize;
}

/// Events as a list in JSON: each report has all events, so that a later report replaces an earlier one.
impl Payload for Box<RawValue> {
    fn bytes(&self) -> usize {
        self.get().len()
    }

    fn followed_by(self, later: Self) -> Self {
        later
    }

    fn bytes_after(&self, _: Option<&Self>) -> usize {
        self.bytes()
    }
}

/// Destinations: each report has the counts since the last one, so that the counts add up.
impl Payload for Vec<EgressCount> {
    fn bytes(&self) -> usize {
        let texts = |count: &EgressCount| {
            count.host.len() + count.credential.as_ref().map_or(0, String::len)
        };
        self.iter()
            .map(|count| size_of::<EgressCount>() + texts(count))
            .sum()
    }

    fn followed_by(self, later: Self) -> Self {
        summed(self, later)
    }

    fn bytes_after(&self, earlier: Option<&Self>) -> usize {
        self.bytes() + earlier.map_or(0, Payload::bytes)
    }
}

/// A writer into statuses.
pub(crate) trait Write: Send + Sync + 'static {
    type Payload: Payload;

    /// Writes the content of reports.
    fn write(&self, run: &RunName, payload: &Self::Payload)
    -> impl Future<Output = Outcome> + Send;
}

/// The writer with server-side apply and a separate field manager: it changes only the events of a run, also if other
/// fields change at the same time.
pub(crate) struct Applied(pub(crate) Client);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Apply<'a, S> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Metadata<'a>,
    status: S,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    /// The API server rejects the write if the run has another UID.
    uid: &'a str,
    /// The same for a version, if one is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Events<'a> {
    recent_events: &'a RawValue,
}

#[derive(Debug, Serialize)]
struct Destinations<'a> {
    egress: &'a [RunEgress],
}

impl Write for Applied {
    type Payload = Box<RawValue>;

    async fn write(&self, run: &RunName, events: &Box<RawValue>) -> Outcome {
        let status = Events {
            recent_events: events,
        };
        outcome(apply(&self.0, run, None, names::BROKER, status).await)
    }
}

/// The writer of destinations, with another field manager. The counts of a report add to those of the status, of which
/// several brokers write: a write that finds another version reads it again.
pub(crate) struct AppliedEgress {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The field manager of destinations.
const EGRESS_MANAGER: &str = "oz-broker-egress";
/// The maximum number of attempts to write if the status changes at the same time.
const ATTEMPTS: usize = 4;

impl Write for AppliedEgress {
    type Payload = Vec<EgressCount>;

    async fn write(&self, run: &RunName, counts: &Vec<EgressCount>) -> Outcome {
        let resource = ApiResource::erase::<HarnessRun>(&());
        let (namespace, name) = (&run.namespace, &run.name);
        for _ in 0..ATTEMPTS {
            let found = oz_runtime::get(&self.client, &resource, Some(namespace), name).await;
            let found = match found {
                Ok(found) => found,
                Err(error) => return outcome(Err(error)),
            };
            let found = found.filter(|it| it.metadata.uid.as_deref() == Some(&run.uid));
            let Some(found) = found else {
                return Outcome::Lost;
            };
            let before = found.data.pointer("/status/egress").cloned();
            // Content that another user wrote is replaced.
            let before = before.and_then(|before| serde_json::from_value(before).ok());
            let egress = merged(before.unwrap_or_default(), counts, self.clock.now());
            let status = Destinations { egress: &egress };
            let version = found.metadata.resource_version.as_deref();
            match apply(&self.client, run, version, EGRESS_MANAGER, status).await {
                Err(error) if error.reason == "Changed" => {}
                written => return outcome(written),
            }
        }
        Outcome::Failed
    }
}

async fn apply(
    client: &Client,
    run: &RunName,
    version: Option<&str>,
    manager: &str,
    status: impl Serialize + std::fmt::Debug,
) -> Result<(), CallError> {
    let resource = ApiResource::erase::<HarnessRun>(&());
    let runs: Api<DynamicObject> = Api::namespaced_with(client.clone(), &run.namespace, &resource);
    let api_version = format!("{GROUP}/{}", resource.version);
    let apply = Patch::Apply(Apply {
        api_version: &api_version,
        kind: KIND,
        metadata: Metadata {
            name: &run.name,
            namespace: &run.namespace,
            uid: &run.uid,
            resource_version: version,
        },
        status,
    });
    let parameters = PatchParams::apply(manager).force();
    let patched = runs.patch_status(&run.name, &parameters, &apply);
    let what = || {
        format!(
            "failed to write the status of run {}/{}",
            run.namespace, run.name
        )
    };
    within(patched, what).await.map(|_| ())
}

fn outcome(written: Result<(), CallError>) -> Outcome {
    match written {
        Ok(()) => Outcome::Written,
        Err(error) => {
            // The API server reports another UID as a conflict.
            let lost = error.rejected || ["NotFound", "Changed"].contains(&error.reason);
            tracing::debug!(%error, lost, "a report was not written");
            if lost { Outcome::Lost } else { Outcome::Failed }
        }
    }
}
