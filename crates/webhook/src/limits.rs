//! The limits on concurrent requests of one user, and of one namespace. Each request is stored,
//! cached by every process of oz, and ended individually; a user who may request access can do so
//! in a loop.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{Phase, RequestStatus, labels};
use oz_config::RequestLimits;
use oz_core::access::denial::Denial;
use parking_lot::Mutex;

use crate::connect::Grants;

/// The period for which a request counts that this replica admitted and that the watch has not
/// shown yet. A request that was never stored counts for the same period.
pub(crate) const UNSEEN: SignedDuration = SignedDuration::from_secs(5);

/// A request that a user tries to create.
pub(crate) struct Asking<'a> {
    pub(crate) user: &'a str,
    pub(crate) namespace: &'a str,
    /// The UID with which the watch will show it.
    pub(crate) uid: &'a str,
    /// The name of the request that it extends, which ends when this one starts.
    pub(crate) extends: Option<&'a str>,
}

/// The counter of requests: those that the watch has shown, and recently admitted ones that it has
/// not shown yet. Each replica counts separately: a burst that is faster than the watch gets this
/// many from each.
#[derive(Clone)]
pub(crate) struct RequestCounter {
    limits: RequestLimits,
    grants: Grants,
    admitted: Arc<Mutex<HashMap<String, Admitted>>>,
}

/// A request that this replica admitted.
struct Admitted {
    user: String,
    namespace: String,
    at: Timestamp,
}

/// The numbers of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    waiting: usize,
    active: usize,
    finished: usize,
    /// The requests of all users, waiting or active.
    namespace: usize,
}

impl Counts {
    /// Counts the admitted requests of the namespace that the watch has not shown yet.
    fn from_admitted(asking: &Asking<'_>, admitted: &HashMap<String, Admitted>) -> Self {
        let mut counts = Self::default();
        for one in admitted
            .values()
            .filter(|one| one.namespace == asking.namespace)
        {
            counts.add(one.user == asking.user, Some(Phase::Pending));
        }
        counts
    }

    /// Counts a request that the watch has shown, unless it counts already: the watch may show an
    /// admitted request while the requests are counted.
    fn add_stored(
        &mut self,
        asking: &Asking<'_>,
        admitted: &HashMap<String, Admitted>,
        metadata: &ObjectMeta,
        status: Option<&RequestStatus>,
    ) {
        let uid = metadata.uid.as_ref();
        let is_counted = uid.is_some_and(|uid| admitted.contains_key(uid));
        let is_extended = asking.extends.is_some() && metadata.name.as_deref() == asking.extends;
        if !is_counted && !is_extended {
            let theirs = requester(metadata) == Some(asking.user);
            self.add(theirs, live(metadata, status));
        }
    }

    fn add(&mut self, theirs: bool, phase: Option<Phase>) {
        match phase {
            None => self.finished += usize::from(theirs),
            Some(phase) if phase.is_granted() => {
                self.namespace += 1;
                self.active += usize::from(theirs);
            }
            Some(_) => {
                self.namespace += 1;
                self.waiting += usize::from(theirs);
            }
        }
    }
}

impl RequestCounter {
    pub(crate) fn new(limits: RequestLimits, grants: Grants) -> Self {
        Self {
            limits,
            grants,
            admitted: Arc::default(),
        }
    }

    /// Checks whether one more request is allowed; if so, it counts from now on, except for a dry
    /// run.
    ///
    /// # Errors
    /// The limit that is reached, and the requests to end.
    pub(crate) fn admit(
        &self,
        asking: &Asking<'_>,
        now: Timestamp,
        dry_run: bool,
    ) -> Result<(), Denial> {
        // Under one lock: each of two concurrent requests counts the other.
        let mut admitted = self.admitted.lock();
        admitted.retain(|uid, one| {
            now.duration_since(one.at).abs() < UNSEEN && !self.grants.knows_request(uid)
        });
        let mut counts = Counts::from_admitted(asking, &admitted);
        self.grants
            .each_request(asking.namespace, |metadata, status| {
                counts.add_stored(asking, &admitted, metadata, status);
            });
        hold(self.limits, asking, counts)?;
        if !dry_run {
            let one = Admitted {
                user: asking.user.to_owned(),
                namespace: asking.namespace.to_owned(),
                at: now,
            };
            admitted.insert(asking.uid.to_owned(), one);
        }
        Ok(())
    }

    /// Stops counting an admitted request with this UID that was denied after it was counted.
    pub(crate) fn forget(&self, uid: &str) {
        self.admitted.lock().remove(uid);
    }
}

