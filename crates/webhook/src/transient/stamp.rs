//! The stamp hook: writes the requester into every new transient binding, sealed, over any value
//! from the user, with the judgement of the access policies, and the finalizer without which an
//! orphaning deletion would leave the binding.

use std::marker::PhantomData;

use oz_admission::{Cx, Mutate, Notes, Rejection, Review};
use oz_core::access::seal::Keys;
use oz_core::transient::{FINALIZER, Kind};

use crate::policy::Judges;
use crate::stamp::{Sealing, Subject, identified};

/// The hook that stamps transient bindings of one kind.
pub(crate) struct BindingStamper<K> {
    sealing: Sealing,
    judges: Judges,
    kind: PhantomData<fn() -> K>,
}

impl<K> BindingStamper<K> {
    pub(crate) fn new(keys: Keys, judges: Judges) -> Self {
        Self {
            sealing: Sealing::new(keys),
            judges,
            kind: PhantomData,
        }
    }
}

impl<K: Kind> Mutate for BindingStamper<K> {
    type Object = K;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<K>,
        object: &mut K,
    ) -> Result<Notes, Rejection> {
        let person = identified(review)?;
        let (namespace, binding) = (review.namespace.as_deref(), object.view());
        let extra = self.judges.extra(&review.user)?;
        let asking = (&person, &extra, namespace);
        let judged = self
            .judges
            .judge_binding(cx, &review.user, asking, &binding);
        let subject = Subject {
            judgement: judged.await?,
            kind: K::kind(&()).into_owned(),
            spec_digest: binding.spec_digest,
            extra,
        };
        self.sealing.stamp(cx, review, subject, object.meta_mut())?;
        let finalizers = object.meta_mut().finalizers.get_or_insert_default();
        if !finalizers.iter().any(|known| known == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        Ok(Notes::none())
    }
}
