//! The place of approvals in the decision about a request: after requester and template are known, and before
//! a pod is chosen.

use jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use oz_api::{
    AccessRequestApproval, ApprovalConfig, ApprovalRule, ApprovalStatus, OnCallCheck, Phase,
    Requester, conditions,
};
use oz_trail::notify::{APPROVERS, NOTIFY};
use oz_trail::{Action, Decision, Record};

use super::super::fact::Fact;
use super::super::kind::{Assessment, FactsOf, Kind};
use super::super::lock::Locks;
use super::super::on_call::{self, OnCall, Responses};
use super::super::policy;
use super::super::request::StoredRequest;
use super::decide::waited_for;
use super::escalation::{escalates_at, is_escalated};
use super::{Answer, ApprovalRequest, Approved, Candidate, Verdict, answers, approvers, decide};
use crate::controller::Failure;
use crate::kinds::Kind as _;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::{after, has_come};
use crate::lifecycle::{End, State, Stop};

/// The reason of a request that waits for approvals.
pub const WAITING: &str = "Waiting";
/// The reason of a request that a possible approver denied.
pub const DENIED: &str = "ApprovalDenied";

/// The state of the approvals of a request or transient binding.
pub struct Approvals {
    verdict: Verdict,
    /// The time for which given approvals count; without limit for a kind that ends them by its window.
    valid_for: Option<SignedDuration>,
    /// The counted decisions.
    answers: Vec<Answer>,
    /// Additional note while approvals are missing.
    note: Option<String>,
    /// The on-call checks that replace approvals, if all others are given.
    pub(in crate::access) on_call: Option<OnCall>,
    /// The reason why approvers are not asked yet: an on-call check has not responded.
    pending: Option<String>,
    /// Content of the status.
    pub status: ApprovalStatus,
    /// The first instant at which a decision counts again because a lock on its author expires, or at which a rule has
    /// additional approvers.
    pub unlocked_at: Option<Timestamp>,
}

/// Returns the state of the approvals that a request requires; `None` if it requires none, or if requester or
/// template are unknown.
pub(in crate::access) fn evaluate<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &StoredRequest<'_>,
    known: &FactsOf<K>,
) -> Option<Approvals> {
    let template = known.template.as_deref()?;
    // Most requests require none, and then no stamp is opened.
    if template.meta().deletion_timestamp.is_some() || !policy::asks(request, template) {
        return None;
    }
    let stamp = request.stamp(kind.keys()).ok()?;
    let config = policy::approval(stamp.judgement.as_ref(), template)?;
    let candidate = request.candidate();
    let digest = template.spec_digest();
    let asked = ApprovalRequest::from_candidate(&candidate, &stamp.requester, &digest, &config)?;
    let note = policy::note(stamp.judgement.as_ref(), Some(&config));
    let found = (known.approvals.as_slice(), known.confirmed.as_ref());
    let approvals = Approvals::evaluate(
        (&candidate, &asked),
        found,
        (kind.keys(), &known.locks),
        now,
    );
    let wait = request.waits_until().duration_since(request.created());
    let approvals = Approvals { note, ..approvals }.valid_for(wait);
    let lists = policy::on_call_checks(stamp.judgement.as_ref(), template);
    let times = (now, request.created());
    let responses = on_call::responses(times, &stamp.requester, &lists, &known.tickets);
    let judgement = stamp.judgement.as_ref();
    let rest = |accepted: &[OnCallCheck]| policy::approval_on_call(judgement, template, accepted);
    Some(approvals.with_on_call(responses, &asked, rest, now))
}

impl Approvals {
    /// Evaluates the decisions about a candidate, for which `asked` is required. `found` has the decisions from the watch,
    /// and those from the API server itself once they were read, which then replace them.
    #[must_use]
    pub fn evaluate(
        (candidate, asked): (&Candidate<'_>, &ApprovalRequest<'_>),
        (seen, confirmed): (
            &[AccessRequestApproval],
            Option<&Result<Vec<AccessRequestApproval>, Failure>>,
        ),
        (keys, locks): (&Keys, &Locks),
        now: Timestamp,
    ) -> Self {
        let read = confirmed.and_then(|read| read.as_ref().ok());
        let objects = read.map_or(seen, Vec::as_slice);
        let answers = answers(keys, objects, candidate, locks, now);
        let verdict = decide(asked, &answers, now);
        let escalates = asked.config.rules.iter();
        let escalates = escalates.filter_map(|rule| escalates_at(rule, asked.created));
        let escalates = escalates.filter(|at| !has_come(now, *at));
        Self {
            note: None,
            valid_for: None,
            on_call: None,
            pending: None,
            status: ApprovalStatus {
                until: asked.until,
                digest: asked.digest.clone(),
                escalated: escalated(&verdict, (asked, &asked.config.rules), now),
            },
            unlocked_at: answers
                .iter()
                .filter_map(|answer| answer.locked_until)
                .chain(escalates)
                .min(),
            verdict,
            answers,
        }
    }

