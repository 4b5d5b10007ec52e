//! The room for emergencies: the unreviewed emergencies of one requester, and those that
//! this process is granting at the moment. Two concurrent decisions are counted one after the
//! other.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use oz_api::Requester;
use oz_api::harness::HarnessRun;
use oz_core::access::emergency;
use oz_core::access::kind::ReviewLimit;
use oz_core::access::seal::Keys;
use oz_core::controller::Failure;
use oz_core::kinds::AccessRequest;
use oz_core::transient::Kind;
use oz_runs::run::{has_begun, is_over};
use oz_runtime::Store;
use oz_trail::{AuditEvent, Record};
use parking_lot::Mutex;

use crate::review_stores::ReviewStores;

/// The time for which room is reserved for a request that no longer exists: its audit record is
/// visible long before that.
const KEPT: SignedDuration = SignedDuration::from_secs(60);

/// The requests of one kind, by their UIDs.
pub(crate) trait RequestLookup: Send + Sync {
    /// Returns whether a request was granted, or may still be; `None` if it does not exist.
    fn may_hold(&self, uid: &str) -> Option<bool>;
}

impl<R: AccessRequest> RequestLookup for Store<R> {
    fn may_hold(&self, uid: &str) -> Option<bool> {
        let request = self.by_uid(uid)?;
        let granted = |status: &oz_api::RequestStatus| status.granted_at.is_some();
        Some(!request.view().phase().is_terminal() || request.status().is_some_and(granted))
    }
}

/// The harness runs, by their UIDs.
pub(crate) struct RunLookup(pub(crate) Store<HarnessRun>);

impl RequestLookup for RunLookup {
    fn may_hold(&self, uid: &str) -> Option<bool> {
        let run = self.0.by_uid(uid)?;
        Some(!is_over(&run) || has_begun(&run))
    }
}

/// The transient bindings of a kind, by their UIDs.
pub(crate) struct BindingLookup<K>(pub(crate) Store<K>);

impl<K: Kind> RequestLookup for BindingLookup<K> {
    fn may_hold(&self, uid: &str) -> Option<bool> {
        let binding = self.0.by_uid(uid)?;
        let Some(status) = binding.status() else {
            return Some(true);
        };
        Some(!status.phase.is_terminal() || status.activated_at.is_some())
    }
}

/// The known emergencies.
#[derive(Clone)]
pub(crate) struct Emergencies(Arc<Shared>);

struct Shared {
    keys: Keys,
    /// The audit records of emergencies and of findings; `None` if audit records are not written into the cluster.
    records: Option<Store<AuditEvent>>,
    reviews: ReviewStores,
    requests: Vec<Box<dyn RequestLookup>>,
    granting: Mutex<BTreeMap<String, Granting>>,
}

/// An emergency that is being granted, or was granted a moment ago.
struct Granting {
    requester: Requester,
    since: Timestamp,
}

impl Emergencies {
    pub(crate) fn new(
        keys: &Keys,
        records: Option<Store<AuditEvent>>,
        reviews: ReviewStores,
        requests: Vec<Box<dyn RequestLookup>>,
    ) -> Self {
        Self(Arc::new(Shared {
            keys: keys.clone(),
            records,
            reviews,
            requests,
            granting: Mutex::default(),
        }))
    }

