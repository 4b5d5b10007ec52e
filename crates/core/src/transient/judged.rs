//! The effect of access policies on a transient binding, as sealed in its stamp at its creation: a denial, required
//! approvals, a change ticket, the terms of an emergency, and the maximum duration.
//! See docs/adr/0028-what-policies-said-is-sealed.md.

use jiff::Timestamp;
use oz_api::duration::GoDuration;
use oz_api::{ApprovalConfig, Phase, Requester};
use oz_trail::{Action, Decision, Record};

use super::facts::{Assessment, Facts, State};
use super::kind::{Binding, Kind, StoredBinding, Transient};
use crate::access::approval::{self, ApprovalRequest, Approvals, Candidate};
use crate::access::decide::{self, Ask, REASON_REQUIRED};
use crate::access::denial::Denial;
use crate::access::emergency;
use crate::access::policy::{self, Judgement};
use crate::access::stamp::{self, Stamp, StampError};
use crate::access::ticket;
use crate::controller::Plan;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::after;
use crate::validate::MAX_REQUEST_NAME;

/// Reason of a denial for a kind that cannot name a change ticket, if an access policy requires one.
const NO_TICKET: &str = "CannotNameTicket";
/// Reason of a denial for a kind that cannot wait for approvals, if an access policy requires some.
const NOT_APPROVABLE: &str = "NotApprovable";

impl Binding<'_> {
    /// Opens the stamp of the object, with its requester and the judgement of the access policies.
    ///
    /// # Errors
    /// The reason why the stamp is missing or invalid.
    pub fn stamp(&self, keys: &Keys) -> Result<Stamp, StampError> {
        stamp::open(keys, self.kind, self.metadata, &self.spec_digest)
    }

    /// Returns the content of the binding that access policies and change tickets depend on.
    #[must_use]
    pub fn ask(&self) -> Ask<'_> {
        let terms = self.terms.as_ref().ok();
        Ask {
            reason: terms.and_then(|terms| terms.reason.as_deref()),
            ticket: terms.and_then(|terms| terms.ticket.as_deref()),
            emergency: terms.is_some_and(|terms| terms.emergency),
            container: None,
        }
    }

    /// Checks whether the access policies permit the binding to this requester.
    ///
    /// # Errors
    /// The cause, and the next step of the requester.
    pub fn permitted(
        &self,
        judgement: Option<&Judgement>,
        requester: &Requester,
    ) -> Result<(), Denial> {
        let ask = self.ask();
        if !self.is_approvable {
            policy::permits(judgement)?;
            return self.requires_nothing(judgement);
        }
        policy::permits_ask(judgement, ask)?;
        self.emergency(judgement, requester).map(drop)
    }

    /// Checks whether the access policies require neither a reason nor approvals nor a change ticket of a published kind,
    /// which has no fields for them.
    fn requires_nothing(&self, judgement: Option<&Judgement>) -> Result<(), Denial> {
        let Some(judgement) = judgement else {
            return Ok(());
        };
        let (kind, group) = (self.kind, oz_api::GROUP);
        let version = &self.api_version;
        if let Some(policy) = &judgement.require_reason {
            let why = format!(
                "AccessPolicy {policy} requires a reason, and a {kind} of {version} cannot give one; \
                 create a {kind} of {group} with spec.reason instead"
            );
            return Err(Denial::new("ReasonRequired", why));
        }
        if let Some(rule) = judgement.tickets.first() {
            let why = format!(
                "AccessPolicy {} requires a change ticket, and a {kind} of {version} cannot name one; \
                 create a {kind} of {group} with spec.ticket instead",
                rule.policy
            );
            return Err(Denial::new(NO_TICKET, why));
        }
        if policy::rules(Some(judgement)).is_none() {
            return Ok(());
        }
        let names = judgement.names();
        let why = format!(
            "AccessPolicy {names} requires approvals, and a {kind} of {version} cannot wait for \
             them; create a {kind} of {group} instead"
        );
        Err(Denial::new(NOT_APPROVABLE, why))
    }

    /// Returns the terms of the declared emergency of this requester; `None` if the binding declares none.
    ///
    /// # Errors
    /// The denial, and the next step of the requester.
    pub fn emergency(
        &self,
        judgement: Option<&Judgement>,
        requester: &Requester,
    ) -> Result<Option<emergency::Terms>, Denial> {
        let Some(terms) = self.terms.as_ref().ok().filter(|terms| terms.emergency) else {
            return Ok(None);
        };
        let reason = terms.reason.as_deref();
        if reason.is_none_or(|reason| reason.trim().is_empty()) {
            let why = format!("an emergency requires a reason{REASON_REQUIRED}");
            return Err(Denial::new("ReasonRequired", why));
        }
        if terms.subjects != [decide::subject(requester)] {
            let why = format!(
                "an emergency binds its requester alone; name only {} in spec.subjects, or create it \
                 without spec.emergency",
                requester.user
            );
            return Err(Denial::new("EmergencyForOthers", why));
        }
        let length = self.metadata.name.as_ref().map_or(0, String::len);
        if length > MAX_REQUEST_NAME {
            let why = format!(
                "the name of an emergency has at most {MAX_REQUEST_NAME} characters, since its review is named after \
                 it; choose a shorter name"
            );
            return Err(Denial::new("NameTooLong", why));
        }
        policy::emergency_terms(judgement, requester).map(Some)
    }
}

