//! Requests, transient bindings and harness runs that wait for an approval, and approving or denying them. The digest that an
//! approval names is computed here from the objects that were read, as the operator does: the approval applies to
//! exactly the objects that the approver saw.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::{ListParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use oz_api::harness::{ClusterHarnessTemplate, HarnessRun, HarnessTemplate, RunPhase};
use oz_api::{
    AccessRequestApproval, AccessRequestApprovalSpec, AccessRequestReference, ApprovedKind, Phase,
    Requester, labels,
};
use oz_core::access::approval::{
    ApprovalRequest, Candidate, is_about, is_same_person, may_approve,
};
use oz_core::access::{policy, stamp};
use oz_core::kinds::{AccessRequest, Kind as _};
use oz_core::transient::{self, Closes};
use oz_runs::run::candidate;
use oz_runs::stored::StoredObject;
use oz_runs::template;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::request::requester;

/// A request or transient binding that waits for an approval.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The reference that an approval or denial contains.
    pub about: AccessRequestReference,
    /// The namespace; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// The namespace of its approvals and denials.
    pub answered_in: String,
    /// The purpose, see [`AccessRequest::PURPOSE`].
    pub purpose: &'static str,
    /// The requester.
    pub requester: String,
    /// The template or the role.
    pub template: String,
    /// The requested duration, if it names one.
    pub duration: Option<String>,
    /// The reason.
    pub reason: Option<String>,
    /// The change ticket.
    pub ticket: Option<String>,
    /// The digest that an approval or denial must name.
    pub digest: String,
    /// The instant until which it can be approved or denied.
    pub until: Timestamp,
}

/// The objects that determine which requests wait for an approver.
struct Read<'a> {
    me: &'a Requester,
    answers: Vec<AccessRequestApproval>,
}

impl Read<'_> {
    /// Checks whether the approver already approved or denied the candidate.
    fn is_answered(&self, candidate: &Candidate<'_>) -> bool {
        let mut about = self
            .answers
            .iter()
            .filter(|answer| is_about(answer, candidate));
        about.any(|answer| {
            let annotations = answer.metadata.annotations.as_ref();
            let by = annotations.and_then(|all| all.get(labels::REQUESTED_BY));
            by == Some(&self.me.user)
        })
    }
}

/// Returns the requests of a kind that wait for `me`, in the chosen namespace or in all namespaces.
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
        status.is_none_or(|status| status.phase == Phase::Pending)
            && request.meta().deletion_timestamp.is_none()
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
        find_waiting(request, template, &read)
    });
    Ok(mine.collect())
}

/// Returns the entry of a request, if it waits and `me` may approve it.
fn find_waiting<R: AccessRequest>(
    request: &R,
    template: &R::Template,
    read: &Read<'_>,
) -> Option<Waiting> {
    let judgement = stamp::parse_unverified(request.meta()).and_then(|stamp| stamp.judgement);
    let config = policy::approval(judgement.as_ref(), template)?;
    let who = requester(request)?;
    let candidate = request.stored().ok()?.candidate();
    let asked =
        ApprovalRequest::from_candidate(&candidate, &who, &template.spec_digest(), &config)?;
    let open = may_approve(&asked, read.me, Timestamp::now()) && !is_same_person(&who, read.me);
    if !open || read.is_answered(&candidate) {
        return None;
    }
    let terms = request.terms();
    let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
    Some(Waiting {
        about: AccessRequestReference {
            kind: R::title().parse::<ApprovedKind>().ok()?,
            name: request.name_any(),
            uid: request.uid()?,
        },
        namespace: request.namespace(),
        answered_in: request.namespace()?,
        purpose: R::PURPOSE,
        template: terms.template.to_owned(),
        duration: owned(terms.duration),
        reason: owned(terms.reason),
        ticket: owned(terms.ticket),
        digest: asked.digest.clone(),
        until: asked.until,
        requester: who.user.clone(),
    })
}

