//! Reviews of emergencies: one is opened for each emergency that is on record, whatever became of its request; one
//! that nobody writes in time is told of; one that is written goes when the trail's records of that time do.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use oz_audit::{Sink as _, Trail};
use oz_core::access::emergency::review::{self, Standing, Upkeep};
use oz_core::access::emergency::{OnRecord, on_record};
use oz_core::access::seal::Keys;
use oz_core::api::{AccessReview, AuditEvent};
use oz_core::audit::Action;
use oz_core::labels;
use oz_runtime::{Clock, Event, EventType, Recorder, Selection, Store, Task};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::Notify;

/// How often it is looked what there is to do, if nothing changes.
const LOOK: Duration = Duration::from_secs(10);
/// How long it is waited at least, so that much that changes at once is looked at once; or after a failure.
const PAUSE: Duration = Duration::from_millis(200);
const AGAIN: Duration = Duration::from_secs(10);
/// How much longer a review is kept than the record of its emergency: what is on record and has no review gets
/// one.
const LONGER: SignedDuration = SignedDuration::from_hours(1);

/// The records of emergencies, in the cluster.
pub(crate) fn selection() -> Selection {
    let action = Action::EmergencyGranted;
    Selection::default().labels(&format!("{}={action}", labels::AUDIT_KIND))
}

/// Opens reviews and looks after them.
pub(crate) struct Reviews {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: Keys,
    pub(crate) trail: Trail,
    /// The emergencies on record; `None` if records are not written into the cluster.
    pub(crate) records: Option<Store<AuditEvent>>,
    pub(crate) reviews: Store<AccessReview>,
    /// How long records are kept.
    pub(crate) keep: SignedDuration,
    pub(crate) recorder: Recorder,
    pub(crate) gauges: Gauges,
    /// UIDs of requests whose namespaces are gone: nothing can be made there.
    pub(crate) gone: Mutex<BTreeSet<String>>,
}

/// How many reviews there are.
#[derive(Clone, Default)]
pub(crate) struct Gauges {
    open: Gauge,
    overdue: Gauge,
}

impl Gauges {
    /// Adds the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "oz_reviews_open",
            "Emergencies that nobody has reviewed, by the replica that leads",
            self.open.clone(),
        );
        registry.register(
            "oz_reviews_overdue",
            "Emergencies that nobody has reviewed in time, by the replica that leads",
            self.overdue.clone(),
        );
    }
}

impl Task for Reviews {
    async fn run(&self) {
        let changed = Arc::new(Notify::new());
        let tell = || {
            let changed = Arc::clone(&changed);
            move || changed.notify_one()
        };
        let (of_reviews, of_records) = (tell(), tell());
        let _reviews = self.reviews.subscribe(move |_| of_reviews());
        let records = self.records.as_ref();
        let _records = records.map(|records| records.subscribe(move |_| of_records()));
        loop {
            let done = self.pass().await;
            if let Err(error) = &done {
                tracing::warn!(
                    "failed to look after the reviews of emergencies: {error:#}; trying again"
                );
            }
            tokio::time::sleep(if done.is_ok() { PAUSE } else { AGAIN }).await;
            let _ = tokio::time::timeout(LOOK, changed.notified()).await;
        }
    }
}

impl Reviews {
    async fn pass(&self) -> anyhow::Result<()> {
        if !self.reviews.is_ready() {
            return Ok(());
        }
        // What cannot be done for one is no reason to leave the others.
        let mut failed = Ok(());
        for event in self.without_review() {
            if let Err(error) = self.open(&event).await {
                failed = Err(error);
            }
        }
        let (mut open, mut overdue) = (0, 0);
        for object in self.reviews.objects() {
            // What bears no seal of ours is none of ours: nothing is decided by it.
            let Some(standing) = review::read(&self.keys, &object) else {
                continue;
            };
            open += i64::from(standing.by.is_none());
            overdue += i64::from(review::is_overdue(&object, &standing, self.clock.now()));
            if let Err(error) = self.look_after(&object, &standing).await {
                failed = Err(error);
            }
        }
        self.gauges.open.set(open);
        self.gauges.overdue.set(overdue);
        failed
    }

    /// The emergencies on record that have no review.
    fn without_review(&self) -> Vec<Arc<AuditEvent>> {
        let Some(records) = self.records.as_ref().filter(|records| records.is_ready()) else {
            return Vec::new();
        };
        let gone = self
            .gone
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        records.select(|event| {
            let request = &event.spec.record.request;
            let name = review::name_of(request);
            let found = self.reviews.get(Some(&request.namespace), &name);
            let is_there = found.is_some_and(|found| review::read(&self.keys, &found).is_some());
            !is_there && !gone.contains(&request.uid)
        })
    }

