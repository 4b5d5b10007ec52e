//! The hook that checks templates, workspaces and policies: it reports all violations at once, and
//! then checks whether the author has the rights for the actions and reads of oz on the author's
//! behalf.

use std::marker::PhantomData;
use std::sync::Arc;

use oz_admission::{Cx, Notes, Rejection, Review, Validate};
use oz_audit::Sink;
use oz_core::validate::{MetadataBounds, REQUEST_METADATA, TEMPLATE_METADATA};
use oz_trail::Action;

use super::authors::{may_do, may_get};
use super::record;
use super::rules::Checked;
use crate::refusal::{bounded, invalid, namespace, own_namespace, served, status_is_the_operators};
use crate::validate_request::no_owner_added;

/// The namespaces, the user names and the audit sink of this installation.
#[derive(Clone)]
pub(super) struct Installation {
    /// oz's own namespace, in which no runs are allowed.
    pub(super) namespace: Arc<str>,
    /// The namespaces that the operator serves; empty for all.
    pub(super) served: Arc<[String]>,
    pub(super) operator: Arc<str>,
    pub(super) broker: Arc<str>,
    pub(super) records: Arc<dyn Sink>,
}

impl Installation {
    /// Denies an object in a namespace in which oz runs nothing.
    pub(super) fn serves(&self, namespace: Option<&str>) -> Result<(), Rejection> {
        if namespace == Some(&*self.namespace) {
            return Err(own_namespace(&self.namespace));
        }
        served(&self.served, namespace)
    }
}

/// The hook that checks objects of one kind.
pub(super) struct Validator<K> {
    installation: Installation,
    kind: PhantomData<fn() -> K>,
}

impl<K: Checked> Validator<K> {
    pub(super) fn new(installation: Installation) -> Self {
        Self {
            installation,
            kind: PhantomData,
        }
    }

    async fn decide(&self, cx: &Cx, review: &Review<K>, object: &K) -> Result<(), Rejection> {
        if review.old.is_none() {
            self.installation.serves(review.namespace.as_deref())?;
        }
        let violations = object.violations(review.old.as_ref(), cx.now);
        if !violations.is_empty() {
            return Err(invalid(&K::kind(&()), &violations));
        }
        if let Some((right, words)) = object.does() {
            may_do(&cx.client, &review.user, right, &words).await?;
        }
        let named = object.references(review.old.as_ref());
        if named.is_empty() {
            return Ok(());
        }
        may_get(&cx.client, &review.user, namespace(review)?, &named).await
    }
}

impl<K: Checked> Validate for Validator<K> {
    type Object = K;

    async fn validate(&self, cx: &Cx, review: &Review<K>) -> Result<Notes, Rejection> {
        let Some(object) = &review.object else {
            return Ok(Notes::none());
        };
        if review.subresource.as_deref() == Some("status") {
            let next = "change the spec; oz updates the status";
            return status_is_the_operators(review, &self.installation.operator, next);
        }
        // An object that is being deleted is not checked.
        if object.meta().deletion_timestamp.is_some() {
            return Ok(Notes::none());
        }
        let old = review.old.as_ref();
        bounded(object.meta(), old.map(K::meta), bounds::<K>())?;
        // Only workspaces are requested, and users without the right to delete one may update it.
        if let (None, Some(old)) = (K::CHANGED, old) {
            no_owner_added(old.meta(), object.meta())?;
        }
        // A stored object was checked when it was admitted, or is older than the rule.
        let digest = object.digest();
        let before = old.map(K::digest);
        if before.as_ref() == Some(&digest) {
            return Ok(Notes::none());
        }
        let decided = self.decide(cx, review, object).await;
        if let Some(action) = K::CHANGED {
            let mut written = record::about(cx.now, review, action, &digest);
            if action == Action::TemplateChanged {
                written.template.clone_from(&written.request.name);
                written.template_digest = Some(digest.clone());
            } else {
                written = written.detail("after", digest);
            }
            if let Some(before) = before {
                written = written.detail("before", before);
            }
            let rejection = decided.as_ref().err();
            record::decided(cx, &*self.installation.records, written, rejection).await?;
        }
        decided.map(|()| Notes::none())
    }
}

fn bounds<K: Checked>() -> &'static MetadataBounds {
    match K::CHANGED {
        Some(_) => &TEMPLATE_METADATA,
        None => &REQUEST_METADATA,
    }
}
