//! The stamp hook: writes on every new request who asks, sealed, over whatever the user put there.
//! Everything else in oz that needs to know who asked reads it from this stamp.

use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use oz_admission::{Cx, Mutate, Notes, Operation, Rejection, Review, UserInfo};
use oz_api::{Requester, encode, labels};
use oz_core::access::ending;
use oz_core::access::policy::Judgement;
use oz_core::access::seal::Keys;
use oz_core::access::stamp::{Stamp, StampError};
use oz_core::canary::UsedWords;
use oz_core::kinds::{AccessRequest, Kind as _};
use rustls::crypto::SecureRandom;

use crate::policy::{Asking, Judges};
use crate::watched::Watched;

/// 128 bits: no two stamps are the same.
const NONCE_BYTES: usize = 16;

/// Makes stamps.
pub(crate) struct Sealing {
    keys: Keys,
    random: &'static dyn SecureRandom,
}

/// What a stamp says of an object besides its name.
pub(crate) struct Subject {
    pub(crate) kind: String,
    pub(crate) spec_digest: String,
    /// What policies came to, if any was asked.
    pub(crate) judgement: Option<Judgement>,
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

    /// Writes on the metadata of a new object who creates it.
    pub(crate) fn stamp<K>(
        &self,
        cx: &Cx,
        review: &Review<K>,
        subject: Subject,
        metadata: &mut ObjectMeta,
    ) -> Result<(), Rejection> {
        self.seal(cx, review, subject, vec![identified(review)?], metadata)
    }

    /// Writes on metadata who had a hand in what is called so: `authors`, of whom there is one at least, the
    /// creator first.
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
        let name = metadata.name.clone().unwrap_or_default();
        let generate_name = match name.as_str() {
            "" => metadata.generate_name.clone().unwrap_or_default(),
            _ => String::new(),
        };
        // Nothing that is created has one: a stamp for a UID is good for as long as the object, so nobody chooses it.
        let object_uid = match review.operation {
            Operation::Create => None,
            _ => metadata.uid.clone(),
        };
        let stamp = Stamp {
            requester: requester.clone(),
            also,
            object_uid: object_uid.unwrap_or_default(),
            kind: subject.kind,
            namespace: review.namespace.clone().unwrap_or_default(),
            name,
            generate_name,
            spec_digest: subject.spec_digest,
            at: cx.now,
            nonce: self.nonce()?,
            judgement: subject.judgement,
        };
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

/// What is stored must be what was stamped: another webhook may have changed it in between, or ours may not have
/// been called. `again` says what to do about it.
///
/// # Errors
/// That the stamp is not believed, or names somebody else.
pub(crate) fn is_who_asks(
    stamped: Result<Requester, StampError>,
    user: &UserInfo,
    again: &str,
) -> Result<(), Rejection> {
    let stamped =
        stamped.map_err(|error| Rejection::forbidden(error.reason(), error.to_string()))?;
    if stamped == requester(user) {
        return Ok(());
    }
    Err(Rejection::forbidden(
        "StampOfAnotherRequest",
        format!(
            "the stamp names {}, not {}; {again} again",
            stamped.user, user.username
        ),
    ))
}

/// Who asks, if the API server says so.
pub(crate) fn identified<K>(review: &Review<K>) -> Result<Requester, Rejection> {
    if review.user.username.is_empty() {
        return Err(Rejection::forbidden(
            "NoIdentity",
            "the API server does not say who asks, so access cannot be given to anybody; \
             log in and create the request again",
        ));
    }
    Ok(requester(&review.user))
}

/// Whether it is the operator, which tries whether requests are stamped and asks for nothing else.
pub(crate) fn is_canary<K>(review: &Review<K>, operator: &str) -> bool {
    review.dry_run && review.user.username == operator
}

/// Stamps requests of one kind.
pub(crate) struct Stamper<R: AccessRequest> {
    pub(crate) sealing: Sealing,
    /// The words of the canary that were used, and the keys that open them.
    pub(crate) words: (Keys, Arc<UsedWords>),
    pub(crate) templates: Watched<R::Template>,
    pub(crate) judges: Judges,
    pub(crate) operator: Arc<str>,
    pub(crate) kind: PhantomData<fn() -> R>,
}

impl<R: AccessRequest> Stamper<R> {
    /// Whether the request carries a word of the operator's canary, which the API server alone passes on.
    fn carries_a_word(&self, cx: &Cx, object: &R) -> bool {
        let (keys, used) = &self.words;
        let annotations = object.meta().annotations.as_ref();
        let word = annotations.and_then(|annotations| annotations.get(labels::CANARY));
        word.is_some_and(|word| used.is_new(keys, word, cx.now))
    }

    /// Ties the request to its template, so that deleting the template ends the grant, and to
    /// nothing else: another owner that lives would keep the request from going with it.
    fn adopt(object: &mut R, template: Option<&R::Template>) {
        object.meta_mut().owner_references = None;
        let owner = template.and_then(|template| {
            ending::adoption(object.meta(), R::Template::title(), template.meta())
        });
        object.meta_mut().owner_references = owner.map(|owner| vec![owner]);
    }

    /// What the policies over all templates come to. The canary asks for nothing but a stamp.
    async fn judgement(
        &self,
        cx: &Cx,
        review: &Review<R>,
        object: &R,
        template: Option<&R::Template>,
    ) -> Result<Option<Judgement>, Rejection> {
        if is_canary(review, &self.operator) {
            return Ok(None);
        }
        let asking = Asking {
            requester: &requester(&review.user),
            request: object,
            namespace: review.namespace.as_deref().unwrap_or_default(),
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
        let judgement = self.judgement(cx, review, object, template).await?;
        let request = object.view();
        let subject = Subject {
            kind: request.kind.to_owned(),
            spec_digest: request.spec.digest(),
            judgement,
        };
        self.sealing.stamp(cx, review, subject, object.meta_mut())?;
        Ok(Notes::none())
    }
}

/// The user as oz knows them.
pub(crate) fn requester(user: &UserInfo) -> Requester {
    Requester {
        user: user.username.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
    }
}