    /// Limits the time for which given approvals count, from the last of them on.
    #[must_use]
    pub const fn valid_for(mut self, time: SignedDuration) -> Self {
        self.valid_for = Some(time);
        self
    }

    /// Applies the responses of on-call checks; `rest` returns the approvals that stay required while these checks accept
    /// the requester. A denial and given approvals take precedence: they need no check.
    fn with_on_call(
        mut self,
        responses: Responses,
        asked: &ApprovalRequest<'_>,
        rest: impl Fn(&[OnCallCheck]) -> Option<ApprovalConfig>,
        now: Timestamp,
    ) -> Self {
        if !matches!(self.verdict, Verdict::Waiting { .. }) {
            return self;
        }
        let notes = [self.note.take(), responses.note()].into_iter().flatten();
        let notes: Vec<String> = notes.collect();
        self.note = (!notes.is_empty()).then(|| notes.join("; "));
        if responses.accepted.is_empty() {
            self.pending = responses.pending;
            return self;
        }
        let responses = responses.without_unneeded(&rest);
        let rest = rest(&responses.accepted);
        self.verdict = match &rest {
            Some(config) => {
                let asked = ApprovalRequest {
                    config,
                    ..asked.clone()
                };
                decide(&asked, &self.answers, now)
            }
            None => Verdict::Granted {
                by: Vec::new(),
                at: now,
            },
        };
        let rest = rest.as_ref().map_or(&[][..], |rest| &rest.rules);
        self.status.escalated = escalated(&self.verdict, (asked, rest), now);
        if matches!(self.verdict, Verdict::Granted { .. }) {
            let replaced = policy::find_absent(&asked.config.rules, rest).into_iter();
            self.on_call = Some(OnCall {
                checks: responses.accepted,
                rules: replaced.map(|rule| rule.name.clone()).collect(),
            });
        } else {
            self.pending = responses.pending;
        }
        self
    }

    /// Returns the instant at which a request with these approvals stops waiting: the deadline of missing approvals, or
    /// the instant from which on given approvals do not count.
    #[must_use]
    pub fn waits_until(&self) -> Timestamp {
        self.valid_until().unwrap_or(self.status.until)
    }

    /// Returns the instant from which on the approvals do not count; `None` if some are missing, or if they count without
    /// limit.
    #[must_use]
    pub fn valid_until(&self) -> Option<Timestamp> {
        match self.verdict {
            // A check that replaces approvals does so in each pass anew.
            Verdict::Granted { at, .. } if self.on_call.is_none() => {
                self.valid_for.map(|time| after(at, time))
            }
            _ => None,
        }
    }

    /// Returns the expiry of the approvals, if it has come.
    fn expired(&self, now: Timestamp) -> Option<Timestamp> {
        self.valid_until().filter(|until| has_come(now, *until))
    }

    /// Checks whether all required approvals are given and count at this instant.
    #[must_use]
    pub fn are_valid(&self, now: Timestamp) -> bool {
        matches!(self.verdict, Verdict::Granted { .. }) && self.expired(now).is_none()
    }

    /// Returns the condition that all required approvals are given and count at this instant; `None` otherwise.
    #[must_use]
    pub fn given(&self, now: Timestamp) -> Option<Fact> {
        match &self.verdict {
            Verdict::Granted { by, .. } if self.are_valid(now) => {
                Some(granted(by, self.on_call.as_ref()))
            }
            _ => None,
        }
    }
}

