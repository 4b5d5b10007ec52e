//! The stamp hook: writes the creator into each new object, sealed, over any value from the user.
//! The stamp never changes.

use std::marker::PhantomData;

use oz_admission::{Cx, Mutate, Notes, Rejection, Review};
use oz_api::harness::{HarnessRun, Workspace};
use oz_core::access::seal::Keys;
use oz_runs::run::spec_digest;
use oz_runs::seed;

use super::rules::Reviewed;
use crate::stamp::{Sealing, Subject};

/// A kind that is stamped.
pub(crate) trait Stamped: Reviewed {
    /// Returns the digest of the immutable contents.
    fn digest_of_asked(&self) -> String;
}

impl Stamped for HarnessRun {
    fn digest_of_asked(&self) -> String {
        spec_digest(self)
    }
}

impl Stamped for Workspace {
    fn digest_of_asked(&self) -> String {
        seed::digest(self)
    }
}

/// The hook that stamps objects of one kind.
pub(crate) struct Stamper<K> {
    sealing: Sealing,
    kind: PhantomData<fn() -> K>,
}

impl<K: Stamped> Stamper<K> {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            sealing: Sealing::new(keys),
            kind: PhantomData,
        }
    }
}

impl<K: Stamped> Mutate for Stamper<K> {
    type Object = K;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<K>,
        object: &mut K,
    ) -> Result<Notes, Rejection> {
        let subject = Subject {
            kind: K::kind(&()).into_owned(),
            spec_digest: object.digest_of_asked(),
            judgement: None,
        };
        self.sealing.stamp(cx, review, subject, object.meta_mut())?;
        Ok(Notes::none())
    }
}
