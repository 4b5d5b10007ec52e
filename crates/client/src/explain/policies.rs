//! The judgement of the access policies for a request: the sealed one, if the request exists, and otherwise the
//! current one. `active` are the requester's grants in this namespace, of this kind, according to their requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use oz_api::{AccessPolicy, Requester, conditions};
use oz_cel::Expressions;
use oz_cel::policy::Case;
use oz_core::access::approval::decide;
use oz_core::access::approval::decide::waited_for;
use oz_core::access::approval::{ApprovalRequest, Verdict};
use oz_core::access::decide::{Ask, Denial};
use oz_core::access::extra::Extra;
use oz_core::access::policy::situation::Active;
use oz_core::access::policy::{self, Judgement, Refused, Situation, When};
use oz_core::access::{on_call, stamp, ticket};
use oz_core::kinds::{AccessRequest, Kind as _};
use oz_core::transient::Binding;

use super::extra::NoExtra;
use crate::cluster::Cluster;
use crate::failure::Result;

/// The maximum duration of an evaluation.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The field of `requester` in every expression that reads extra attributes.
const EXTRA: &str = "extra";

/// The judgement of the access policies.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// The judgement; `None` if there are no access policies.
    pub judgement: Option<Judgement>,
    /// The reason why the access policies are not known, if they are not.
    pub unknown: Option<String>,
    /// The approvals that are missing, or the request's message about them.
    pub missing: Option<String>,
}

/// The reason why the access policies deny a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An access policy denies it.
    #[error("{}", .0.message)]
    Denied(Refused),
    /// An access policy requires a reason.
    #[error("AccessPolicy {policy} requires a reason")]
    NoReason {
        /// The name of the access policy.
        policy: String,
    },
    /// An access policy requires a change ticket.
    #[error(transparent)]
    Ticket(Denial),
}

impl Judged {
    /// Checks that the access policies permit a request for this.
    ///
    /// # Errors
    /// They deny it.
    pub fn permits(&self, ask: Ask<'_>) -> Result<(), Refusal> {
        let Some(judgement) = &self.judgement else {
            return Ok(());
        };
        if let Some(refused) = &judgement.refused {
            return Err(Refusal::Denied(refused.clone()));
        }
        let lacks = ask.reason.is_none_or(|reason| reason.trim().is_empty());
        if let Some(policy) = judgement.require_reason.clone().filter(|_| lacks) {
            return Err(Refusal::NoReason { policy });
        }
        for rule in &judgement.tickets {
            let who = || format!("AccessPolicy {}", rule.policy);
            ticket::validate(Some(&rule.ticket), who, ask).map_err(Refusal::Ticket)?;
        }
        Ok(())
    }

    /// Returns the other effects of the access policies, in one line.
    pub fn effect(&self) -> String {
        let Some(judgement) = &self.judgement else {
            return "none".to_owned();
        };
        let mut told = match judgement.names() {
            none if none.is_empty() => format!("none of {} applies", judgement.asked),
            names => format!("{names} applies"),
        };
        if let Some(longest) = &judgement.longest {
            told.push_str(&format!(
                "; {} at most ({})",
                longest.duration, longest.policy
            ));
        }
        for rule in &judgement.tickets {
            told.push_str("; a ticket");
            if let Some(check) = &rule.ticket.check {
                told.push_str(&format!(" that check {check} accepts"));
            }
            told.push_str(&format!(" ({})", rule.policy));
        }
        match &judgement.when {
            Some(When::Exempts) => told.push_str(
                "; the template requires no approval for this \
                request",
            ),
            Some(When::Failed(why)) => told.push_str(&format!(
                "; approval.when of the template fails, so its rules apply: {why}"
            )),
            Some(When::Applies) | None => {}
        }
        told
    }
}

/// Returns the judgement for an existing request.
pub(super) fn sealed<R: AccessRequest>(request: &R) -> Judged {
    let status = request.status();
    stamped(request.meta(), status.map(|status| &status.conditions[..]))
}

/// Returns the judgement for an existing transient binding.
pub(super) fn sealed_of(binding: &Binding<'_>) -> Judged {
    let status = binding.status;
    stamped(
        binding.metadata,
        status.map(|status| &status.conditions[..]),
    )
}