/// Returns the rules without their approvals that have additional approvers by now, by their names; `required` are the
/// rules that the verdict is about, of which one can have another name if a check replaced the other source of it.
fn escalated(
    verdict: &Verdict,
    (asked, required): (&ApprovalRequest<'_>, &[ApprovalRule]),
    now: Timestamp,
) -> Vec<String> {
    let Verdict::Waiting { missing, .. } = verdict else {
        return Vec::new();
    };
    let is_missing = |rule: &&ApprovalRule| missing.iter().any(|one| one.rule == rule.name);
    let missing: Vec<ApprovalRule> = required.iter().filter(is_missing).cloned().collect();
    let rules = asked.config.rules.iter();
    let rules = rules.filter(|rule| is_escalated(rule, asked.created, now));
    let rules =
        rules.filter(|rule| policy::find_absent(std::slice::from_ref(*rule), &missing).is_empty());
    rules.map(|rule| rule.name.clone()).collect()
}

/// Returns the approvers of a request that requires approvals, if all are given and count at `now`; the requester has no
/// access before.
///
/// # Errors
/// The state that the request is in instead.
pub(crate) fn settled<S, Q>(
    now: Timestamp,
    approvals: Option<&Approvals>,
    facts: &mut Vec<Fact>,
) -> Result<Vec<Approved>, Stop<S, Q>> {
    let Some(approvals) = approvals else {
        let message = "its approvers are unknown: the approval of its template (spec.accessConfig.approval, or \
                       spec.approval of a harness template) or then.approval of an access policy is invalid; have \
                       its owners correct it";
        return Err(waits(facts, WAITING, message.to_owned()));
    };
    if let Some(why) = &approvals.pending {
        return Err(waits(facts, on_call::WAITING, why.clone()));
    }
    if let Some(until) = approvals.expired(now) {
        let message = format!(
            "not granted in time after its last approval (until {until}): the approvals do not count any \
             more; create it again, and have it approved again"
        );
        return Err(timed_out(facts, message));
    }
    match &approvals.verdict {
        Verdict::Granted { by, .. } => {
            facts.push(granted(by, approvals.on_call.as_ref()));
            Ok(by.clone())
        }
        Verdict::Waiting { missing, void } => {
            let mut message = format!("waiting for {}", waited_for(missing));
            if *void > 0 {
                message.push_str(&format!(
                    "; {void} given for an earlier content of the request or its template, or by a \
                     locked user: these do not count, and are required again"
                ));
            }
            if let Some(note) = &approvals.note {
                message.push_str(&format!("; {note}"));
            }
            Err(waits(facts, WAITING, message))
        }
        Verdict::Denied { by, reason, .. } => {
            let message = match reason {
                Some(reason) => format!("{} denied it: {reason}", by.user),
                None => format!("{} denied it", by.user),
            };
            facts.push(Fact::fails(conditions::APPROVED, DENIED, message.clone()));
            let failure = Failure::invalid(DENIED, message);
            Err(Stop::Refuse(Phase::Denied, failure))
        }
        Verdict::TimedOut { missing } => {
            let message = format!(
                "not approved in time (until {}): it waited for {}",
                approvals.status.until,
                waited_for(missing)
            );
            Err(timed_out(facts, message))
        }
    }
}

/// Returns the end of a request without valid approvals.
fn timed_out<S, Q>(facts: &mut Vec<Fact>, message: String) -> Stop<S, Q> {
    let end = End::approval_timed_out(message.clone());
    let reason = end.reason.into();
    facts.push(Fact::fails(conditions::APPROVED, reason, message));
    Stop::End(end)
}

/// Returns the audit records for a request that begins to wait, and again when the requested access differs
/// from its status: notifications to approvers depend on them.
pub(in crate::access) fn requested<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &StoredRequest<'_>,
    known: &FactsOf<K>,
    assessment: &Assessment,
    said: Option<&ApprovalStatus>,
) -> Vec<Record> {
    let State::Waiting(failure) = &assessment.state else {
        return Vec::new();
    };
    let asked = assessment.approval.as_ref();
    let Some((asked, template)) = asked.zip(known.template.as_deref()) else {
        return Vec::new();
    };
    let Ok(stamp) = request.stamp(kind.keys()) else {
        return Vec::new();
    };
    let Some(config) = policy::approval(stamp.judgement.as_ref(), template) else {
        return Vec::new();
    };
    let (action, decision) = (Action::ApprovalRequested, Decision::Note);
    let record = request.record(now, action, decision, WAITING, &failure.message);
    request_of(record, failure, &config, (stamp.requester, asked), said)
}