/// Checks whether one more request is within the limits.
fn hold(limits: RequestLimits, asking: &Asking<'_>, counts: Counts) -> Result<(), Denial> {
    let Asking {
        user, namespace, ..
    } = asking;
    let full = |count: usize, most: usize| most > 0 && count >= most;
    let (count, what, next, field) = if full(counts.waiting, limits.waiting) {
        (
            counts.waiting,
            format!("requests of user {user} are pending in namespace {namespace}"),
            "delete those that are not needed, or correct the causes for which they are pending",
            "webhook.limits.waiting",
        )
    } else if full(counts.active, limits.active) {
        (
            counts.active,
            format!("requests of user {user} are active in namespace {namespace}"),
            "delete those that are not needed: that revokes their access",
            "webhook.limits.active",
        )
    } else if full(counts.namespace, limits.namespace) {
        (
            counts.namespace,
            format!("requests are pending or active in namespace {namespace}"),
            "have the owners delete those that are not needed",
            "webhook.limits.namespace",
        )
    } else if full(counts.finished, limits.finished) {
        (
            counts.finished,
            format!("requests of user {user} have ended and still exist in namespace {namespace}"),
            "delete them, or wait until they are deleted automatically",
            "webhook.limits.finished",
        )
    } else {
        return Ok(());
    };
    Err(Denial::new(
        "TooManyRequests",
        format!("{count} {what}, which is the maximum ({field}); {next}"),
    ))
}

/// Returns the user that created the request. It is stamped, and immutable from then on.
fn requester(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(labels::REQUESTED_BY).map(String::as_str)
}

/// Returns the phase, if the request is not over.
fn live(metadata: &ObjectMeta, status: Option<&RequestStatus>) -> Option<Phase> {
    let phase = status.map(|status| status.phase).unwrap_or_default();
    let over = phase.is_terminal() || metadata.deletion_timestamp.is_some();
    (!over).then_some(phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(counts: Counts) -> Option<String> {
        let asking = Asking {
            user: "alice",
            namespace: "shop",
            uid: "u",
            extends: None,
        };
        let held = hold(RequestLimits::default(), &asking, counts);
        held.err().map(|denial| denial.message)
    }

    #[test]
    fn the_limits_are_reached_one_by_one_and_say_what_to_end() {
        let below = Counts {
            waiting: 19,
            active: 19,
            finished: 199,
            namespace: 199,
        };
        assert_eq!(held(below), None);
        for (counts, says) in [
            (
                Counts {
                    waiting: 20,
                    ..below
                },
                "20 requests of user alice are pending in namespace shop, which is the maximum \
                 (webhook.limits.waiting); delete those",
            ),
            (
                Counts {
                    active: 20,
                    ..below
                },
                "20 requests of user alice are active",
            ),
            (
                Counts {
                    namespace: 200,
                    ..below
                },
                "200 requests are pending or active in namespace shop",
            ),
            (
                Counts {
                    finished: 200,
                    ..below
                },
                "200 requests of user alice have ended",
            ),
        ] {
            let why = held(counts).unwrap();
            assert!(why.starts_with(says), "{why}");
        }
    }

    #[test]
    fn zero_is_no_limit() {
        let limits = RequestLimits {
            waiting: 0,
            active: 0,
            namespace: 0,
            finished: 0,
        };
        let asking = Asking {
            user: "alice",
            namespace: "shop",
            uid: "u",
            extends: None,
        };
        let counts = Counts {
            waiting: 1_000,
            active: 1_000,
            finished: 1_000,
            namespace: 1_000,
        };
        assert!(hold(limits, &asking, counts).is_ok());
    }

    #[test]
    fn each_request_counts_once_for_its_user_and_once_for_its_namespace() {
        let mut counts = Counts::default();
        counts.add(true, Some(Phase::Pending));
        counts.add(false, Some(Phase::Pending));
        counts.add(true, Some(Phase::Active));
        counts.add(true, None);
        counts.add(false, None);
        let expected = Counts {
            waiting: 1,
            active: 1,
            finished: 1,
            namespace: 3,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn request_that_watch_shows_during_count_counts_once() {
        let asking = Asking {
            user: "alice",
            namespace: "shop",
            uid: "u",
            extends: None,
        };
        let one = Admitted {
            user: "alice".to_owned(),
            namespace: "shop".to_owned(),
            at: Timestamp::UNIX_EPOCH,
        };
        let admitted = HashMap::from([("shown".to_owned(), one)]);
        let mut counts = Counts::from_admitted(&asking, &admitted);
        for uid in ["shown", "older"] {
            let by = (labels::REQUESTED_BY.to_owned(), "alice".to_owned());
            let metadata = ObjectMeta {
                uid: Some(uid.to_owned()),
                annotations: Some([by].into()),
                ..ObjectMeta::default()
            };
            counts.add_stored(&asking, &admitted, &metadata, None);
        }
        let expected = Counts {
            waiting: 2,
            namespace: 2,
            ..Counts::default()
        };
        assert_eq!(counts, expected);
    }
}