/// Returns the transient bindings of a kind that wait for `me`, in the chosen namespace or in all namespaces;
/// `own_namespace` is the namespace of oz.
pub async fn waiting_bindings<K: transient::Kind>(
    cluster: &Cluster,
    everywhere: bool,
    me: &Requester,
    own_namespace: &str,
) -> Result<Vec<Waiting>> {
    let (resource, client) = (ApiResource::erase::<K>(&()), cluster.client.clone());
    let bindings: Api<DynamicObject> = match K::CLUSTER || everywhere {
        true => Api::all_with(client, &resource),
        false => Api::namespaced_with(client, &cluster.namespace, &resource),
    };
    let parameters = ListParams::default();
    let listed = match cluster.answer(bindings.list(&parameters)).await {
        Ok(listed) => listed.items,
        // The kinds are not installed; or the user may not list them, so none waits for the user.
        Err(failure) if failure.is_unknown_kind() || failure.is_forbidden() => {
            return Ok(Vec::new());
        }
        Err(failure) => return Err(failure),
    };
    let parsed = listed
        .into_iter()
        .filter_map(|object| object.try_parse::<K>().ok());
    let pending: Vec<K> = parsed
        .filter(|binding| {
            let view = binding.view();
            view.status
                .is_none_or(|status| status.phase == Phase::Pending)
                && policy::requires_approval(view.metadata)
                && view.metadata.deletion_timestamp.is_none()
        })
        .collect();
    if pending.is_empty() {
        return Ok(Vec::new());
    }
    let answers: Api<AccessRequestApproval> = match (K::CLUSTER, everywhere) {
        (true, _) => Api::namespaced(cluster.client.clone(), own_namespace),
        (false, everywhere) => cluster.api_in(everywhere),
    };
    let read = Read {
        me,
        answers: match cluster.answer(answers.list(&parameters)).await {
            Ok(listed) => listed.items,
            // A user who may not list approvals in the namespace for cluster-wide ones may create none there.
            Err(failure) if K::CLUSTER && failure.is_forbidden() => return Ok(Vec::new()),
            Err(failure) => return Err(failure),
        },
    };
    let mine = pending.iter();
    Ok(mine
        .filter_map(|one| of_binding(one, own_namespace, &read))
        .collect())
}

/// Returns the entry of a transient binding, if it waits and `me` may approve it.
fn of_binding<K: transient::Kind>(
    binding: &K,
    own_namespace: &str,
    read: &Read<'_>,
) -> Option<Waiting> {
    let view = binding.stored().ok()?;
    let stamp = stamp::parse_unverified(view.metadata)?;
    let config = policy::rules(stamp.judgement.as_ref())?;
    let asked = view.asked(own_namespace, &stamp.requester, &config)?;
    let candidate = view.candidate(own_namespace);
    if !may_approve(&asked, read.me, Timestamp::now()) || read.is_answered(&candidate) {
        return None;
    }
    let terms = view.terms.as_ref().ok()?;
    Some(Waiting {
        about: AccessRequestReference {
            kind: K::title().parse::<ApprovedKind>().ok()?,
            name: candidate.identity.name.to_string(),
            uid: binding.uid()?,
        },
        namespace: binding.namespace(),
        answered_in: candidate.answered_in?.to_owned(),
        purpose: "bind",
        template: format!("{} {}", terms.role.kind, terms.role.name),
        duration: Some(match terms.closes {
            Closes::After(duration) => duration.to_string(),
            Closes::At(until) => format!("until {until}"),
        }),
        reason: terms.reason.clone(),
        ticket: None,
        digest: asked.digest.clone(),
        until: asked.until,
        requester: stamp.requester.user.clone(),
    })
}

