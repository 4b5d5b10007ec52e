//! Authentication of callers. The API server reviews each token once, and again after some seconds, so that a deleted
//! pod soon loses access. A bounded number of digests of tokens is cached.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use oz_api::Requester;
use oz_api::harness::wire::{PROXY_AUDIENCE, REPORTER_AUDIENCE};
use oz_runs::caller::{self, Caller, Reason, Refusal};
use oz_runtime::{CallError, Clock, within};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::answer::Refused;
use crate::buckets::Buckets;
use crate::metrics::Metrics;

/// The time for which the result of a token review is cached: for a valid and for an invalid token.
const GOOD_FOR: SignedDuration = SignedDuration::from_secs(10);
const BAD_FOR: SignedDuration = SignedDuration::from_secs(2);
/// The maximum number of valid and of invalid tokens in the cache.
const GOOD: usize = 2_048;
const BAD: usize = 512;
/// The number of invalid tokens that one address may send in a second, and at once: each costs a call.
const STRANGERS: (u32, u32) = (5, 50);
/// The maximum number of addresses with a separate limit.
const ADDRESSES: usize = 4_096;
/// The maximum number of concurrent token reviews, and the maximum time that a review waits for its turn.
const REVIEWS: usize = 32;
const REVIEW_WAIT: Duration = Duration::from_secs(5);

/// A cache of token reviews, by the digests of the tokens.
#[derive(Debug)]
struct Remembered<T> {
    most: usize,
    tokens: HashMap<[u8; 32], (Timestamp, T)>,
}

impl<T: Clone> Remembered<T> {
    fn new(most: usize) -> Self {
        let tokens = HashMap::new();
        Self { most, tokens }
    }

    fn get(&self, digest: &[u8; 32], now: Timestamp) -> Option<T> {
        let (until, value) = self.tokens.get(digest)?;
        (now < *until).then(|| value.clone())
    }

    fn put(&mut self, digest: [u8; 32], value: T, now: Timestamp, until: Timestamp) {
        if self.tokens.len() >= self.most {
            self.tokens.retain(|_, (until, _)| now < *until);
        }
        if self.tokens.len() >= self.most {
            let soonest = self.tokens.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(soonest) = soonest.map(|(digest, _)| *digest) {
                self.tokens.remove(&soonest);
            }
        }
        self.tokens.insert(digest, (until, value));
    }
}

/// A caller that is not a pod of a run: the reason, and its user if the API server authenticated one.
#[derive(Clone, Debug)]
pub(crate) struct Stranger {
    pub(crate) refusal: Refusal,
    pub(crate) user: Option<Requester>,
}

/// The reason for which a caller is not identified.
#[derive(Debug)]
pub(crate) enum Unknown {
    /// The caller is not a pod with a valid token.
    Stranger(Stranger),
    /// The token review failed.
    Failed(Refused),
}

/// The authentication of pods by their tokens.
pub(crate) struct Callers {
    reviews: Api<TokenReview>,
    clock: Arc<dyn Clock>,
    good: Mutex<Remembered<Arc<Caller>>>,
    bad: Mutex<Remembered<Stranger>>,
    strangers: Buckets<IpAddr>,
    turns: Semaphore,
    metrics: Metrics,
}

impl Callers {
    pub(crate) fn new(client: Client, clock: Arc<dyn Clock>, metrics: Metrics) -> Self {
        Self {
            reviews: Api::all(client),
            clock,
            good: Mutex::new(Remembered::new(GOOD)),
            bad: Mutex::new(Remembered::new(BAD)),
            strangers: Buckets::new(STRANGERS.0, STRANGERS.1, ADDRESSES),
            turns: Semaphore::new(REVIEWS),
            metrics,
        }
    }

    /// Returns the pod to which a token is bound. The token was received from `address`.
    pub(crate) async fn identify(
        &self,
        token: &str,
        address: IpAddr,
    ) -> Result<Arc<Caller>, Unknown> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let now = self.clock.now();
        if let Some(known) = self.good.lock().get(&digest, now) {
            return Ok(known);
        }
        if let Some(stranger) = self.bad.lock().get(&digest, now) {
            return Err(Unknown::Stranger(stranger));
        }
        let wait = self.strangers.wait(&address, Instant::now());
        if !wait.is_zero() {
            let what = "too many tokens without a pod come from this address";
            return Err(Unknown::Failed(Refused::too_often(what, wait)));
        }
        let answer = self.ask(token).await.map_err(Unknown::Failed)?;
        let now = self.clock.now();
        let after = |duration| now.checked_add(duration).unwrap_or(now);
        match answer {
            Ok(caller) => {
                let caller = Arc::new(caller);
                let ends = caller::ends(token).unwrap_or(Timestamp::MAX);
                let until = after(GOOD_FOR).min(ends);
                self.good
                    .lock()
                    .put(digest, Arc::clone(&caller), now, until);
                Ok(caller)
            }
            Err(stranger) => {
                // This review is already paid for; the limit applies to the next one.
                let _ = self.strangers.take(&address, Instant::now());
                self.bad
                    .lock()
                    .put(digest, stranger.clone(), now, after(BAD_FOR));
                Err(Unknown::Stranger(stranger))
            }
        }
    }

    async fn ask(&self, token: &str) -> Result<Result<Caller, Stranger>, Refused> {
        let turn = tokio::time::timeout(REVIEW_WAIT, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(Refused::busy(
                "too many pods send their first request at once",
            ));
        };
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(
                    [REPORTER_AUDIENCE, PROXY_AUDIENCE]
                        .map(str::to_owned)
                        .to_vec(),
                ),
            },
            ..TokenReview::default()
        };
        let parameters = PostParams::default();
        let asked = self.reviews.create(&parameters, &review);
        let what = || "failed to review the token by the API server".to_owned();
        let answer: Result<TokenReview, CallError> = within(asked, what).await;
        let status = match answer {
            Ok(review) => review.status.unwrap_or_default(),
            Err(error) => {
                self.metrics.reviewed("failed");
                tracing::warn!(%error, "no pod can be authenticated");
                return Err(Refused::unavailable(&error));
            }
        };
        let found = caller::caller(&status).map_err(|refusal| Stranger {
            refusal,
            user: caller::requester(&status),
        });
        self.metrics.reviewed(match &found {
            Ok(_) => "pod",
            Err(it) if it.refusal.reason == Reason::Unauthenticated => "unauthenticated",
            Err(_) => "no_pod",
        });
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_cache_is_bounded_and_entries_expire() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut all = Remembered::new(2);
        all.put([1; 32], "one", at(0), at(10));
        assert_eq!(all.get(&[1; 32], at(9)), Some("one"));
        assert_eq!(all.get(&[1; 32], at(10)), None);
        assert_eq!(all.get(&[2; 32], at(0)), None);
        all.put([2; 32], "two", at(5), at(15));
        // The entry that expires first is removed for a new one.
        all.put([3; 32], "three", at(6), at(16));
        assert_eq!(all.tokens.len(), 2);
        assert_eq!(all.get(&[1; 32], at(6)), None);
        assert_eq!(all.get(&[2; 32], at(6)), Some("two"));
        // Expired entries are removed before valid ones.
        all.put([4; 32], "four", at(15), at(25));
        assert_eq!(all.get(&[3; 32], at(15)), Some("three"));
    }
}
