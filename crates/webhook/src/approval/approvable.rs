//! What can be approved, of each kind: whether an answer to it may be given, and taken back. Here are access
//! requests; transient bindings are next door.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::ListParams;
use kube::{Api, Resource as _};
use oz_admission::{Cx, Rejection, Review};
use oz_api::{AccessRequestApproval as Answer, labels};
use oz_core::access::approval::Candidate;
use oz_core::access::approval::admission::{self, Found};
use oz_core::access::kind::MAX_ANSWERS;
use oz_core::access::policy::{self, Judgement};
use oz_core::access::seal::Keys;
use oz_core::access::stamp::StampError;
use oz_core::kinds::{AccessRequest, Kind as _};

use crate::permission::within_permission_timeout;
use crate::policy::{Asking, Judges};
use crate::refusal::{denied, forbidden};
use crate::stamp::requester;
use crate::watched::Watched;

/// What is to be found out about an answer.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(super) keys: &'a Keys,
    pub(super) cx: &'a Cx,
    pub(super) review: &'a Review<Answer>,
    pub(super) object: &'a Answer,
}

impl Question<'_> {
    /// There is nothing of this kind that has the name.
    pub(super) fn missing(self, title: &str) -> Rejection {
        let name = &self.object.spec.access_request_ref.name;
        let message = format!("there is no {title} {name} here; it may be over");
        forbidden("RequestMissing", "spec.accessRequestRef.name", &message)
    }

    /// Whether whoever takes an answer back gave it, and what it is about still waits. `found` has the name.
    pub(super) fn withdrawn(self, found: Option<&Candidate<'_>>) -> Result<(), Rejection> {
        let annotations = self.object.metadata.annotations.as_ref();
        let author = annotations.and_then(|all| all.get(labels::REQUESTED_BY));
        let author = author.map(String::as_str).unwrap_or_default();
        // Another of its name is none that this is about.
        let uid = &self.object.spec.access_request_ref.uid;
        let found = found.filter(|found| found.uid() == uid);
        let user = &self.review.user.username;
        admission::may_withdraw(author, user, found).map_err(denied)
    }
}

/// An answer that is let in.
pub(crate) struct Judged {
    /// The rules that it may count for.
    pub(super) rules: Vec<String>,
    /// Name of the template, if there is one.
    pub(super) template: String,
}

/// A kind that can be approved.
pub(crate) trait Approvable: Send + Sync {
    fn kind(&self) -> &'static str;
    /// Whether it belongs to the whole cluster, and answers to it to oz's namespace.
    fn is_of_the_cluster(&self) -> bool;
    /// Whether an answer may be given.
    fn judge<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Judged, Rejection>>;
    /// Whether one may be taken back.
    fn withdraw<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<(), Rejection>>;
}

/// The requests of one kind, and the templates that they name.
pub(crate) struct Requests<R: AccessRequest> {
    pub(crate) templates: Watched<R::Template>,
    pub(crate) judges: Judges,
}

impl<R: AccessRequest> Requests<R> {
    /// The request that has the name, by the API server: a watch may not have shown it yet.
    async fn find(&self, question: Question<'_>) -> Result<Option<R>, Rejection> {
        let Question {
            cx, review, object, ..
        } = question;
        let namespace = review.namespace.as_deref().unwrap_or_default();
        let requests = Api::<R>::namespaced(cx.client.clone(), namespace);
        let name = &object.spec.access_request_ref.name;
        within_permission_timeout(&review.user, requests.get_opt(name)).await
    }

    async fn allowed(&self, question: Question<'_>) -> Result<Judged, Rejection> {
        let Question {
            keys,
            cx,
            review,
            object,
        } = question;
        let (request, answers) = futures::try_join!(self.find(question), answers(question))?;
        let Some(request) = request else {
            return Err(question.missing(R::title()));
        };
        let view = request.view();
        let namespace = review.namespace.as_deref();
        let template = self.templates.find(namespace, view.template).await?;
        // One that is on its way out lets nobody in.
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

    /// An approval is for what policies say now: if that is stricter than what was sealed, nobody saw it.
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
        let view = request.view();
        let asking = Asking {
            requester: &view.requester(keys).map_err(|error| unproven(&error))?,
            request,
            namespace: review.namespace.as_deref().unwrap_or_default(),
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
        let request = self.find(question).await?;
        let candidate = request.as_ref().map(|request| request.view().candidate());
        question.withdrawn(candidate.as_ref())
    }
}

/// Policies are stricter by now than what was sealed, in this.
pub(super) fn stricter(candidate: &Candidate<'_>, why: &str) -> Rejection {
    Rejection::forbidden(
        "PoliciesStricter",
        format!(
            "the AccessPolicies of the cluster are stricter now than when {} {} was created: {why}; \
             have it asked for again",
            candidate.kind,
            candidate.name()
        ),
    )
}

/// The answers that something has, by the API server.
pub(super) async fn answers(question: Question<'_>) -> Result<Vec<Answer>, Rejection> {
    let Question {
        cx, review, object, ..
    } = question;
    let namespace = review.namespace.as_deref().unwrap_or_default();
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

/// Who asked is not believed.
pub(super) fn unproven(error: &StampError) -> Rejection {
    Rejection::forbidden(error.reason(), error.to_string())
}
