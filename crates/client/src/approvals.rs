//! Requests that wait for somebody to approve them, and answering them. What an answer names is computed here
//! from what was read, as the operator does: what was looked at is what is answered.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use oz_core::access::approval::{Asked, is_about, is_same_person, may_approve};
use oz_core::access::policy;
use oz_core::access::stamp::{self, Requester};
use oz_core::api::{
    AccessRequestApproval, AccessRequestApprovalSpec, AccessRequestReference, ApprovedKind, Phase,
};
use oz_core::conditions;
use oz_core::kinds::{AccessRequest, Kind as _};
use oz_core::labels;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::request::requester;

/// A request that waits to be approved.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// What an answer to it is about.
    pub about: AccessRequestReference,
    /// Namespace.
    pub namespace: String,
    /// What it is used for, see [`AccessRequest::PURPOSE`].
    pub purpose: &'static str,
    /// Who asks.
    pub requester: String,
    /// By which template.
    pub template: String,
    /// For how long, if it says.
    pub duration: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// By which ticket.
    pub ticket: Option<String>,
    /// What an answer must name.
    pub digest: String,
    /// Until when it can be answered.
    pub until: Timestamp,
    /// What the operator says is waited for.
    pub waits_for: String,
}

/// What was read to tell which requests wait for somebody.
struct Read<'a> {
    me: &'a Requester,
    answers: Vec<AccessRequestApproval>,
}

impl Read<'_> {
    /// Whether I answered already.
    fn is_answered<R: AccessRequest>(&self, request: &R) -> bool {
        let view = request.view();
        let mut about = self.answers.iter().filter(|answer| is_about(answer, &view));
        about.any(|answer| {
            let annotations = answer.metadata.annotations.as_ref();
            let by = annotations.and_then(|all| all.get(labels::REQUESTED_BY));
            by == Some(&self.me.user)
        })
    }
}

/// The requests of a kind that wait for `me`, in the chosen namespace or in all of them.
pub async fn waiting<R: AccessRequest>(
    cluster: &Cluster,
    everywhere: bool,
    me: &Requester,
) -> Result<Vec<Waiting>> {
    let parameters = ListParams::default();
    let requests = cluster.api_in::<R>(everywhere);
    let requests = cluster.answer(requests.list(&parameters)).await?.items;
    let pending = |request: &R| {
        let status = request.status();
        let phase = status.map(|status| status.phase).unwrap_or_default();
        phase == Phase::Pending && request.meta().deletion_timestamp.is_none()
    };
    let requests: Vec<R> = requests.into_iter().filter(pending).collect();
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let templates = cluster.api_in::<R::Template>(everywhere);
    let templates = cluster.answer(templates.list(&parameters)).await?.items;
    let answers = cluster.api_in::<AccessRequestApproval>(everywhere);
    let read = Read {
        me,
        answers: cluster.answer(answers.list(&parameters)).await?.items,
    };
    let templates: BTreeMap<(Option<String>, String), R::Template> = templates
        .into_iter()
        .map(|template| ((template.namespace(), template.name_any()), template))
        .collect();
    let mine = requests.iter().filter_map(|request| {
        let name = request.terms().template.to_owned();
        let template = templates.get(&(request.namespace(), name))?;
        of(request, template, &read)
    });
    Ok(mine.collect())
}

/// What waits, if this request does and `me` may answer.
fn of<R: AccessRequest>(request: &R, template: &R::Template, read: &Read<'_>) -> Option<Waiting> {
    let judgement = stamp::told(request.meta()).and_then(|stamp| stamp.judgement);
    let config = policy::approval(judgement.as_ref(), template)?;
    let who = requester(request)?;
    let view = request.view();
    let asked = Asked::of(&view, &who, &template.spec_digest(), &config)?;
    let open = may_approve(&asked, read.me) && !is_same_person(&who, read.me);
    if !open || read.is_answered(request) {
        return None;
    }
    let terms = request.terms();
    let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
    let status = request.status();
    let said = status.and_then(|status| conditions::find(&status.conditions, conditions::APPROVED));
    Some(Waiting {
        about: AccessRequestReference {
            kind: R::title().parse::<ApprovedKind>().ok()?,
            name: request.name_any(),
            uid: request.uid()?,
        },
        namespace: request.namespace().unwrap_or_default(),
        purpose: R::PURPOSE,
        template: terms.template.to_owned(),
        duration: owned(terms.duration),
        reason: owned(terms.reason),
        ticket: owned(terms.ticket),
        digest: asked.digest.clone(),
        until: asked.until,
        waits_for: said.map_or_else(String::new, |said| said.message.clone()),
        requester: who.user.clone(),
    })
}

/// Answers a request.
pub async fn answer(
    cluster: &Cluster,
    waiting: &Waiting,
    approval: bool,
    reason: Option<&str>,
) -> Result<AccessRequestApproval> {
    let spec = AccessRequestApprovalSpec {
        access_request_ref: waiting.about.clone(),
        approval,
        reason: reason.map(ToOwned::to_owned),
        digest: waiting.digest.clone(),
    };
    let mut object = AccessRequestApproval::new("", spec);
    let prefix: String = waiting.about.name.chars().take(PREFIX).collect();
    object.metadata.name = None;
    object.metadata.generate_name = Some(format!("{}-", prefix.trim_end_matches(['-', '.'])));
    let api = cluster.api::<AccessRequestApproval>();
    let parameters = PostParams::default();
    let created = cluster.answer(api.create(&parameters, &object)).await;
    created.map_err(|failure: Failure| match failure.is_forbidden() {
        true => failure.next("`ozctl approvals` lists what waits for you"),
        false => failure,
    })
}

/// The longest `generateName` that the webhook lets in, without its `-`.
const PREFIX: usize = 57;