    /// Returns the other unreviewed emergencies of the requester, by the UIDs of their requests. If
    /// their number leaves room, the request with this UID takes it.
    pub(crate) fn take(
        &self,
        now: Timestamp,
        uid: &str,
        place: &ReviewLimit,
    ) -> Result<Vec<String>, Failure> {
        let shared = &*self.0;
        let Some(records) = &shared.records else {
            return Err(Failure::invalid(
                "ReviewsUnavailable",
                "the operator runs with audit.objects: false, but the review of an emergency \
                 requires an audit record in the cluster; have an administrator set \
                 audit.objects: true, or create the object again without spec.emergency",
            ));
        };
        if !records.is_ready() || !shared.reviews.is_ready() {
            return Err(Failure::transient(
                "NotReady",
                "the operator has not listed every AccessReview yet",
            ));
        }
        let mut granting = shared.granting.lock();
        let (reviews, records) = (shared.reviews.objects(), records.objects());
        granting.retain(|uid, one| shared.is_held(now, uid, one));
        let uids = emergency::unreviewed(
            &shared.keys,
            &place.requester,
            Some(uid),
            reviews.iter().map(AsRef::as_ref),
            records
                .iter()
                .map(|event| -> &Record { &event.spec.record }),
            granting
                .iter()
                .map(|(uid, one)| (uid.as_str(), &one.requester)),
        );
        if uids.len() < place.most {
            let requester = place.requester.clone();
            let since = now;
            granting.insert(uid.to_owned(), Granting { requester, since });
        }
        Ok(uids)
    }
}

impl Shared {
    fn is_held(&self, now: Timestamp, uid: &str, one: &Granting) -> bool {
        let known = self
            .requests
            .iter()
            .find_map(|requests| requests.may_hold(uid));
        known.unwrap_or_else(|| now.duration_since(one.since) < KEPT)
    }
}

#[cfg(test)]
mod tests {
    use oz_api::{BindingStatus, ExecAccessRequest, Phase, RequestStatus, TransientRoleBinding};

    use super::*;

    fn place(user: &str, most: usize) -> ReviewLimit {
        ReviewLimit {
            requester: Requester {
                user: user.into(),
                ..Requester::default()
            },
            most,
        }
    }

    fn request(uid: &str, phase: Phase) -> ExecAccessRequest {
        let mut request = ExecAccessRequest::default();
        request.metadata.uid = Some(uid.into());
        request.metadata.name = Some(uid.into());
        request.status = Some(RequestStatus {
            phase,
            ..RequestStatus::default()
        });
        request
    }

    fn emergencies(requests: Vec<ExecAccessRequest>) -> Emergencies {
        let keys = Keys::with_every_owner([[1; 32]]);
        let records = Some(Store::fixed(Vec::<AuditEvent>::new()));
        let reviews = ReviewStores::fixed(Vec::new());
        Emergencies::new(
            &keys,
            records,
            reviews,
            vec![Box::new(Store::fixed(requests))],
        )
    }

    /// Returns the number of the other unreviewed emergencies of a requester.
    fn count(
        all: &Emergencies,
        now: Timestamp,
        uid: &str,
        place: &ReviewLimit,
    ) -> Result<usize, Failure> {
        all.take(now, uid, place).map(|uids| uids.len())
    }

    #[test]
    fn room_that_was_taken_is_no_others() {
        let now = Timestamp::UNIX_EPOCH;
        let all = emergencies(vec![
            request("a", Phase::Pending),
            request("b", Phase::Pending),
        ]);
        assert_eq!(count(&all, now, "a", &place("alice", 1)), Ok(0));
        // The same request, on its way to the grant.
        assert_eq!(count(&all, now, "a", &place("alice", 1)), Ok(0));
        assert_eq!(count(&all, now, "b", &place("alice", 1)), Ok(1));
        assert_eq!(count(&all, now, "c", &place("alice", 1)), Ok(1));
        assert_eq!(count(&all, now, "d", &place("bob", 1)), Ok(0));
        assert_eq!(count(&all, now, "b", &place("alice", 2)), Ok(1));
        assert_eq!(count(&all, now, "c", &place("alice", 2)), Ok(2));
    }

