//! The conditions in the status of a run.

use jiff::Timestamp;
use oz_api::conditions;
use oz_api::harness::{HarnessRunStatus, RunCredential};
use oz_core::access::status::Fact;

use super::decided::Decided;
use super::existing::RunEnd;
use super::grants::Granted;
use super::terms;
use crate::isolation::{NOT_CONFINED, unconfined};
use crate::requires::destination;

/// Condition: the template is resolved.
pub(crate) const TEMPLATE_RESOLVED: &str = "TemplateResolved";
/// Condition: the approvals that the template requires are given.
pub(super) const APPROVED: &str = conditions::APPROVED;
/// Condition: the run holds its workspace.
pub(crate) const WORKSPACE_BOUND: &str = "WorkspaceBound";
/// Reason of [`WORKSPACE_BOUND`]: no run holds the workspace, and the run is the next.
pub(crate) const WORKSPACE_FREE: &str = "WorkspaceFree";
/// Condition: the source of the prompt is resolved.
pub(super) const PROMPT_RESOLVED: &str = "PromptResolved";
/// Condition: a broker is available.
pub(crate) const BROKER_READY: &str = "BrokerReady";
/// Condition: the run has the credentials that its template requires.
pub(crate) const CREDENTIALS_READY: &str = "BrokerCredentialsReady";
/// Condition: the run reaches the hosts that its template requires, and no others.
pub(super) const EGRESS_CONFIGURED: &str = "EgressConfigured";
/// Condition: the Job exists.
pub(crate) const JOB_CREATED: &str = "JobCreated";
/// Condition: the agent runs.
pub(super) const POD_READY: &str = "PodReady";

/// Reason of [`CREDENTIALS_READY`] and [`EGRESS_CONFIGURED`]: the policies no longer grant the access with which the
/// run began.
pub(super) const REVOKED: &str = "PolicyRevoked";

/// The conditions of a status, which are set at one instant.
pub(super) struct Conditions<'a> {
    pub(super) status: &'a mut HarnessRunStatus,
    pub(super) generation: Option<i64>,
    pub(super) now: Timestamp,
}

impl Conditions<'_> {
    /// Sets a condition.
    pub(super) fn set(
        &mut self,
        type_: &str,
        holds: bool,
        reason: &str,
        message: impl Into<String>,
    ) {
        let conditions = &mut self.status.conditions;
        conditions::set(
            conditions,
            type_,
            holds,
            reason,
            message,
            self.generation,
            self.now,
        );
    }

    /// Sets the condition that was found.
    pub(super) fn found(&mut self, fact: Fact) {
        self.set(fact.type_, fact.holds, fact.reason, fact.message);
    }

    /// Sets the condition of the confinement.
    pub(super) fn confined(&mut self, found: Fact) {
        self.status.network_policy_enforced = Some(found.holds);
        self.found(found);
    }

    /// Sets the conditions for the credentials and hosts of a run, and for those that its policies no longer grant.
    /// If this is unknown, the earlier condition stays.
    pub(super) fn granted(&mut self, decided: &Decided, granted: Option<&Granted>) {
        let is_known = |type_| conditions::find(&self.status.conditions, type_).is_some();
        let known = [CREDENTIALS_READY, EGRESS_CONFIGURED].map(is_known);
        let (lost_credentials, lost_hosts) = granted.map_or((&[][..], &[][..]), |granted| {
            (&granted.lost_credentials[..], &granted.lost_hosts[..])
        });
        if !decided.credentials.is_empty() && (granted.is_some() || !known[0]) {
            let names: Vec<&str> = decided
                .credentials
                .iter()
                .map(|it| it.name.as_str())
                .collect();
            match lost_credentials.is_empty() {
                true => self.set(CREDENTIALS_READY, true, "Granted", names.join(", ")),
                false => self.set(
                    CREDENTIALS_READY,
                    false,
                    REVOKED,
                    lost_credentials.join("; "),
                ),
            }
            self.status.credentials = match granted {
                Some(granted) => granted.credentials.clone(),
                None => decided
                    .credentials
                    .iter()
                    .map(RunCredential::from)
                    .collect(),
            };
        }
        if !decided.intercepted {
            let message = "the run can reach the broker only";
            self.set(EGRESS_CONFIGURED, true, "Closed", message);
        } else if !lost_hosts.is_empty() {
            let lost: Vec<String> = lost_hosts.iter().map(destination).collect();
            let message = format!(
                "no verified BrokerPolicy grants {} any more",
                lost.join(", ")
            );
            self.set(EGRESS_CONFIGURED, false, REVOKED, message);
        } else if granted.is_some() || !known[1] {
            self.set(EGRESS_CONFIGURED, true, "Granted", hosts(decided));
        }
    }

    /// Sets the conditions of the change ticket and of the emergency of a run.
    pub(super) fn declared(&mut self, decided: &Decided) {
        for fact in terms::facts(decided) {
            self.found(fact);
        }
    }

    /// Sets the condition because of which a run ends: its confinement, its approvals, its change ticket or its emergency.
    pub(super) fn failed(&mut self, end: &RunEnd) {
        if end.reason == NOT_CONFINED {
            self.confined(unconfined(end.message.as_str()));
        }
        if let Some(type_) = terms::failed_condition(end) {
            self.set(type_, false, &end.reason, end.message.as_str());
        }
    }
}

/// Formats the hosts that a run requires, or else those of its credentials.
fn hosts(decided: &Decided) -> String {
    let mut all: Vec<String> = decided.egress.iter().map(destination).collect();
    if all.is_empty() {
        all.extend(decided.credentials.iter().flat_map(|it| it.hosts.clone()));
        all.sort_unstable();
        all.dedup();
    }
    all.join(", ")
}
