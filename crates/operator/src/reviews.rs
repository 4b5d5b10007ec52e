//! Reviews of emergencies and of break-glass: the operator opens one for each recorded access,
//! regardless of its request and of its namespace; reports one that has no finding in time; and
//! deletes one with a finding when the audit records of that time are deleted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::SignedDuration;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use oz_api::{AccessReview, labels};
use oz_audit::{Sink as _, Trail};
use oz_core::access::emergency::break_glass;
use oz_core::access::emergency::review::{self, ReviewState, Upkeep};
use oz_core::access::emergency::subject::{self, Subject};
use oz_core::access::seal::{Keys, Owner};
use oz_runtime::{Clock, Event, EventType, Recorder, Selection, Store, Task};
use oz_trail::{Action, AuditEvent};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::Notify;

use crate::review_stores::ReviewStores;

/// The interval between two passes without changes.
const LOOK: Duration = Duration::from_secs(10);
/// The minimum pause between two passes, so that many concurrent changes are handled in one; and
/// the pause after a failure.
const PAUSE: Duration = Duration::from_millis(200);
const AGAIN: Duration = Duration::from_secs(10);
/// The additional time for which a review is kept after the audit record of its emergency: an audit
/// record without a review gets one.
const LONGER: SignedDuration = SignedDuration::from_hours(1);

/// Selects the audit records of emergencies and of findings in the cluster. They share a watch: no
/// reader knows an emergency without its finding.
pub(crate) fn emergencies() -> Selection {
    select_actions(&[Action::EmergencyGranted, Action::ReviewGiven])
}

/// Selects the audit records of connections of break-glass groups.
pub(crate) fn openings() -> Selection {
    select_actions(&[Action::BreakGlassOpened])
}

fn select_actions(actions: &[Action]) -> Selection {
    let actions: Vec<String> = actions.iter().map(Action::to_string).collect();
    let selector = format!("{} in ({})", labels::AUDIT_KIND, actions.join(","));
    Selection::default().labels(&selector)
}

/// The task that opens and maintains reviews.
pub(crate) struct Reviews {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: Keys,
    pub(crate) trail: Trail,
    /// The audit records of emergencies and of connections of break-glass groups; empty if audit
    /// records are not written into the cluster.
    pub(crate) records: Vec<Store<AuditEvent>>,
    /// The terms for reviews of connections of break-glass groups.
    pub(crate) break_glass: break_glass::Terms,
    pub(crate) reviews: ReviewStores,
    /// The time for which audit records are kept.
    pub(crate) keep: SignedDuration,
    pub(crate) recorder: Recorder,
    pub(crate) gauges: Gauges,
}

/// The numbers of reviews.
#[derive(Clone, Default)]
pub(crate) struct Gauges {
    open: Gauge,
    overdue: Gauge,
}

impl Gauges {
    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "oz_reviews_open",
            "Emergencies and uses of break-glass without a review, by the leader",
            self.open.clone(),
        );
        registry.register(
            "oz_reviews_overdue",
            "Emergencies and uses of break-glass whose review is overdue, by the leader",
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
        let of_reviews = Arc::clone(&changed);
        let _reviews = self.reviews.subscribe(move || of_reviews.notify_one());
        let subscribed = |records: &Store<AuditEvent>| {
            let of_records = tell();
            records.subscribe(move |_| of_records())
        };
        let _records: Vec<_> = self.records.iter().map(subscribed).collect();
        loop {
            let done = self.pass().await;
            if let Err(error) = &done {
                tracing::warn!("failed to reconcile access reviews: {error:#}; retrying");
            }
            tokio::time::sleep(if done.is_ok() { PAUSE } else { AGAIN }).await;
            let _ = tokio::time::timeout(LOOK, changed.notified()).await;
        }
    }
}

