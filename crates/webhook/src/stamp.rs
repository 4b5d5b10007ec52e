//! The stamp hook: writes the requester into every new request, sealed, over any value from the
//! user. All other parts of oz read the requester from this stamp.

use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use oz_admission::{Cx, Mutate, Notes, Operation, Rejection, Review, UserInfo};
use oz_api::{Name, Requester, encode, labels};
use oz_core::access::ending;
use oz_core::access::extra::Extra;
use oz_core::access::policy::Judgement;
use oz_core::access::seal::Keys;
use oz_core::access::stamp::{Stamp, StampError, is_of_creator};
use oz_core::canary::UsedWords;
use oz_core::kinds::{AccessRequest, Kind as _};
use rustls::crypto::SecureRandom;

use crate::policy::{Asking, Judges};
use crate::refusal::{denied, namespace};
use crate::watched::Watched;

/// The size of a nonce, 128 bits: no two stamps are the same.
const NONCE_BYTES: usize = 16;

/// The signer of stamps.
pub(crate) struct Sealing {
    keys: Keys,
    random: &'static dyn SecureRandom,
}

/// The contents of a stamp without the name of the object.
pub(crate) struct Subject {
    pub(crate) kind: String,
    pub(crate) spec_digest: String,
    /// The result of the access policies, if any was evaluated.
    pub(crate) judgement: Option<Judgement>,
    /// The extra attributes of the user; empty for objects that no access policy judges.
    pub(crate) extra: Extra,
}

impl Sealing {
    pub(crate) fn new(keys: Keys) -> Self {
        let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
        Self { keys, random }
    }

    fn nonce(&self) -> Result<String, Rejection> {
        let mut bytes = [0; NONCE_BYTES];
        self.random.fill(&mut bytes).map_err(|_| {
            Rejection::new(
                500,
                "NoRandomness",
                "failed to get random bytes for the stamp; try again",
            )
        })?;
        Ok(encode::hex(&bytes))
    }

    /// Stamps the metadata of a new object with its creator.
    pub(crate) fn stamp<K>(
        &self,
        cx: &Cx,
        review: &Review<K>,
        subject: Subject,
        metadata: &mut ObjectMeta,
    ) -> Result<(), Rejection> {
        self.seal(cx, review, subject, vec![identified(review)?], metadata)
    }

    /// Stamps metadata with the authors of an object: `authors`, at least one, the creator first.
    pub(crate) fn seal<K>(
        &self,
        cx: &Cx,
        review: &Review<K>,
        subject: Subject,
        mut authors: Vec<Requester>,
        metadata: &mut ObjectMeta,
    ) -> Result<(), Rejection> {
        let also = authors.split_off(1);
        let requester = authors.remove(0);
        let mut stamp = Stamp {
            requester: requester.clone(),
            also,
            extra: subject.extra,
            kind: subject.kind,
            spec_digest: subject.spec_digest,
            at: cx.now,
            nonce: self.nonce()?,
            judgement: subject.judgement,
            ..Stamp::default()
        };
        // An object has no UID at its creation. A stamp for a UID is valid as long as the object,
        // so a user must not choose the UID.
        if review.operation != Operation::Create
            && let Some(uid) = &metadata.uid
        {
            stamp.object_uid.clone_from(uid);
        }
        if let Some(namespace) = &review.namespace {
            stamp.namespace.clone_from(namespace);
        }
        match (Name::from_metadata(metadata), &metadata.generate_name) {
            (Ok(name), _) => name.as_str().clone_into(&mut stamp.name),
            (Err(_), Some(prefix)) => stamp.generate_name.clone_from(prefix),
            (Err(_), None) => {}
        }
        let sealed = stamp.seal(&self.keys).map_err(|error| {
            Rejection::new(
                500,
                "StampFailed",
                format!("failed to stamp the request: {error}"),
            )
        })?;
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(labels::REQUESTED_BY.to_owned(), requester.user);
        annotations.insert(labels::REQUESTER.to_owned(), sealed);
        Ok(())
    }
}