/// Returns the judgement in an object's stamp, and its condition's message about the missing approvals.
fn stamped(metadata: &ObjectMeta, known: Option<&[Condition]>) -> Judged {
    let approved = known.and_then(|known| conditions::find(known, conditions::APPROVED));
    let missing = approved.filter(|condition| condition.status != "True");
    Judged {
        judgement: stamp::parse_unverified(metadata).and_then(|stamp| stamp.judgement),
        unknown: None,
        missing: missing.map(|condition| condition.message.clone()),
    }
}

/// Returns the judgement for a request that is created now.
pub(super) async fn now<R: AccessRequest>(
    cluster: &Cluster,
    (requester, extra): (&Requester, Result<&Extra, &NoExtra>),
    request: &R,
    template: Option<&R::Template>,
    now: Timestamp,
) -> Result<Judged> {
    let api = Api::<AccessPolicy>::all(cluster.client.clone());
    let listed = cluster.answer(api.list(&ListParams::default())).await;
    let (policies, unknown) = match listed {
        Ok(listed) => (listed.items, None),
        // An older oz has no such kind.
        Err(failure) if failure.is_unknown_kind() || failure.is_not_found() => (Vec::new(), None),
        Err(failure) => (Vec::new(), Some(failure.message().to_owned())),
    };
    let when = template.and_then(policy::condition).map(ToOwned::to_owned);
    let mut judged = Judged {
        unknown,
        ..Judged::default()
    };
    let texts = policies.iter().map(|policy| policy.spec.r#match.as_str());
    let reads_extra = texts
        .chain(when.as_deref())
        .any(|text| text.contains(EXTRA));
    if let (true, Err(why)) = (reads_extra, extra) {
        let unknown = || format!("requester.extra is not known: {why}");
        judged.unknown.get_or_insert_with(unknown);
    } else if !policies.is_empty() || when.is_some() {
        let situation = Situation::from_request(now, requester, &request.view(), template)
            .with_extra(extra.unwrap_or(&Extra::new()))
            .in_namespace(&labels(cluster).await)
            .having(active::<R>(cluster, requester).await);
        let case = Case {
            policies: policies.into_iter().map(Arc::new).collect(),
            when,
            template: template.map(policy::seen),
            unreadable: 0,
            situation,
        };
        let until = Instant::now() + TIMEOUT;
        let work = move || {
            let expressions = Expressions::default();
            let when = case.condition(&expressions, until);
            case.judge(when, &expressions, until)
        };
        match oz_cel::apart(TIMEOUT, work) {
            Ok(judgement) => judged.judgement = Some(judgement),
            Err(why) => judged.unknown = Some(why.to_string()),
        }
    }
    judged.missing = template.and_then(|template| {
        let config = policy::approval(judged.judgement.as_ref(), template)?;
        let candidate = request.stored().ok()?.candidate();
        let asked = ApprovalRequest::from_candidate(
            &candidate,
            requester,
            &template.spec_digest(),
            &config,
        )?;
        let Verdict::Waiting { missing, .. } = decide(&asked, &[], now) else {
            return None;
        };
        let waits = format!("it would wait for {}", waited_for(&missing));
        // Only the operator can ask the servers.
        let on_call = on_call::replaceable(judged.judgement.as_ref(), template);
        let all = std::iter::once(waits).chain(on_call);
        Some(all.collect::<Vec<_>>().join("; "))
    });
    Ok(judged)
}

/// Returns the labels of the namespace; none if they cannot be read.
async fn labels(cluster: &Cluster) -> BTreeMap<String, String> {
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    let found = cluster.answer(namespaces.get_metadata(&cluster.namespace));
    let labels = found.await.ok().and_then(|found| found.metadata.labels);
    labels.into_iter().flatten().collect()
}

async fn active<R: AccessRequest>(cluster: &Cluster, requester: &Requester) -> Vec<Active> {
    let requests = cluster.api::<R>();
    let listed = cluster.answer(requests.list(&ListParams::default())).await;
    let lasts = |request: &R| {
        let status = request.status()?;
        let theirs = status.requester.as_ref() == Some(&requester.user);
        (theirs && status.phase.is_granted()).then_some(())?;
        Some(Active {
            kind: R::title().to_owned(),
            namespace: request.namespace()?,
            template: request.terms().template.to_owned(),
            pod: status.pod_name.clone().unwrap_or_default(),
            request: request.name_any(),
            until: status.expires_at?,
        })
    };
    listed.iter().flatten().filter_map(lasts).collect()
}
