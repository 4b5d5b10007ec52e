//! The hook that stamps objects that several users may change with their authors: the creator and
//! each later author of the content, sealed. Parents of composites are stamped if the composite
//! adopts selected objects or its children hand out rights: the operator creates such children, and
//! adopts objects, only if all authors have the rights to do so themselves. Broker policies are
//! stamped since brokers lend credentials only by a stamped spec.

use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use oz_admission::{Cx, Mutate, Notes, Operation, Rejection, Review};
use oz_api::{Requester, labels};
use oz_composites::rights::{self, MOST_AUTHORS};
use oz_core::access::extra::Extra;
use oz_core::access::seal::Keys;
use oz_core::access::stamp::StampError;

use crate::stamp::{Sealing, Subject, requester};

/// A kind with objects that are stamped with the authors of their content.
pub(crate) trait Authored: oz_admission::Reviewed {
    /// Returns the kind in the stamp.
    fn stamped_kind(&self) -> String;

    /// Returns the digest of the content that the authors write.
    fn digest(&self) -> String;

    fn metadata(&self) -> &ObjectMeta;

    fn metadata_mut(&mut self) -> &mut ObjectMeta;

    /// Returns the authors that the stamp of the object names.
    ///
    /// # Errors
    /// The reason why the stamp is not valid.
    fn authors(&self, keys: &Keys) -> Result<Vec<Requester>, StampError>;

    /// Returns the authors after a change of the content by this user; empty if there are more than
    /// the stamp may name.
    fn with_author(authors: Vec<Requester>, user: Requester) -> Vec<Requester>;

    /// Returns the notes for the user if the object gets no stamp.
    fn unstamped(&self, _is_proven: bool) -> Notes {
        Notes::none()
    }
}

/// The hook that stamps objects of one kind with their authors.
pub(crate) struct AuthorStamper<K> {
    keys: Keys,
    sealing: Sealing,
    kind: PhantomData<fn() -> K>,
}

impl<K: Authored> AuthorStamper<K> {
    pub(crate) fn new(keys: Keys) -> Self {
        let sealing = Sealing::new(keys.clone());
        Self {
            keys,
            sealing,
            kind: PhantomData,
        }
    }

    /// Returns the authors of an object after a change by this user; empty if they are unknown.
    fn authors(&self, old: &K, user: Requester) -> Vec<Requester> {
        // An object without a valid stamp may have any content from any user, and a later author
        // changes a part of it.
        let authors = old.authors(&self.keys);
        authors.map_or_else(|_| Vec::new(), |authors| K::with_author(authors, user))
    }
}

impl<K: Authored> Mutate for AuthorStamper<K> {
    type Object = K;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<K>,
        object: &mut K,
    ) -> Result<Notes, Rejection> {
        let digest = object.digest();
        let user = requester(&review.user);
        let is_proven = cx.caller.is_proven();
        let authors = match (review.operation, &review.old) {
            (Operation::Update, Some(old)) if old.digest() == digest => {
                keep(old.metadata(), object.metadata_mut());
                return Ok(Notes::none());
            }
            // An unproven caller can name any user.
            _ if !is_proven => Vec::new(),
            (Operation::Update, Some(old)) => self.authors(old, user),
            _ => K::with_author(Vec::new(), user),
        };
        if authors.is_empty() {
            keep(&ObjectMeta::default(), object.metadata_mut());
            return Ok(object.unstamped(is_proven));
        }
        let subject = Subject {
            kind: object.stamped_kind(),
            spec_digest: digest,
            judgement: None,
            extra: Extra::new(),
        };
        let metadata = object.metadata_mut();
        self.sealing.seal(cx, review, subject, authors, metadata)?;
        Ok(Notes::none())
    }
}

/// Leaves the stamp as it was in `old`; without one there, removes the stamp.
fn keep(old: &ObjectMeta, metadata: &mut ObjectMeta) {
    for name in [labels::REQUESTER, labels::REQUESTED_BY] {
        let annotations = old.annotations.as_ref();
        let before = annotations.and_then(|annotations| annotations.get(name).cloned());
        let annotations = metadata.annotations.get_or_insert_default();
        match before {
            Some(value) => annotations.insert(name.to_owned(), value),
            None => annotations.remove(name),
        };
    }
}

/// Parents of composites, of any kind. The rights of each author are checked, so that none may be
/// left out of the stamp.
impl Authored for DynamicObject {
    fn stamped_kind(&self) -> String {
        rights::stamped_kind(self)
    }

    fn digest(&self) -> String {
        rights::digest(self)
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn authors(&self, keys: &Keys) -> Result<Vec<Requester>, StampError> {
        rights::authors(keys, self)
    }

    fn with_author(mut authors: Vec<Requester>, user: Requester) -> Vec<Requester> {
        // Groups change: those of the last change count.
        match authors.iter().position(|known| is_same(known, &user)) {
            Some(index) => authors[index] = user,
            None if authors.len() < MOST_AUTHORS => authors.push(user),
            None => authors.clear(),
        }
        authors
    }
}

/// Checks whether two authors are the same user.
pub(crate) fn is_same(one: &Requester, other: &Requester) -> bool {
    one.user == other.user && one.uid == other.uid
}