/// Checks that the stored object is the stamped object: another webhook may have changed it in
/// between, or this webhook may not have been called. `again` is the next step for the user.
///
/// # Errors
/// The stamp is not valid, or names another user.
pub(crate) fn is_who_asks(
    stamped: &Result<Requester, StampError>,
    user: &UserInfo,
    again: &str,
) -> Result<(), Rejection> {
    is_of_creator(stamped.as_ref(), &requester(user), again).map_err(denied)
}

/// Returns the user of the review, if the API server identifies one.
pub(crate) fn identified<K>(review: &Review<K>) -> Result<Requester, Rejection> {
    if review.user.username.is_empty() {
        return Err(Rejection::forbidden(
            "NoIdentity",
            "the API server sent no user, so no access can be granted; log in and create the \
             request again",
        ));
    }
    Ok(requester(&review.user))
}

/// Checks whether the request is the operator's canary, which only tests whether requests are
/// stamped.
pub(crate) fn is_canary<K>(review: &Review<K>, operator: &str) -> bool {
    review.dry_run && review.user.username == operator
}

/// The hook that stamps requests of one kind.
pub(crate) struct Stamper<R: AccessRequest> {
    pub(crate) sealing: Sealing,
    /// The used words of the canary, and the keys that open them.
    pub(crate) words: (Keys, Arc<UsedWords>),
    pub(crate) templates: Watched<R::Template>,
    pub(crate) judges: Judges,
    pub(crate) operator: Arc<str>,
    pub(crate) kind: PhantomData<fn() -> R>,
}

impl<R: AccessRequest> Stamper<R> {
    /// Checks whether the request carries a word of the operator's canary, which only the API
    /// server passes on.
    fn carries_a_word(&self, cx: &Cx, object: &R) -> bool {
        let (keys, used) = &self.words;
        let annotations = object.meta().annotations.as_ref();
        let word = annotations.and_then(|annotations| annotations.get(labels::CANARY));
        word.is_some_and(|word| used.is_new(keys, word, cx.now))
    }

    /// Sets the template as the only owner of the request, so that deleting the template ends the
    /// grant: with another existing owner, the request would not be deleted with it.
    fn adopt(object: &mut R, template: Option<&R::Template>) {
        object.meta_mut().owner_references = None;
        let owner = template.and_then(|template| {
            ending::adoption(object.meta(), R::Template::title(), template.meta())
        });
        object.meta_mut().owner_references = owner.map(|owner| vec![owner]);
    }

    /// Returns the judgement of the access policies. The canary requests only a stamp.
    async fn judgement(
        &self,
        cx: &Cx,
        review: &Review<R>,
        object: &R,
        (template, extra): (Option<&R::Template>, &Extra),
    ) -> Result<Option<Judgement>, Rejection> {
        if is_canary(review, &self.operator) {
            return Ok(None);
        }
        let asking = Asking {
            requester: &requester(&review.user),
            extra,
            request: object,
            namespace: namespace(review)?,
            template,
        };
        self.judges.judge(cx, &review.user, asking).await
    }
}

impl<R: AccessRequest> Mutate for Stamper<R> {
    type Object = R;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<R>,
        object: &mut R,
    ) -> Result<Notes, Rejection> {
        identified(review)?;
        let namespace = review.namespace.as_deref();
        let name = object.view().template.to_owned();
        if is_canary(review, &self.operator) && self.carries_a_word(cx, object) {
            cx.vouch();
        }
        let template = if is_canary(review, &self.operator) {
            self.templates.find(namespace, &name).await?
        } else {
            self.templates.find_new(namespace, &name).await?
        };
        let template = template.as_deref();
        Self::adopt(object, template);
        let extra = self.judges.extra(&review.user)?;
        let judged = self.judgement(cx, review, object, (template, &extra));
        let judgement = judged.await?;
        let request = object.view();
        let subject = Subject {
            kind: request.kind.to_owned(),
            spec_digest: request.spec.digest(),
            judgement,
            extra,
        };
        self.sealing.stamp(cx, review, subject, object.meta_mut())?;
        Ok(Notes::none())
    }
}

/// Returns the user in oz's form.
pub(crate) fn requester(user: &UserInfo) -> Requester {
    Requester {
        user: user.username.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
    }
}