impl StoredBinding<'_> {
    /// Returns the binding as a candidate for approvals. Approvals of a cluster-wide binding are in `own_namespace`,
    /// the namespace of oz: a right to approve in another namespace does not extend to the cluster.
    #[must_use]
    pub fn candidate<'b>(&'b self, own_namespace: &'b str) -> Candidate<'b> {
        let phase = self.status.map_or(Phase::Pending, |status| status.phase);
        Candidate {
            kind: self.kind,
            identity: self.identity(),
            metadata: self.metadata,
            answered_in: self.metadata.namespace.as_deref().or(Some(own_namespace)),
            template: None,
            spec_digest: self.spec_digest.clone(),
            phase,
            subjects: match &self.terms {
                Ok(terms) => &terms.subjects,
                // Nothing is granted by such an object.
                Err(_) => &[],
            },
            emergency: self.ask().emergency,
        }
    }

    /// Returns the approvals that these rules require; `None` if the rules are invalid. Their timeout ends with the
    /// time for which the object waits for its binding.
    #[must_use]
    pub fn asked<'b>(
        &self,
        own_namespace: &str,
        requester: &'b Requester,
        config: &'b ApprovalConfig,
    ) -> Option<ApprovalRequest<'b>> {
        let candidate = self.candidate(own_namespace);
        let asked =
            ApprovalRequest::from_candidate(&candidate, requester, &self.spec_digest, config)?;
        let terms = self.terms.as_ref().ok()?;
        Some(ApprovalRequest {
            until: asked.until.min(terms.gives_up(self.created())),
            ..asked
        })
    }
}

/// Returns the expiry of a binding that begins `now` and would last until `until`, shortened to the maximum of the
/// access policies.
#[must_use]
pub fn limit(
    until: Timestamp,
    now: Timestamp,
    judgement: Option<&Judgement>,
    emergency: bool,
) -> Timestamp {
    let longest = longest(judgement, emergency);
    longest.map_or(until, |longest| until.min(after(now, longest)))
}

/// Returns the maximum duration of a binding by the access policies, if they set one.
pub(super) fn longest(judgement: Option<&Judgement>, emergency: bool) -> Option<GoDuration> {
    let of_emergency = policy::emergency_longest(judgement).filter(|_| emergency);
    policy::ceiling(judgement)
        .into_iter()
        .chain(of_emergency)
        .min()
}

impl<K: Kind> Transient<K> {
    /// Returns the state of the required approvals; `None` if none are required, or if the rules are invalid.
    pub(super) fn approvals(
        &self,
        now: Timestamp,
        binding: &StoredBinding<'_>,
        stamp: &Stamp,
        known: &Facts,
    ) -> Option<Approvals> {
        let config = policy::rules(stamp.judgement.as_ref())?;
        let own = &self.policy.own_namespace;
        let asked = binding.asked(own, &stamp.requester, &config)?;
        Some(Approvals::evaluate(
            (&binding.candidate(own), &asked),
            (&known.approvals, known.confirmed.as_ref()),
            (&self.keys, &known.locks),
            now,
        ))
    }
}

/// Creates the audit records of an object that begins to wait for approvals, and of its escalation.
pub(super) fn requested<K: Kind>(
    transient: &Transient<K>,
    now: Timestamp,
    binding: &StoredBinding<'_>,
    assessment: &Assessment,
) -> Vec<Record> {
    let State::Waiting(failure) = &assessment.state else {
        return Vec::new();
    };
    let stamp = binding.stamp(&transient.keys);
    let Some((asked, stamp)) = assessment.approval.as_ref().zip(stamp.ok()) else {
        return Vec::new();
    };
    let Some(config) = policy::rules(stamp.judgement.as_ref()) else {
        return Vec::new();
    };
    let (action, decision) = (Action::ApprovalRequested, Decision::Note);
    let message = failure.message.clone();
    let record = binding.record(now, action, decision, approval::WAITING, message);
    let said = binding.status.and_then(|status| status.approval.as_ref());
    approval::request_of(record, failure, &config, (stamp.requester, asked), said)
}

/// Returns the plan of an object that waits for this reason, with the checks of its change ticket if it waits for them.
pub(super) fn with_checks<K: Kind>(
    transient: &Transient<K>,
    now: Timestamp,
    binding: &StoredBinding<'_>,
    known: &Facts,
    reason: &str,
    plan: Plan,
) -> Plan {
    let ask = binding.ask();
    if ask.ticket.is_none() || !ticket::is_awaited(reason) {
        return plan;
    }
    let Ok(stamp) = binding.stamp(&transient.keys) else {
        return plan;
    };
    let (times, asker) = (
        (now, binding.created()),
        (binding.uid(), stamp.requester.user.as_str()),
    );
    match ticket::terms_by(ask, stamp.judgement.as_ref(), []) {
        Some(ticket) => ticket::wait_for(times, asker, (&ticket, &known.tickets), plan),
        None => plan,
    }
}
