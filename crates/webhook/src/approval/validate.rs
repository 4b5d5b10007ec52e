//! Whether an answer is let in, and whether it is taken back.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::ListParams;
use kube::{Api, Resource as _};
use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_audit::Sink;
use oz_core::access::approval::admission::{self, Found};
use oz_core::access::kind::MAX_ANSWERS;
use oz_core::access::policy::{self, Judgement};
use oz_core::access::seal::Keys;
use oz_core::access::stamp::{self, StampError};
use oz_core::api::AccessRequestApproval as Answer;
use oz_core::audit::{Action, Decision, Record, RequestRef};
use oz_core::kinds::{AccessRequest, Kind as _};
use oz_core::labels;
use oz_core::validate::REQUEST_METADATA;

use crate::permission::within_permission_timeout;
use crate::policy::{Asking, Judges};
use crate::record;
use crate::refusal::{bounded, denied, forbidden, immutable, invalid, own_namespace, served};
use crate::stamp::{is_who_asks, requester};
use crate::validate_request::same_requester;
use crate::watched::Watched;

/// Checks answers.
pub(super) struct ApprovalValidator {
    pub(super) keys: Keys,
    /// oz's own namespace, into which it lets nobody.
    pub(super) namespace: Arc<str>,
    /// The namespaces that the operator serves; none for all.
    pub(super) served: Arc<[String]>,
    pub(super) records: Arc<dyn Sink>,
    /// The kinds of requests that can be approved.
    pub(super) approved: Vec<Box<dyn Approvable>>,
}

impl Validate for ApprovalValidator {
    type Object = Answer;

    async fn validate(&self, cx: &Cx, review: &Review<Answer>) -> Result<Notes, Rejection> {
        match (review.operation, &review.object, &review.old) {
            (Operation::Create, Some(object), _) => self.create(cx, review, object).await,
            (Operation::Update, Some(object), Some(old)) => unchanged(object, old),
            (Operation::Delete, _, Some(old)) => self.withdraw(cx, review, old).await,
            _ => Ok(Notes::none()),
        }
    }
}

impl ApprovalValidator {
    async fn create(
        &self,
        cx: &Cx,
        review: &Review<Answer>,
        object: &Answer,
    ) -> Result<Notes, Rejection> {
        let judged = self.judge(cx, review, object).await;
        if cx.dry_run {
            return judged.map(|_| Notes::none());
        }
        let user = &review.user.username;
        let about = &object.spec.access_request_ref;
        match judged {
            Ok(judged) => {
                let (action, decision, verb) = match object.spec.approval {
                    true => (Action::ApprovalGiven, Decision::Allow, "approved"),
                    false => (Action::ApprovalDenied, Decision::Deny, "denied"),
                };
                let message = format!("{user} {verb} {} {}", about.kind, about.name);
                let uid = object.metadata.uid.as_deref().unwrap_or(&review.uid);
                let record = Record::about(cx.now, action, decision, uid, "Answered", message);
                let mut record = with_review(record, review, object);
                record.template = judged.template;
                let record = record.detail("rules", judged.rules.join(", "));
                let record = record.detail("digest", object.spec.digest.clone());
                record::write(&*self.records, &record).await?;
                Ok(Notes::none())
            }
            Err(rejection) => {
                let (action, reason) = (Action::ApprovalRefused, &rejection.reason);
                let message = rejection.message.clone();
                let deny = Decision::Deny;
                let record = Record::about(cx.now, action, deny, &review.uid, reason, message);
                let record = with_review(record, review, object);
                record::write_refusal(&*self.records, &record).await;
                Err(rejection)
            }
        }
    }

    async fn judge(
        &self,
        cx: &Cx,
        review: &Review<Answer>,
        object: &Answer,
    ) -> Result<Judged, Rejection> {
        let namespace = review.namespace.as_deref();
        if namespace == Some(&*self.namespace) {
            return Err(own_namespace(&self.namespace));
        }
        served(&self.served, namespace)?;
        bounded(&object.metadata, None, &REQUEST_METADATA)?;
        let violations = object.violations(cx.now);
        if !violations.is_empty() {
            return Err(invalid(Answer::title(), &violations));
        }
        let (kind, digest) = (Answer::title(), object.spec_digest());
        let stamped = stamp::verify(&self.keys, kind, &object.metadata, &digest);
        is_who_asks(stamped, &review.user, "create the answer")?;
        let question = Question {
            keys: &self.keys,
            cx,
            review,
            object,
        };
        self.approvable(object)?.judge(question).await
    }

    fn approvable(&self, object: &Answer) -> Result<&dyn Approvable, Rejection> {
        let kind = object.spec.access_request_ref.kind;
        let found = self
            .approved
            .iter()
            .find(|one| one.kind() == <&str>::from(kind));
        found.map(AsRef::as_ref).ok_or_else(|| {
            let message = format!("a {kind} is not approved by anybody; name another kind");
            forbidden("NoApprovalNeeded", "spec.accessRequestRef.kind", &message)
        })
    }