    #[test]
    fn emergency_quota_is_returned_if_request_is_not_granted() {
        let now = Timestamp::UNIX_EPOCH;
        let denied = emergencies(vec![request("a", Phase::Denied)]);
        assert_eq!(count(&denied, now, "a", &place("alice", 1)), Ok(0));
        assert_eq!(count(&denied, now, "b", &place("alice", 1)), Ok(0));
        // A request that is gone, granted or not, keeps the room until its audit record must be
        // visible.
        let gone = emergencies(Vec::new());
        assert_eq!(count(&gone, now, "a", &place("alice", 1)), Ok(0));
        let later = now + KEPT - SignedDuration::from_nanos(1);
        assert_eq!(count(&gone, later, "b", &place("alice", 1)), Ok(1));
        assert_eq!(count(&gone, now + KEPT, "b", &place("alice", 1)), Ok(0));
    }

    fn binding(phase: Phase, activated_at: Option<Timestamp>) -> TransientRoleBinding {
        let mut binding = TransientRoleBinding::default();
        binding.metadata.uid = Some("a".into());
        binding.metadata.name = Some("a".into());
        binding.status = Some(BindingStatus {
            phase,
            activated_at,
            ..BindingStatus::default()
        });
        binding
    }

    #[test]
    fn emergency_of_binding_keeps_its_room_until_it_is_denied() {
        let now = Timestamp::UNIX_EPOCH;
        for (phase, activated_at, others) in [
            (Phase::Pending, None, 1),
            (Phase::Active, Some(now), 1),
            (Phase::Expired, Some(now), 1),
            (Phase::Denied, None, 0),
            (Phase::Expired, None, 0),
        ] {
            let store = Store::fixed(vec![binding(phase, activated_at)]);
            let keys = Keys::with_every_owner([[1; 32]]);
            let records = Some(Store::fixed(Vec::<AuditEvent>::new()));
            let all = Emergencies::new(
                &keys,
                records,
                ReviewStores::fixed(Vec::new()),
                vec![Box::new(BindingLookup(store))],
            );
            assert_eq!(count(&all, now, "a", &place("alice", 1)), Ok(0));
            // Longer than for an object that does not exist any more.
            let later = now + KEPT + KEPT;
            assert_eq!(
                count(&all, later, "b", &place("alice", 1)),
                Ok(others),
                "{phase} {activated_at:?}"
            );
        }
    }

    #[test]
    fn emergency_quota_is_returned_if_run_ends_before_it_begins() {
        use oz_api::harness::{HarnessRunStatus, RunPhase};
        let run = |uid: &str, job: Option<&str>| {
            let mut run = HarnessRun::default();
            run.metadata.uid = Some(uid.into());
            run.metadata.name = Some(uid.into());
            run.status = Some(HarnessRunStatus {
                phase: Some(RunPhase::Failed),
                job_name: job.map(ToOwned::to_owned),
                ..HarnessRunStatus::default()
            });
            run
        };
        let now = Timestamp::UNIX_EPOCH;
        for (job, expected) in [(None, 0), (Some("a"), 1)] {
            let runs = RunLookup(Store::fixed(vec![run("a", job)]));
            let keys = Keys::with_every_owner([[1; 32]]);
            let records = Some(Store::fixed(Vec::<AuditEvent>::new()));
            let reviews = ReviewStores::fixed(Vec::new());
            let all = Emergencies::new(&keys, records, reviews, vec![Box::new(runs)]);
            assert_eq!(count(&all, now, "a", &place("alice", 1)), Ok(0));
            assert_eq!(
                count(&all, now, "b", &place("alice", 1)),
                Ok(expected),
                "{job:?}"
            );
        }
    }

    #[test]
    fn without_records_in_the_cluster_there_are_no_emergencies() {
        let keys = Keys::with_every_owner([[1; 32]]);
        let reviews = ReviewStores::fixed(Vec::new());
        let none = Emergencies::new(&keys, None, reviews, Vec::new());
        let why = none.take(Timestamp::UNIX_EPOCH, "a", &place("alice", 1));
        assert_eq!(
            why.map_err(|failure| failure.reason),
            Err("ReviewsUnavailable")
        );
    }
}