/// Creates those audit records from one about the request: requester, approvers and deadline, and one about the
/// escalation of rules. Each is left out if the status already shows it; both are, if the request waits for another
/// reason.
#[must_use]
pub fn request_of(
    mut record: Record,
    failure: &Failure,
    config: &ApprovalConfig,
    (requester, asked): (Requester, &ApprovalStatus),
    said: Option<&ApprovalStatus>,
) -> Vec<Record> {
    if failure.reason != WAITING {
        return Vec::new();
    }
    let who = failure.message.trim_start_matches("waiting for ");
    record.user = Some(requester);
    record.until = Some(asked.until);
    record = record
        .detail(APPROVERS, who)
        .detail("digest", &asked.digest);
    let record_of = |action: Action, subject: &str, notify: bool| {
        let mut record = record.clone();
        record.action = action;
        record.id = Record::id(action, subject);
        match notify {
            true => record,
            false => record.detail(NOTIFY, "false"),
        }
    };
    let said = said.filter(|said| said.digest == asked.digest);
    let shown = said.map(|said| said.escalated.as_slice());
    let shown = shown.unwrap_or_default();
    let escalated = asked.escalated.iter();
    let escalated = escalated.filter(|rule| !shown.contains(rule));
    let escalated: Vec<&str> = escalated.map(String::as_str).collect();
    let subject = format!("{} {}", record.request.uid, asked.digest);
    let mut records = Vec::new();
    if said.is_none() {
        let notify = config.rules.iter().any(|rule| rule.notify);
        records.push(record_of(Action::ApprovalRequested, &subject, notify));
    }
    // A request can be escalated when its approvers are asked for the first time: the routes of both are told.
    if !escalated.is_empty() {
        let subject = format!("{subject} {}", escalated.join(" "));
        let rules = config.rules.iter();
        let mut rules = rules.filter(|rule| escalated.contains(&rule.name.as_str()));
        let notify = rules.any(|rule| rule.escalation.as_ref().is_some_and(|it| it.notify));
        records.push(record_of(Action::ApprovalEscalated, &subject, notify));
    }
    records
}

/// Requires a read from the API server itself before approved access is granted: the watch may not have shown
/// a denial yet. `read` is the result of that read, and `question` requests it.
///
/// # Errors
/// The missing data, or the reason why it could not be read.
pub fn confirmed<S, Q>(
    approvals: Option<&Approvals>,
    read: Option<&Result<Vec<AccessRequestApproval>, Failure>>,
    question: Q,
) -> Result<(), Stop<S, Q>> {
    match (approvals, read) {
        (None, _) | (Some(_), Some(Ok(_))) => Ok(()),
        (Some(_), None) => Err(Stop::Need(question)),
        (Some(_), Some(Err(failure))) => Err(Stop::Wait(failure.clone())),
    }
}

/// Returns the condition that a grant was approved.
#[must_use]
pub fn fact(by: &[Approved]) -> Fact {
    let message = format!("Approved by {}", approvers(by));
    Fact::holds(conditions::APPROVED, message)
}

/// Returns the condition that the approvals of a grant were given, or replaced by on-call checks.
#[must_use]
pub(in crate::access) fn granted(by: &[Approved], on_call: Option<&OnCall>) -> Fact {
    let Some(on_call) = on_call else {
        return fact(by);
    };
    let replaced = on_call.message();
    let message = match by {
        [] => replaced,
        by => format!("Approved by {}; {replaced}", approvers(by)),
    };
    Fact {
        reason: on_call::ON_CALL,
        ..Fact::holds(conditions::APPROVED, message)
    }
}

fn waits<S, Q>(facts: &mut Vec<Fact>, reason: &'static str, message: String) -> Stop<S, Q> {
    facts.push(Fact::fails(conditions::APPROVED, reason, message.clone()));
    Stop::Wait(Failure::invalid(reason, message))
}

/// Returns the approvals in the status of an object: those that approvers were asked for. `waits` is the reason why it
/// waits, `asked` is what the assessment requires, `said` is the content of the status so far, and `failure` is the reason
/// why the plan was not completed. Before the record that asks approvers is stored, the status keeps its content, so that
/// the record is not left out.
#[must_use]
pub fn shown(
    waits: Option<&Failure>,
    asked: Option<&ApprovalStatus>,
    failure: Option<&Failure>,
    said: Option<&ApprovalStatus>,
) -> Option<ApprovalStatus> {
    let is_asked = waits.is_some_and(|it| it.reason == WAITING) && failure == waits;
    asked.filter(|_| is_asked).or(said).cloned()
}
