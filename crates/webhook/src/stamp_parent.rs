//! The hook that stamps the parents of composites, if the composite adopts selected objects or its
//! children hand out rights, with their authors: the creator and each later author, sealed. The
//! operator creates such children, and adopts objects, only if all authors have the rights to do so
//! themselves.

use kube::core::DynamicObject;
use oz_admission::{Cx, Mutate, Notes, Operation, Rejection, Review};
use oz_api::{Requester, labels};
use oz_composites::rights::{self, MOST_AUTHORS};
use oz_core::access::seal::Keys;

use crate::stamp::{Sealing, Subject, requester};

/// The hook that stamps parents of any kind.
pub(crate) struct ParentStamper {
    keys: Keys,
    sealing: Sealing,
}

impl ParentStamper {
    pub(crate) fn new(keys: Keys) -> Self {
        let sealing = Sealing::new(keys.clone());
        Self { keys, sealing }
    }

    /// Returns the authors of an object after a change by this user; empty if they are unknown.
    fn authors(&self, old: &DynamicObject, user: Requester) -> Vec<Requester> {
        let Ok(mut authors) = rights::authors(&self.keys, old) else {
            return Vec::new();
        };
        let is_same = |known: &Requester| known.user == user.user && known.uid == user.uid;
        // Groups change: those of the last change count.
        match authors.iter().position(is_same) {
            Some(at) => authors[at] = user,
            None if authors.len() < MOST_AUTHORS => authors.push(user),
            None => authors.clear(),
        }
        authors
    }
}

impl Mutate for ParentStamper {
    type Object = DynamicObject;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<DynamicObject>,
        object: &mut DynamicObject,
    ) -> Result<Notes, Rejection> {
        let digest = rights::digest(object);
        // An unproven caller can name any user.
        if !cx.caller.is_proven() {
            return Ok(without_stamp(object));
        }
        let authors = match (review.operation, &review.old) {
            (Operation::Update, Some(old)) if rights::digest(old) == digest => {
                keep(old, object);
                return Ok(Notes::none());
            }
            (Operation::Update, Some(old)) => self.authors(old, requester(&review.user)),
            _ => vec![requester(&review.user)],
        };
        if authors.is_empty() {
            return Ok(without_stamp(object));
        }
        let subject = Subject {
            kind: rights::stamped_kind(object),
            spec_digest: digest,
            judgement: None,
        };
        let metadata = &mut object.metadata;
        self.sealing.seal(cx, review, subject, authors, metadata)?;
        Ok(Notes::none())
    }
}

/// Removes the stamp.
fn without_stamp(object: &mut DynamicObject) -> Notes {
    set(object, labels::REQUESTER, None);
    set(object, labels::REQUESTED_BY, None);
    Notes::none()
}

/// Leaves the stamp as it was.
fn keep(old: &DynamicObject, object: &mut DynamicObject) {
    for name in [labels::REQUESTER, labels::REQUESTED_BY] {
        let annotations = old.metadata.annotations.as_ref();
        let before = annotations.and_then(|annotations| annotations.get(name).cloned());
        set(object, name, before);
    }
}

fn set(object: &mut DynamicObject, name: &str, value: Option<String>) {
    let annotations = object.metadata.annotations.get_or_insert_default();
    match value {
        Some(value) => annotations.insert(name.to_owned(), value),
        None => annotations.remove(name),
    };
}
