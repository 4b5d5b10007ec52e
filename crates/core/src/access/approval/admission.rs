//! The admission of approvals and denials. One that would not count is refused when it is created, with the
//! reason for its author; the operator evaluates the stored ones again.

use jiff::Timestamp;
use oz_api::{AccessRequestApproval, ApprovalConfig, Phase, Requester};

use super::super::decide::Denial;
use super::decide::MAX_APPROVALS;
use super::escalation::is_named_at;
use super::{Answer, ApprovalRequest, Candidate, is_about, is_same_person};
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::has_come;

/// The object of an approval, as far as it was found.
pub struct Found<'a> {
    /// The request or transient binding that has the name.
    pub request: Candidate<'a>,
    /// Digest of its template, or of itself where there is none, and the required approvals; `None` if the
    /// template does not exist.
    pub template: Option<(String, Option<ApprovalConfig>)>,
    /// The existing approvals and denials.
    pub answers: &'a [AccessRequestApproval],
}

/// The names of the rules for which the approval may count.
pub type Rules = Vec<String>;

/// Checks whether `approver` may create `answer` at `now`.
///
/// # Errors
/// A [`Denial`] with the reason and the next step.
pub fn may(
    keys: &Keys,
    approver: &Requester,
    answer: &AccessRequestApproval,
    found: &Found<'_>,
    now: Timestamp,
) -> Result<Rules, Denial> {
    let request = &found.request;
    waits(answer, request)?;
    let requester = request.requester(keys).map_err(|error| {
        let why = format!("{} cannot be approved: {error}", format_request(request));
        Denial::new(error.reason(), why)
    })?;
    if is_same_person(&requester, approver) {
        let why = format!(
            "{} created {} themselves; an approval by another user is required",
            requester.user,
            format_request(request)
        );
        return Err(Denial::new("SelfApproval", why));
    }
    let asked = asked(found, &requester)?;
    if asked.bound.iter().any(|own| is_same_person(own, approver)) {
        let why = format!(
            "{} binds {}, and no user may approve or deny their own access; ask another approver",
            format_request(request),
            approver.user
        );
        return Err(Denial::new("SelfApproval", why));
    }
    let rules = rules(&asked, approver, request, now)?;
    if has_come(now, asked.until) {
        let why = format!(
            "{} could be approved until {}; have the requester create it again",
            format_request(request),
            asked.until
        );
        return Err(Denial::new("ApprovalTimedOut", why));
    }
    if answer.spec.digest != asked.digest {
        let why = format!(
            "{} or its template was changed since it was read: spec.digest must be {}; read both \
                again",
            format_request(request),
            asked.digest
        );
        return Err(Denial::new("RequestChanged", why));
    }
    if asked.config.require_reason && answer.spec.reason.as_deref().is_none_or(is_blank) {
        let why = format!("{} requires a reason; set spec.reason", request.authority());
        return Err(Denial::new("ReasonRequired", why));
    }
    first(keys, approver, answer, found)?;
    Ok(rules)
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Checks that the request is the intended one, and waits.
fn waits(answer: &AccessRequestApproval, request: &Candidate<'_>) -> Result<(), Denial> {
    if !is_about(answer, request) {
        let why = format!(
            "{} is another request than the one with UID {}: it was created again; read it, and \
                approve or deny that",
            format_request(request),
            answer.spec.access_request_ref.uid
        );
        return Err(Denial::new("RequestReplaced", why));
    }
    let phase = request.phase;
    if phase != Phase::Pending || request.metadata.deletion_timestamp.is_some() {
        let state = match phase {
            Phase::Pending => "being deleted".to_owned(),
            phase => format!("{phase} already"),
        };
        let why = format!(
            "{} is {state}, and needs no approval; to revoke access, delete the request",
            format_request(request)
        );
        return Err(Denial::new("NotPending", why));
    }
    Ok(())
}

fn asked<'a>(
    found: &'a Found<'_>,
    requester: &'a Requester,
) -> Result<ApprovalRequest<'a>, Denial> {
    let request = &found.request;
    let Some((digest, config)) = &found.template else {
        let why = format!(
            "{} of {} does not exist, so its approvers are unknown; wait until it exists",
            request.authority(),
            format_request(request)
        );
        return Err(Denial::new("TemplateMissing", why));
    };
    let asked = config
        .as_ref()
        .and_then(|config| ApprovalRequest::from_candidate(request, requester, digest, config));
    asked.ok_or_else(|| {
        let why = format!(
            "{} requires no approval by {}, or its approval rules are invalid; an approval would \
             have no effect",
            format_request(request),
            request.authority()
        );
        Denial::new("ApprovalNotRequired", why)
    })
}

fn rules(
    asked: &ApprovalRequest<'_>,
    approver: &Requester,
    request: &Candidate<'_>,
    now: Timestamp,
) -> Result<Rules, Denial> {
    let all = asked.config.rules.iter();
    let theirs = all.filter(|rule| is_named_at(rule, approver, asked.created, now));
    let theirs: Rules = theirs.map(|rule| rule.name.clone()).collect();
    if !theirs.is_empty() {
        return Ok(theirs);
    }
    let all = asked.config.rules.iter();
    let names: Vec<&str> = all.map(|rule| rule.name.as_str()).collect();
    let account = match approver.service_account() {
        Some(_) => "; a service account counts only by its own name, in users",
        None => "",
    };
    let why = format!(
        "{} is in no approval rule of {} ({}){account}; ask an approver",
        approver.user,
        request.authority(),
        names.join(", ")
    );
    Err(Denial::new("NotAnApprover", why))
}

/// Checks that each person decides once, and that the number of decisions stays within the limit. A denial is
/// always possible.
fn first(
    keys: &Keys,
    approver: &Requester,
    answer: &AccessRequestApproval,
    found: &Found<'_>,
) -> Result<(), Denial> {
    let request = &found.request;
    let earlier = found.answers.iter();
    let earlier = earlier.filter_map(|object| Answer::read(keys, object, request)?.ok());
    let earlier: Vec<Answer> = earlier.collect();
    if let Some(own) = earlier
        .iter()
        .find(|earlier| is_same_person(&earlier.by, approver))
    {
        let why = format!(
            "{} decided about {} already, by {}; delete that to decide again",
            own.by.user,
            format_request(request),
            own.name
        );
        return Err(Denial::new("AlreadyDecided", why));
    }
    if answer.spec.approval && earlier.len() >= MAX_APPROVALS {
        let why = format!(
            "{} has {} approvals, which is the maximum",
            format_request(request),
            earlier.len()
        );
        return Err(Denial::new("TooManyApprovals", why));
    }
    Ok(())
}

/// Checks whether the author of an approval or denial may withdraw it, by the phase of its request; `request`
/// is `None` if the request is gone.
///
/// # Errors
/// A [`Denial`] with the reason and the next step.
pub fn may_withdraw(
    author: &str,
    user: &str,
    request: Option<&Candidate<'_>>,
) -> Result<(), Denial> {
    if author != user {
        let why = format!("the approval is {author}'s, and only its author can withdraw it");
        return Err(Denial::new("NotAuthor", why));
    }
    match request {
        Some(request) if request.phase != Phase::Pending => {
            let why = format!(
                "{} is {} already, so the decision is final; to revoke access, delete the request",
                format_request(request),
                request.phase
            );
            Err(Denial::new("NotPending", why))
        }
        _ => Ok(()),
    }
}

fn format_request(request: &Candidate<'_>) -> String {
    format!("{} {}", request.kind, request.identity.name)
}