    /// Whoever gave an answer takes it back, while its request waits.
    async fn withdraw(
        &self,
        cx: &Cx,
        review: &Review<Answer>,
        old: &Answer,
    ) -> Result<Notes, Rejection> {
        let question = Question {
            keys: &self.keys,
            cx,
            review,
            object: old,
        };
        let withdrawn = self.approvable(old)?.withdraw(question).await;
        if cx.dry_run {
            return withdrawn.map(|()| Notes::none());
        }
        let user = &review.user.username;
        let (decision, reason, message) = match &withdrawn {
            Ok(()) => {
                let about = &old.spec.access_request_ref;
                let message = format!(
                    "{user} withdrew their answer to {} {}",
                    about.kind, about.name
                );
                (Decision::End, "Withdrawn".to_owned(), message)
            }
            Err(refusal) => (
                Decision::Deny,
                refusal.reason.to_string(),
                refusal.message.clone(),
            ),
        };
        // One that is refused may be tried again.
        let subject = match (&withdrawn, &old.metadata.uid) {
            (Ok(()), Some(uid)) => uid,
            _ => &review.uid,
        };
        let action = Action::ApprovalWithdrawn;
        let record = Record::about(cx.now, action, decision, subject, &reason, message);
        let record = with_review(record, review, old);
        match withdrawn {
            Ok(()) => {
                record::write(&*self.records, &record).await?;
                Ok(Notes::none())
            }
            Err(refusal) => {
                record::write_refusal(&*self.records, &record).await;
                Err(refusal)
            }
        }
    }
}

/// Who, to what, and why.
fn with_review(mut record: Record, review: &Review<Answer>, object: &Answer) -> Record {
    let about = &object.spec.access_request_ref;
    record.user = Some(requester(&review.user));
    record.request = RequestRef {
        kind: about.kind.to_string(),
        namespace: review.namespace.clone().unwrap_or_default(),
        name: about.name.clone(),
        uid: about.uid.clone(),
    };
    match &object.spec.reason {
        Some(reason) => record.detail("reason", reason.clone()),
        None => record,
    }
}

/// Refuses a change of what was answered, or of who did and to what.
fn unchanged(object: &Answer, old: &Answer) -> Result<Notes, Rejection> {
    bounded(&object.metadata, Some(&old.metadata), &REQUEST_METADATA)?;
    if object.spec != old.spec {
        let message =
            "an answer is not changed: delete it while the request waits, and give another";
        return Err(immutable("spec", message));
    }
    same_requester(&old.metadata, &object.metadata)?;
    let about = |object: &Answer| {
        let labels = object.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(labels::REQUEST_UID).cloned())
    };
    if about(object) != about(old) {
        let field = format!("metadata.labels[{}]", labels::REQUEST_UID);
        let message = "the label by which answers to a request are found is oz's";
        return Err(immutable(&field, message));
    }
    let owned = object.metadata.owner_references.as_deref();
    if owned.is_some_and(|owners| !owners.is_empty()) {
        let message = "an answer has no owner, so that nothing deletes it with something else";
        return Err(immutable("metadata.ownerReferences", message));
    }
    Ok(Notes::none())
}

/// What is to be found out about an answer.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    keys: &'a Keys,
    cx: &'a Cx,
    review: &'a Review<Answer>,
    object: &'a Answer,
}

/// An answer that is let in.
pub(crate) struct Judged {
    /// The rules that it may count for.
    rules: Vec<String>,
    /// Name of the template.
    template: String,
}

/// A kind of request that can be approved.
pub(crate) trait Approvable: Send + Sync {
    fn kind(&self) -> &'static str;
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
        let Some(request) = self.find(question).await? else {
            let name = &object.spec.access_request_ref.name;
            let message = format!("there is no {} {name} here; it may be over", R::title());
            return Err(forbidden(
                "RequestMissing",
                "spec.accessRequestRef.name",
                &message,
            ));
        };
        let view = request.view();
        let namespace = review.namespace.as_deref();
        let template = self.templates.find(namespace, view.template).await?;
        // One that is on its way out lets nobody in.
        let template = template.filter(|it| it.meta().deletion_timestamp.is_none());
        let template = template.as_deref();
        let answers = answers(question).await?;
        let judgement = view.stamp(keys).ok().and_then(|stamp| stamp.judgement);
        let approval = |it| policy::approval(judgement.as_ref(), it);
        let found = Found {
            request: view.clone(),
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
        let refused =
            |denial: &StampError| Rejection::forbidden(denial.reason(), denial.to_string());
        let asking = Asking {
            requester: &view.requester(keys).map_err(|error| refused(&error))?,
            request,
            namespace: review.namespace.as_deref().unwrap_or_default(),
            template: Some(template),
        };
        let new = self.judges.judge(cx, &review.user, asking).await?;
        let ask = view.ask;
        let Some(why) = policy::stricter(sealed, new.as_ref(), ask, template) else {
            return Ok(());
        };
        let name = view.metadata.name.as_deref().unwrap_or_default();
        Err(Rejection::forbidden(
            "PoliciesStricter",
            format!(
                "the AccessPolicies of the cluster are stricter now than when {} {name} was created: {why}; \
                 have it asked for again",
                view.kind
            ),
        ))
    }

    async fn withdrawn(&self, question: Question<'_>) -> Result<(), Rejection> {
        let Question { review, object, .. } = question;
        let annotations = object.metadata.annotations.as_ref();
        let author = annotations.and_then(|all| all.get(labels::REQUESTED_BY));
        let author = author.map(String::as_str).unwrap_or_default();
        let request = self.find(question).await?;
        let view = request.as_ref().map(AccessRequest::view);
        // Another of its name is none that this is about.
        let view = view.filter(|view| view.uid() == object.spec.access_request_ref.uid);
        let user = &review.user.username;
        admission::may_withdraw(author, user, view.as_ref()).map_err(denied)
    }
}

/// The answers that the request has, by the API server.
async fn answers(question: Question<'_>) -> Result<Vec<Answer>, Rejection> {
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

    fn judge<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Judged, Rejection>> {
        self.allowed(question).boxed()
    }

    fn withdraw<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<(), Rejection>> {
        self.withdrawn(question).boxed()
    }
}
