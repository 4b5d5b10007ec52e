//! The kinds that can be approved, and the checks whether an approval or denial of each may be
//! given and withdrawn. This module contains access requests; `bindings` contains transient
//! bindings.

use std::fmt::Debug;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::{Api, Resource};
use oz_admission::{Cx, Rejection, Review};
use oz_api::{AccessRequestApproval as Answer, labels};
use oz_core::access::approval::Candidate;
use oz_core::access::approval::admission::{self, Found};
use oz_core::access::kind::MAX_ANSWERS;
use oz_core::access::policy::{self, Judgement, Stricter};
use oz_core::access::seal::Keys;
use oz_core::access::stamp::StampError;
use oz_core::kinds::{AccessRequest, Kind as _};
use serde::de::DeserializeOwned;

use crate::permission::within_permission_timeout;
use crate::policy::{Asking, Judges};
use crate::refusal::{denied, forbidden, namespace, unidentified};
use crate::stamp::requester;
use crate::watched::Watched;

/// The context of a check of one approval or denial.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(super) keys: &'a Keys,
    pub(super) cx: &'a Cx,
    pub(super) review: &'a Review<Answer>,
    pub(super) object: &'a Answer,
}

impl Question<'_> {
    /// Returns the denial for a request that does not exist: no object of this kind has the name.
    pub(super) fn missing(self, title: &str) -> Rejection {
        let name = &self.object.spec.access_request_ref.name;
        let message = format!("there is no {title} {name} here; it may have ended");
        forbidden("RequestMissing", "spec.accessRequestRef.name", &message)
    }

    /// Returns the object of a kind of namespaces with the name from the API server: a watch may lag behind.
    pub(super) async fn find<K>(self) -> Result<Option<K>, Rejection>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let Question {
            cx, review, object, ..
        } = self;
        let objects = Api::<K>::namespaced(cx.client.clone(), namespace(review)?);
        let name = &object.spec.access_request_ref.name;
        within_permission_timeout(&review.user, objects.get_opt(name)).await
    }

    /// Checks whether the user who withdraws an approval or denial is its author, and whether its
    /// request is still pending. `found` is the request with the name.
    pub(super) fn withdrawn(self, found: Option<&Candidate<'_>>) -> Result<(), Rejection> {
        let annotations = self.object.metadata.annotations.as_ref();
        let author = annotations.and_then(|all| all.get(labels::REQUESTED_BY));
        let author = author.map(String::as_str).unwrap_or_default();
        // A request with the same name and another UID is another request.
        let uid = &self.object.spec.access_request_ref.uid;
        let found = found.filter(|found| found.identity.uid == uid.as_str());
        let user = &self.review.user.username;
        admission::may_withdraw(author, user, found).map_err(denied)
    }
}

/// An approval or denial that is admitted.
pub(crate) struct Judged {
    /// The approval rules for which it may count.
    pub(super) rules: Vec<String>,
    /// The name of the template, if the request has a template.
    pub(super) template: String,
}

/// A kind that can be approved.
pub(crate) trait Approvable: Send + Sync {
    fn kind(&self) -> &'static str;
    /// Returns whether the kind is cluster-scoped, so that its approvals and denials are in oz's
    /// namespace.
    fn is_of_the_cluster(&self) -> bool;
    /// Checks whether an approval or denial may be given.
    fn judge<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Judged, Rejection>>;
    /// Checks whether an approval or denial may be withdrawn.
    fn withdraw<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<(), Rejection>>;
}

/// The requests of one kind, and their templates.
pub(crate) struct Requests<R: AccessRequest> {
    pub(crate) templates: Watched<R::Template>,
    pub(crate) judges: Judges,
}