    /// Opens the review of an emergency. Its name is that of the grant: whoever does it twice does it once.
    async fn open(&self, event: &AuditEvent) -> anyhow::Result<()> {
        let Some(found) = on_record(&self.keys, &event.spec.record) else {
            return Ok(());
        };
        let records = self.records_of(&found).await?;
        let Some(new) = review::opened(&self.keys, &found, records)? else {
            return Ok(());
        };
        let request = &found.record.request;
        let reviews = Api::<AccessReview>::namespaced(self.client.clone(), &request.namespace);
        match reviews.create(&PostParams::default(), &new).await {
            Ok(made) => {
                let (namespace, name) = (&request.namespace, made.name_any());
                tracing::info!(%namespace, name, user = found.requester.user, "a review of an emergency is open");
                self.reviews.wrote(made, None);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.replace(&reviews, &new.name_any()).await
            }
            // Nobody can look at anything there any more.
            Err(kube::Error::Api(status)) if status.is_not_found() || is_terminating(&status) => {
                let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
                gone.insert(request.uid.clone());
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes away what stands where a review is to be and was not made by oz; the next pass makes the review.
    async fn replace(&self, reviews: &Api<AccessReview>, name: &str) -> anyhow::Result<()> {
        let Some(there) = reviews.get_opt(name).await? else {
            return Ok(());
        };
        if review::read(&self.keys, &there).is_some() {
            self.reviews.wrote(there, None);
            return Ok(());
        }
        let namespace = there.namespace().unwrap_or_default();
        tracing::warn!(
            %namespace, name,
            "an AccessReview that oz did not seal stands where that of an emergency is to be; it is deleted"
        );
        self.delete(&there).await
    }

    /// What is on record of the request so far.
    async fn records_of(&self, found: &OnRecord<'_>) -> kube::Result<oz_core::api::RecordsSoFar> {
        let uid = labels::value(&found.record.request.uid);
        let all: Api<AuditEvent> = Api::all(self.client.clone());
        let selected = ListParams::default().labels(&format!("{}={uid}", labels::AUDIT_GRANT));
        let listed = all.list_metadata(&selected).await?;
        let names = listed
            .items
            .iter()
            .map(kube::ResourceExt::name_any)
            .collect();
        Ok(review::records_so_far(names))
    }

    async fn look_after(&self, object: &AccessReview, standing: &Standing) -> anyhow::Result<()> {
        let now = self.clock.now();
        let keep = self.keep.checked_add(LONGER).unwrap_or(SignedDuration::MAX);
        match review::upkeep(&self.keys, object, standing, now, keep) {
            None => Ok(()),
            Some(Upkeep::Overdue) => {
                let record = review::overdue(object, now);
                self.trail.record(&record).await?;
                self.tell(object, record.message).await;
                self.say(object, true).await
            }
            Some(Upkeep::Settled) => self.say(object, false).await,
            Some(Upkeep::Sealed(text)) => {
                let patch = json!({ "metadata": {
                    "resourceVersion": object.metadata.resource_version,
                    "annotations": { labels::REVIEW: text },
                } });
                let (api, name) = (self.api(object), object.name_any());
                let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
                let patched = api.patch(&name, &parameters, &patch).await;
                self.wrote(patched)
            }
            Some(Upkeep::Over) => self.delete(object).await,
        }
    }

    /// Has the status say whether it is overdue.
    async fn say(&self, object: &AccessReview, overdue: bool) -> anyhow::Result<()> {
        let patch = json!({
            "metadata": { "resourceVersion": object.metadata.resource_version },
            "status": review::status(object, overdue, self.clock.now()),
        });
        let (api, name) = (self.api(object), object.name_any());
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = api.patch_status(&name, &parameters, &patch).await;
        self.wrote(patched)
    }

    /// Somebody may have written it meanwhile, or it may be gone: the watch tells.
    fn wrote(&self, answer: kube::Result<AccessReview>) -> anyhow::Result<()> {
        match answer {
            Ok(object) => {
                self.reviews.wrote(object, None);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The event for those who look at what happens. The trail and the status say the same.
    async fn tell(&self, object: &AccessReview, note: String) {
        let event = Event {
            type_: EventType::Warning,
            reason: "ReviewOverdue".to_owned(),
            note: Some(note),
            action: "Review".to_owned(),
            secondary: None,
        };
        let about = object.object_ref(&());
        if let Err(error) = self.recorder.publish(&event, &about).await {
            tracing::debug!(%error, "failed to publish an event about a review that is overdue");
        }
    }

    async fn delete(&self, object: &AccessReview) -> anyhow::Result<()> {
        let parameters = DeleteParams::default().preconditions(Preconditions {
            uid: object.uid(),
            resource_version: None,
        });
        match self
            .api(object)
            .delete(&object.name_any(), &parameters)
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn api(&self, object: &AccessReview) -> Api<AccessReview> {
        let namespace = object.namespace().unwrap_or_default();
        Api::namespaced(self.client.clone(), &namespace)
    }
}

/// Whether nothing is made in a namespace since it is being deleted.
fn is_terminating(status: &kube::core::Status) -> bool {
    status.code == 403 && status.message.contains("because it is being terminated")
}
