//! The watched reviews: those in the namespaces that oz serves, and those in oz's own namespace, which are about deleted
//! namespaces; and the audit records that have no review in either.

use std::collections::BTreeSet;
use std::sync::Arc;

use oz_api::AccessReview;
use oz_core::access::emergency::subject::{self, Subject};
use oz_core::access::emergency::{break_glass, finding, review};
use oz_core::access::seal::Keys;
use oz_runtime::{Feeds, Kind, Selection, Store, Subscription};
use oz_trail::AuditEvent;

/// The watched reviews.
#[derive(Clone)]
pub(crate) struct ReviewStores {
    served: Store<AccessReview>,
    /// The reviews in oz's own namespace, if `served` does not contain them.
    own: Option<Store<AccessReview>>,
    /// oz's own namespace.
    pub(crate) namespace: Arc<str>,
}

impl ReviewStores {
    /// Watches the reviews in the namespaces that oz serves (an empty list means all), and in its own `namespace`.
    pub(crate) fn new(feeds: &Feeds, served: &[String], namespace: &str) -> Self {
        let is_apart = !served.is_empty() && !served.iter().any(|one| one == namespace);
        let kind = Kind::from_type::<AccessReview>();
        Self {
            served: feeds.store(),
            own: is_apart.then(|| feeds.store_in(&kind, namespace, Selection::default())),
            namespace: namespace.into(),
        }
    }

