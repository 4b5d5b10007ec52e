//! Approvals and denials of transient bindings: only the access policies of the cluster define the
//! approval rules.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Api;
use kube::core::{ApiResource, DynamicObject};
use oz_admission::Rejection;
use oz_core::access::approval::admission::{self, Found};
use oz_core::access::policy::{self, Judgement};
use oz_core::transient::{Kind, StoredBinding};

use super::approvable::{Approvable, Judged, Question, answers, stricter, unproven};
use crate::permission::within_permission_timeout;
use crate::policy::Judges;
use crate::refusal::{denied, unidentified};
use crate::stamp::requester;

/// The transient bindings of one kind.
pub(crate) struct Bindings<K> {
    judges: Judges,
    /// oz's own namespace, which contains the approvals and denials of cluster-scoped objects.
    namespace: Arc<str>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Bindings<K> {
    pub(crate) fn new(judges: &Judges, namespace: &Arc<str>) -> Self {
        Self {
            judges: judges.clone(),
            namespace: namespace.clone(),
            kind: PhantomData,
        }
    }

    /// Returns the binding with the name from the API server: a watch may lag behind.
    async fn find(&self, question: Question<'_>) -> Result<Option<K>, Rejection> {
        let Question {
            cx, review, object, ..
        } = question;
        let (resource, client) = (ApiResource::erase::<K>(&()), cx.client.clone());
        let bindings: Api<DynamicObject> = match (K::CLUSTER, review.namespace.as_deref()) {
            (false, Some(namespace)) => Api::namespaced_with(client, namespace, &resource),
            _ => Api::all_with(client, &resource),
        };
        let name = &object.spec.access_request_ref.name;
        let found = within_permission_timeout(&review.user, bindings.get_opt(name)).await?;
        let parsed = found.map(DynamicObject::try_parse).transpose();
        parsed.map_err(|error| {
            let message = format!("{} {name} cannot be read: {error}", K::title());
            Rejection::new(500, "Unreadable", message)
        })
    }

    async fn allowed(&self, question: Question<'_>) -> Result<Judged, Rejection> {
        let Question {
            keys,
            cx,
            review,
            object,
        } = question;
        let Some(found) = self.find(question).await? else {
            return Err(question.missing(K::title()));
        };
        let view = found.stored().map_err(unidentified)?;
        let candidate = view.candidate(&self.namespace);
        let judgement = view.stamp(keys).ok().and_then(|stamp| stamp.judgement);
        let config = policy::rules(judgement.as_ref());
        let answers = answers(question).await?;
        let seen = Found {
            template: Some((view.spec_digest.clone(), config)),
            request: candidate,
            answers: &answers,
        };
        let approver = requester(&review.user);
        let rules = admission::may(keys, &approver, object, &seen, cx.now).map_err(denied)?;
        if object.spec.approval {
            self.still(question, &view, judgement.as_ref()).await?;
        }
        Ok(Judged {
            rules,
            template: String::new(),
        })
    }

    /// Checks the binding against the current access policies: if they are stricter than the sealed
    /// judgement, the approver has not seen them.
    async fn still(
        &self,
        question: Question<'_>,
        binding: &StoredBinding<'_>,
        sealed: Option<&Judgement>,
    ) -> Result<(), Rejection> {
        let Question {
            keys, cx, review, ..
        } = question;
        // The approver's own attributes say nothing about the requester.
        let stamp = binding.stamp(keys).map_err(|error| unproven(&error))?;
        let asking = (&stamp.requester, &stamp.extra, binding.namespace());
        let new = self.judges.judge_binding(cx, &review.user, asking, binding);
        let new = new.await?;
        match policy::stricter_ask(sealed, new.as_ref(), binding.ask(), &[]) {
            Some(why) => Err(stricter(&binding.candidate(&self.namespace), &why)),
            None => Ok(()),
        }
    }

    async fn withdrawn(&self, question: Question<'_>) -> Result<(), Rejection> {
        let found = self.find(question).await?;
        let view = found.as_ref().map(Kind::stored).transpose();
        let view = view.map_err(unidentified)?;
        let candidate = view.as_ref().map(|view| view.candidate(&self.namespace));
        question.withdrawn(candidate.as_ref())
    }
}

impl<K: Kind> Approvable for Bindings<K> {
    fn kind(&self) -> &'static str {
        K::title()
    }

    fn is_of_the_cluster(&self) -> bool {
        K::CLUSTER
    }

    fn judge<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Judged, Rejection>> {
        self.allowed(question).boxed()
    }

    fn withdraw<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<(), Rejection>> {
        self.withdrawn(question).boxed()
    }
}