impl Reviews {
    async fn pass(&self) -> anyhow::Result<()> {
        // Without the webhook's keys, a genuine finding cannot be distinguished from a forged one.
        let is_known = self.keys.newest(Owner::Webhook).is_some();
        if !self.reviews.is_ready() || !is_known {
            return Ok(());
        }
        // A failure for one review does not stop the others.
        let mut failed = Ok(());
        let (reviews, terms) = (&self.reviews, &self.break_glass);
        for event in reviews.without_review(&self.keys, terms, &self.records) {
            if let Err(error) = self.open(&event).await {
                failed = Err(error);
            }
        }
        let (mut open, mut overdue) = (0, 0);
        for object in self.reviews.objects() {
            // A review without oz's seal is ignored.
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

    /// Opens the review of an audit record. Its name follows from the record: a repeated call has
    /// no further effect. If its namespace accepts no review, such as a deleted one, or the access is to
    /// the whole cluster, the review is opened in oz's own.
    async fn open(&self, event: &AuditEvent) -> anyhow::Result<()> {
        let Some(found) = Subject::from_record(&self.keys, &event.spec.record, &self.break_glass)
        else {
            return Ok(());
        };
        let records = self.records_of(&found).await?;
        // Access to the whole cluster is in no namespace.
        let of_cluster = found.record().request.namespace.is_empty();
        let places = [None, Some(&*self.reviews.namespace)].into_iter();
        for own in places.filter(|own| own.is_some() || !of_cluster) {
            let Some(new) = subject::opened(&self.keys, &found, records.clone(), own)? else {
                return Ok(());
            };
            match self.create(&new).await {
                Ok(()) => return Ok(()),
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    return self.replace(&new).await;
                }
                Err(kube::Error::Api(status))
                    if own.is_none() && (status.is_not_found() || status.is_forbidden()) => {}
                Err(error) => {
                    let about = review::subject_named(&new);
                    return Err(error).context(format!("failed to open the review of {about}"));
                }
            }
        }
        Ok(())
    }

    async fn create(&self, new: &AccessReview) -> kube::Result<()> {
        let namespace = new.meta().namespace.as_deref();
        let client = self.client.clone();
        let reviews = match namespace {
            Some(namespace) => Api::<AccessReview>::namespaced(client, namespace),
            None => Api::default_namespaced(client),
        };
        let made = reviews.create(&PostParams::default(), new).await?;
        let (name, user) = (made.name_any(), &made.spec.requester.user);
        let about = review::subject_named(&made);
        tracing::info!(namespace, name, user, about, "a review is open");
        self.reviews.wrote(made);
        Ok(())
    }

    /// Deletes an object that has the name and the namespace of a new review and was not created by
    /// oz; the next pass creates the review.
    async fn replace(&self, new: &AccessReview) -> anyhow::Result<()> {
        let name = new.name_any();
        let Some(there) = self.api(new)?.get_opt(&name).await? else {
            return Ok(());
        };
        if review::read(&self.keys, &there).is_some() {
            self.reviews.wrote(there);
            return Ok(());
        }
        tracing::warn!(
            namespace = there.metadata.namespace,
            name,
            "an AccessReview without a seal of oz has the name of a review; it is deleted"
        );
        self.delete(&there).await
    }

    /// Returns the audit records so far of the request, or of the break-glass window.
    async fn records_of(&self, about: &Subject<'_>) -> kube::Result<oz_api::RecordsSoFar> {
        let record = about.record();
        if let Subject::BreakGlass(..) = about {
            let name = subject::name_of(record);
            let is_of_it = |event: &AuditEvent| {
                let other = &event.spec.record;
                other.request.namespace == record.request.namespace
                    && subject::name_of(other) == name
            };
            let found = self
                .records
                .iter()
                .flat_map(|records| records.select(is_of_it));
            let names = found.map(|event| event.name_any()).collect();
            return Ok(review::records_so_far(names));
        }
        let uid = labels::value(&record.request.uid);
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

    async fn look_after(
        &self,
        object: &AccessReview,
        standing: &ReviewState,
    ) -> anyhow::Result<()> {
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
                let (api, name) = (self.api(object)?, object.name_any());
                let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
                let patched = api.patch(&name, &parameters, &patch).await;
                self.wrote(patched)
            }
            Some(Upkeep::Over) => self.delete(object).await,
        }
    }

    /// Writes into the status whether the review is overdue.
    async fn say(&self, object: &AccessReview, overdue: bool) -> anyhow::Result<()> {
        let patch = json!({
            "metadata": { "resourceVersion": object.metadata.resource_version },
            "status": review::status(object, overdue, self.clock.now()),
        });
        let (api, name) = (self.api(object)?, object.name_any());
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = api.patch_status(&name, &parameters, &patch).await;
        self.wrote(patched)
    }

    /// Handles the result of a write. After a concurrent change or a deletion, the watch shows the
    /// current object.
    fn wrote(&self, answer: kube::Result<AccessReview>) -> anyhow::Result<()> {
        match answer {
            Ok(object) => {
                self.reviews.wrote(object);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Publishes the event for users who watch events. The trail and the status contain the same
    /// information.
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
            .api(object)?
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

    fn api(&self, object: &AccessReview) -> anyhow::Result<Api<AccessReview>> {
        let namespace = object.namespace();
        let namespace = namespace.context("the AccessReview is in no namespace")?;
        Ok(Api::namespaced(self.client.clone(), &namespace))
    }
}