    /// Creates stores without a watch, with these reviews: for tests.
    #[cfg(test)]
    pub(crate) fn fixed(reviews: impl IntoIterator<Item = AccessReview>) -> Self {
        Self {
            served: Store::fixed(reviews),
            own: None,
            namespace: "oz-system".into(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Store<AccessReview>> {
        std::iter::once(&self.served).chain(&self.own)
    }

    /// Checks whether all reviews were listed.
    pub(crate) fn is_ready(&self) -> bool {
        self.all().all(Store::is_ready)
    }

    /// Returns all reviews.
    pub(crate) fn objects(&self) -> Vec<Arc<AccessReview>> {
        self.all().flat_map(Store::objects).collect()
    }

    /// Calls `callback` for every change until the returned subscriptions are dropped.
    pub(crate) fn subscribe(
        &self,
        callback: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Vec<Subscription> {
        let subscribed = |store: &Store<AccessReview>| {
            let callback = callback.clone();
            store.subscribe(move |_| callback())
        };
        self.all().map(subscribed).collect()
    }

    /// Applies the API server's response to a write.
    pub(crate) fn wrote(&self, review: AccessReview) {
        let is_own = review.metadata.namespace.as_deref() == Some(&*self.namespace);
        let own = self.own.as_ref().filter(|_| is_own);
        own.unwrap_or(&self.served).wrote(review, None);
    }

    /// Checks whether oz opened the review of this name about access in `namespace`, there or in its own namespace.
    fn has(&self, keys: &Keys, namespace: &str, name: &str) -> bool {
        let is_about = |review: Arc<AccessReview>| {
            review.reviewed_namespace() == Some(namespace) && review::read(keys, &review).is_some()
        };
        let places = [namespace, &*self.namespace];
        self.all().any(|store| {
            let mut found = places
                .iter()
                .filter_map(|place| store.get(Some(place), name));
            found.any(is_about)
        })
    }

    /// Returns the audit records that require a review and have none, the first for each review. A recorded finding is
    /// a review: that of a deleted namespace exists no more.
    pub(crate) fn without_review(
        &self,
        keys: &Keys,
        terms: &break_glass::Terms,
        records: &[Store<AuditEvent>],
    ) -> Vec<Arc<AuditEvent>> {
        // One of the stores has the findings.
        if !records.iter().all(Store::is_ready) {
            return Vec::new();
        }
        let found = records.iter().flat_map(|records| {
            records.select(|event| {
                let record = &event.spec.record;
                let name = subject::name_of(record);
                name.is_some_and(|name| !self.has(keys, &record.request.namespace, &name))
            })
        });
        let mut found: Vec<_> = found.collect();
        if found.is_empty() {
            return found;
        }
        let mut reviewed = findings(keys, records);
        found.sort_by_key(|event| event.spec.record.time);
        found.retain(|event| {
            let record = &event.spec.record;
            let Some(name) = subject::name_of(record) else {
                return false;
            };
            // A record that oz did not write opens no review, and prevents none.
            Subject::from_record(keys, record, terms).is_some()
                && reviewed.insert((record.request.namespace.clone(), name))
        });
        found
    }
}

/// Returns the namespace and the name of each review with a recorded finding.
fn findings(keys: &Keys, records: &[Store<AuditEvent>]) -> BTreeSet<(String, String)> {
    let events = records.iter().flat_map(Store::objects);
    let found = events.filter_map(|event| {
        let found = finding::on_record(keys, &event.spec.record)?;
        Some((found.namespace.to_owned(), found.review.to_owned()))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use oz_api::{Finding, Requester, Reviewers};
    use oz_core::access::emergency::{Emergency, proven};
    use oz_trail::{Action, AuditEventSpec, Decision, Link, Record, RequestRef};

    use super::*;

    fn keys() -> Keys {
        Keys::with_every_owner([[1; 32]])
    }

    fn terms() -> break_glass::Terms {
        break_glass::Terms {
            within: SignedDuration::from_hours(24),
            reviewers: Reviewers::default(),
        }
    }

    /// Creates the audit record of an emergency in namespace shop.
    fn granted(uid: &str) -> Record {
        let (action, allow) = (Action::EmergencyGranted, Decision::Allow);
        let now = Timestamp::UNIX_EPOCH;
        let record = Record {
            user: Some(Requester {
                user: "dana".into(),
                ..Requester::default()
            }),
            request: RequestRef {
                kind: "ExecAccessRequest".into(),
                namespace: "shop".into(),
                name: "inc".into(),
                uid: uid.into(),
            },
            ..Record::about(now, action, allow, uid, "Success", "EMERGENCY")
        };
        let emergency = Emergency {
            due_at: now,
            reviewers: Reviewers::default(),
        };
        proven(&keys(), record, Some(&emergency)).unwrap()
    }

    /// Creates the review of an emergency, in its namespace or in oz's own.
    fn opened(uid: &str, own: Option<&str>) -> AccessReview {
        let (keys, terms, record) = (keys(), terms(), granted(uid));
        let found = Subject::from_record(&keys, &record, &terms).unwrap();
        let records = review::records_so_far(Vec::new());
        let review = subject::opened(&keys, &found, records, own);
        review.unwrap().unwrap()
    }

    /// Creates the audit record of the finding of a review.
    fn found(review: &AccessReview) -> Record {
        let finding = Finding::Justified;
        let (action, allow) = (Action::ReviewGiven, Decision::Allow);
        let now = Timestamp::UNIX_EPOCH;
        let record = review::record(review, now, action, allow, finding.into(), "seen");
        let record = record.detail("finding", finding.to_string());
        finding::proven(&keys(), record, review).unwrap()
    }

    fn store(records: Vec<Record>) -> Store<AuditEvent> {
        let events = records.into_iter().enumerate().map(|(number, record)| {
            let link = Link::default();
            AuditEvent::new(&number.to_string(), AuditEventSpec { link, record })
        });
        Store::fixed(events)
    }

    #[test]
    fn emergency_without_review_in_any_namespace_gets_one() {
        let own = Some("oz-system");
        let (here, moved) = (opened("uid-1", None), opened("uid-1", own));
        let mut forged = moved.clone();
        forged.spec.reviewed_namespace = Some("other".into());
        let mut unproven = found(&here);
        unproven.details.remove("proof");
        let granted = || granted("uid-1");
        let rows: [(Vec<AccessReview>, Vec<Record>, usize); 9] = [
            (vec![], vec![granted()], 1),
            (vec![], vec![granted(), granted()], 1),
            (vec![here.clone()], vec![granted()], 0),
            (vec![moved.clone()], vec![granted()], 0),
            (vec![forged], vec![granted()], 1),
            (vec![opened("uid-00000002", own)], vec![granted()], 1),
            // The review has a finding and was deleted with its namespace.
            (vec![], vec![granted(), found(&here)], 0),
            (vec![], vec![found(&moved), granted()], 0),
            (vec![], vec![granted(), unproven], 1),
        ];
        for (number, (reviews, records, expected)) in rows.into_iter().enumerate() {
            let stores = ReviewStores::fixed(reviews);
            let found = stores.without_review(&keys(), &terms(), &[store(records)]);
            assert_eq!(found.len(), expected, "{number}");
        }
    }

    #[test]
    fn review_in_own_namespace_is_known_where_oz_serves_others_only() {
        let moved = opened("uid-1", Some("oz-system"));
        let stores = ReviewStores {
            own: Some(Store::fixed(Vec::new())),
            ..ReviewStores::fixed(Vec::new())
        };
        stores.wrote(moved);
        let records = [store(vec![granted("uid-1")])];
        let found = stores.without_review(&keys(), &terms(), &records);
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(stores.served.len(), 0);
        assert_eq!(stores.objects().len(), 1);
    }
}
