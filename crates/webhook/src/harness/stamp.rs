//! The stamp hook: writes on every new run who submits it, sealed, over whatever the user put there.

use kube::Resource as _;
use oz_admission::{Cx, Mutate, Notes, Rejection, Review};
use oz_core::access::seal::Keys;
use oz_core::api::harness::HarnessRun;
use oz_core::harness::run::spec_digest;

use crate::stamp::{Sealing, Subject};

/// Stamps runs.
pub(crate) struct RunStamper(Sealing);

impl RunStamper {
    pub(crate) fn new(keys: Keys) -> Self {
        Self(Sealing::new(keys))
    }
}

impl Mutate for RunStamper {
    type Object = HarnessRun;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<HarnessRun>,
        object: &mut HarnessRun,
    ) -> Result<Notes, Rejection> {
        let subject = Subject {
            kind: HarnessRun::kind(&()).into_owned(),
            spec_digest: spec_digest(object),
        };
        self.0.stamp(cx, review, subject, object.meta_mut())?;
        Ok(Notes::none())
    }
}
