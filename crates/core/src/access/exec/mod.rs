//! Exec access, planned: from a request and what exists to what should happen now.
//!
//! Everything follows from [`ExecAccess::assess`], which looks at the request, its template and
//! its live objects and says in which [`State`] it is; `plan` and `status` only spell that out.

mod assess;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::grant::Grant;
use super::lifecycle;
use super::seal::Keys;
use super::status::{End, Fact, transitions};
use super::target::Workload;
use crate::api::{
    CrossVersionObjectReference, ExecAccessRequest, ExecAccessTemplate, Phase, RequestStatus,
};
use crate::controller::{Controller, Failure, Live, Outcome, Plan, Transition};

/// The controller of ExecAccessRequests.
#[derive(Clone, Debug)]
pub struct ExecAccess {
    /// Opens stamps, seals and opens grants.
    pub keys: Keys,
    /// How long a request is kept as a record after it ended.
    pub keep_finished: SignedDuration,
}

/// What a plan needs besides the request and its objects.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The template that the request names, if there is one.
    pub template: Option<Arc<ExecAccessTemplate>>,
    /// Name of another request that carries the very same stamp.
    pub same_stamp: Option<String>,
    /// The target workload, if [`ExecAccess::wants`] asked for it.
    pub workload: Option<Result<Workload, Failure>>,
}

/// Where a request stands.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It ended, and its status says so.
    Over,
    /// It must end now. The grant is `None` if there never was one.
    Ending(End, Option<Box<Grant>>),
    /// It was granted; nothing that was decided is decided again.
    Granted(Box<Grant>),
    /// It may be granted now.
    Grantable(Box<Grant>),
    /// It is refused for good, in this phase.
    Refused(Phase, Failure),
    /// It cannot be granted yet.
    Waiting(Failure),
    /// The target workload must be looked up to tell.
    Wants(CrossVersionObjectReference),
}

/// A state, with the conditions that were established on the way to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// Where the request stands.
    pub state: State,
    /// What is known, in the order in which it was found out.
    pub facts: Vec<Fact>,
    /// When a request that is not granted stops waiting.
    pub waits_until: Timestamp,
}

impl Controller for ExecAccess {
    type Object = ExecAccessRequest;
    type Observed = Observed;
    type Status = RequestStatus;

    fn name(&self) -> &'static str {
        "execaccessrequest"
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &ExecAccessRequest) -> Option<RequestStatus> {
        object.status.clone()
    }

    fn plan(
        &self,
        now: Timestamp,
        object: &ExecAccessRequest,
        observed: &Observed,
        live: &[Live],
    ) -> Plan {
        plan::plan(self, now, object, observed, live)
    }

    fn status(
        &self,
        now: Timestamp,
        object: &ExecAccessRequest,
        observed: &Observed,
        outcome: &Outcome,
    ) -> RequestStatus {
        status::status(self, now, object, observed, outcome)
    }

    fn orphaned(&self, now: Timestamp, live: &[Live]) -> Plan {
        lifecycle::orphaned(now, &self.keys, live)
    }

    fn transitions(
        &self,
        _: &ExecAccessRequest,
        before: Option<&RequestStatus>,
        after: &RequestStatus,
    ) -> Vec<Transition> {
        transitions(before, after)
    }
}
