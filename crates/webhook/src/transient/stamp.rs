//! The stamp hook: writes on every new transient binding who asks, sealed, over whatever the user
//! put there, and the finalizer without which an orphaning deletion would leave the binding.

use std::marker::PhantomData;

use oz_admission::{Cx, Mutate, Notes, Rejection, Review};
use oz_core::access::seal::Keys;
use oz_core::transient::{FINALIZER, Kind};

use crate::stamp::{Sealing, Subject};

/// Stamps transient bindings of one kind.
pub(crate) struct BindingStamper<K> {
    sealing: Sealing,
    kind: PhantomData<fn() -> K>,
}

impl<K> BindingStamper<K> {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            sealing: Sealing::new(keys),
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
        let subject = Subject {
            kind: K::kind(&()).into_owned(),
            spec_digest: object.spec_digest(),
            judgement: None,
        };
        self.sealing.stamp(cx, review, subject, object.meta_mut())?;
        let finalizers = object.meta_mut().finalizers.get_or_insert_default();
        if !finalizers.iter().any(|known| known == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        Ok(Notes::none())
    }
}