/// Returns the harness runs that wait for `me`, in the chosen namespace or in all namespaces.
pub async fn waiting_runs(
    cluster: &Cluster,
    everywhere: bool,
    me: &Requester,
) -> Result<Vec<Waiting>> {
    let parameters = ListParams::default();
    let runs = cluster.api_in::<HarnessRun>(everywhere);
    let runs = match cluster.answer(runs.list(&parameters)).await {
        Ok(listed) => listed.items,
        // The kinds are not installed; or the user may not list them, so none waits for the user.
        Err(failure) if failure.is_unknown_kind() || failure.is_forbidden() => {
            return Ok(Vec::new());
        }
        Err(failure) => return Err(failure),
    };
    let asks = |run: &HarnessRun| {
        let status = run.status.as_ref();
        status.is_some_and(|status| {
            status.approval.is_some() && status.phase.unwrap_or_default() == RunPhase::Pending
        }) && run.metadata.deletion_timestamp.is_none()
    };
    let runs: Vec<HarnessRun> = runs.into_iter().filter(asks).collect();
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let templates = cluster.api_in::<HarnessTemplate>(everywhere);
    let templates = cluster.answer(templates.list(&parameters)).await?.items;
    let bases = Api::<ClusterHarnessTemplate>::all(cluster.client.clone());
    let bases = match cluster.answer(bases.list(&parameters)).await {
        Ok(listed) => listed.items,
        // Runs of these templates are left out.
        Err(failure) if failure.is_forbidden() => Vec::new(),
        Err(failure) => return Err(failure),
    };
    let answers = cluster.api_in::<AccessRequestApproval>(everywhere);
    let read = Read {
        me,
        answers: cluster.answer(answers.list(&parameters)).await?.items,
    };
    let mine = runs.iter();
    Ok(mine
        .filter_map(|run| of_run(run, (&templates, &bases), &read))
        .collect())
}

/// Returns the entry of a harness run, if it waits and `me` may approve it.
fn of_run(
    run: &HarnessRun,
    (templates, bases): (&[HarnessTemplate], &[ClusterHarnessTemplate]),
    read: &Read<'_>,
) -> Option<Waiting> {
    let stored = StoredObject::new(run).ok()?;
    let reference = &run.spec.template_ref;
    let own = templates.iter().find(|template| {
        template.metadata.namespace == run.metadata.namespace
            && template.metadata.name.as_ref() == Some(&reference.name)
    });
    let base = |name: &String| {
        let base = bases
            .iter()
            .find(|base| base.metadata.name.as_ref() == Some(name));
        base.map(|base| &base.spec.0)
    };
    let own = own.map(|template| &template.spec);
    let (kind, spec) = template::chosen(reference, own, base(&reference.name))?;
    let base = spec
        .base_template_ref
        .as_ref()
        .and_then(|it| base(&it.name));
    let stamp = stamp::parse_unverified(&run.metadata)?;
    let approval = template::resolve(spec, base).ok()?.approval;
    let config = policy::joined(approval, stamp.judgement.as_ref())?;
    let who = stamp.requester;
    let candidate = candidate(&stored);
    let digest = template::digest(spec, base);
    let asked = ApprovalRequest::from_candidate(&candidate, &who, &digest, &config)?;
    let open = may_approve(&asked, read.me, Timestamp::now()) && !is_same_person(&who, read.me);
    if !open || read.is_answered(&candidate) {
        return None;
    }
    Some(Waiting {
        about: AccessRequestReference {
            kind: ApprovedKind::HarnessRun,
            name: candidate.identity.name.to_string(),
            uid: candidate.identity.uid.to_string(),
        },
        namespace: run.namespace(),
        answered_in: stored.namespace.to_string(),
        purpose: "run",
        template: format!("{kind} {}", reference.name),
        duration: run.spec.timeout.clone(),
        reason: run.spec.reason.clone(),
        ticket: run.spec.ticket.clone(),
        digest: asked.digest.clone(),
        until: asked.until,
        requester: who.user.clone(),
    })
}

/// Approves or denies a request, transient binding or harness run.
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
    let client = cluster.client.clone();
    let api = Api::<AccessRequestApproval>::namespaced(client, &waiting.answered_in);
    let parameters = PostParams::default();
    let created = cluster.answer(api.create(&parameters, &object)).await;
    created.map_err(|failure: Failure| match failure.is_forbidden() {
        true => failure.next("`ozctl approvals` lists the requests that wait for your approval"),
        false => failure,
    })
}

/// The longest `generateName` that the webhook accepts, without its `-`.
const PREFIX: usize = 57;