impl<R: AccessRequest> Requests<R> {
    async fn allowed(&self, question: Question<'_>) -> Result<Judged, Rejection> {
        let Question {
            keys,
            cx,
            review,
            object,
        } = question;
        let (request, answers) = futures::try_join!(question.find::<R>(), answers(question))?;
        let Some(request) = request else {
            return Err(question.missing(R::title()));
        };
        let view = request.stored().map_err(unidentified)?;
        let namespace = review.namespace.as_deref();
        let template = self.templates.find(namespace, view.template).await?;
        // A template that is being deleted grants no access.
        let template = template.filter(|it| it.meta().deletion_timestamp.is_none());
        let template = template.as_deref();
        let judgement = view.stamp(keys).ok().and_then(|stamp| stamp.judgement);
        let approval = |it| policy::approval(judgement.as_ref(), it);
        let found = Found {
            request: view.candidate(),
            template: template.map(|it| (it.spec_digest(), approval(it))),
            answers: &answers,
        };
        let approver = requester(&review.user);
        let rules = admission::may(keys, &approver, object, &found, cx.now).map_err(denied)?;
        if let Some(template) = template.filter(|_| object.spec.approval) {
            self.still(question, &request, template, judgement.as_ref())
                .await?;
        }
        Ok(Judged {
            rules,
            template: view.template.to_owned(),
        })
    }

    /// Checks the request against the current access policies: if they are stricter than the sealed
    /// judgement, the approver has not seen them.
    async fn still(
        &self,
        question: Question<'_>,
        request: &R,
        template: &R::Template,
        sealed: Option<&Judgement>,
    ) -> Result<(), Rejection> {
        let Question {
            keys, cx, review, ..
        } = question;
        let view = request.stored().map_err(unidentified)?;
        // The approver's own attributes say nothing about the requester.
        let stamp = view.stamp(keys).map_err(|error| unproven(&error))?;
        let asking = Asking {
            requester: &stamp.requester,
            extra: &stamp.extra,
            request,
            namespace: namespace(review)?,
            template: Some(template),
        };
        let new = self.judges.judge(cx, &review.user, asking).await?;
        let ask = view.ask;
        let Some(why) = policy::stricter(sealed, new.as_ref(), ask, template) else {
            return Ok(());
        };
        Err(stricter(&view.candidate(), &why))
    }

    async fn withdrawn(&self, question: Question<'_>) -> Result<(), Rejection> {
        let request = question.find::<R>().await?;
        let request = request.as_ref().map(AccessRequest::stored).transpose();
        let request = request.map_err(unidentified)?;
        let candidate = request.map(|request| request.candidate());
        question.withdrawn(candidate.as_ref())
    }
}

/// Returns the denial because the access policies are stricter now than the sealed judgement, with
/// the difference.
pub(super) fn stricter(candidate: &Candidate<'_>, why: &Stricter) -> Rejection {
    Rejection::forbidden(
        "PoliciesStricter",
        format!(
            "the AccessPolicies of the cluster have become stricter since {} {} was created: \
             {why}; have the requester create it again",
            candidate.kind, candidate.identity.name
        ),
    )
}

/// Returns the approvals and denials of a request from the API server.
pub(super) async fn answers(question: Question<'_>) -> Result<Vec<Answer>, Rejection> {
    let Question {
        cx, review, object, ..
    } = question;
    let namespace = namespace(review)?;
    let about = labels::value(&object.spec.access_request_ref.uid);
    let selection = ListParams::default()
        .labels(&format!("{}={about}", labels::REQUEST_UID))
        .limit(MAX_ANSWERS);
    let all = Api::<Answer>::namespaced(cx.client.clone(), namespace);
    let listed = within_permission_timeout(&review.user, all.list(&selection)).await?;
    Ok(listed.items)
}

impl<R: AccessRequest> Approvable for Requests<R> {
    fn kind(&self) -> &'static str {
        R::title()
    }

    fn is_of_the_cluster(&self) -> bool {
        false
    }

    fn judge<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Judged, Rejection>> {
        self.allowed(question).boxed()
    }

    fn withdraw<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<(), Rejection>> {
        self.withdrawn(question).boxed()
    }
}

/// Returns the denial because the stamp of the requester is not valid.
pub(super) fn unproven(error: &StampError) -> Rejection {
    Rejection::forbidden(error.reason(), error.to_string())
}
