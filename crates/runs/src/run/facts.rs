//! The facts about a run, the questions that must be answered first, and the resulting state.

use std::convert::Infallible;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, HarnessRun, HarnessTemplate, RunPhase, Workspace,
};
use oz_api::{AccessRequestApproval, ApprovalConfig, ApprovalStatus, Requester};
use oz_core::access::kind::ReviewLimit;
use oz_core::access::lock::Locks;
use oz_core::access::policy;
use oz_core::access::status::Fact;
use oz_core::controller::Failure;
use oz_core::lifecycle;
use oz_core::tickets::Tickets;
use serde_json::Value;

use super::decided::Decided;
use super::existing::RunEnd;
use super::grants::Granted;
use crate::authority::Endpoint;
use crate::isolation::Isolation;
use crate::policy::PodSecurity;

/// The data that an assessment requires in addition to the run and its objects.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The HarnessTemplate of the run, in its namespace.
    pub template: Option<Arc<HarnessTemplate>>,
    /// The ClusterHarnessTemplate of the run.
    pub cluster_template: Option<Arc<ClusterHarnessTemplate>>,
    /// The template from which the run's template inherits.
    pub base: Option<Arc<ClusterHarnessTemplate>>,
    /// All broker policies of the run's namespace.
    pub policies: Vec<Arc<BrokerPolicy>>,
    /// Whether the policies are complete: after a start of the process, a run that has begun does not wait for their
    /// list.
    pub has_policies: bool,
    /// The workspace that the run names, or that was created for it.
    pub workspace: Option<Arc<Workspace>>,
    /// Number of runs before this one in the queue of its workspace, without the holder.
    pub ahead: usize,
    /// Number of active runs of the namespace that are before this one in the queue of the limits, with templates to which
    /// the policies with a limit apply.
    pub older: usize,
    /// Address of the broker; `None` until it has an address and a certificate.
    pub broker: Option<Arc<Endpoint>>,
    /// The existing locks, from the watch.
    pub locks: Locks,
    /// The approvals and denials of the run, from the watch.
    pub approvals: Vec<AccessRequestApproval>,
    /// The response to [`Question::Approvals`].
    pub confirmed: Option<Result<Vec<AccessRequestApproval>, Failure>>,
    /// The responses of the servers about the change ticket that the run names.
    pub tickets: Tickets,
    /// The response to [`Question::Emergencies`].
    pub unreviewed: Option<Result<Vec<String>, Failure>>,
    /// The NetworkPolicies of the run's namespace that may select its pods.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
    /// Whether this process created the run's Job, and the status does not report that yet.
    pub job_made: bool,
    /// The response to [`Question::SameStamp`]: the name of another object with the same stamp, if there is one.
    pub same_stamp: Option<Option<String>>,
    /// The response to [`Question::HiddenPod`].
    pub hidden_pod: Option<bool>,
    /// The response to [`Question::PodSecurity`].
    pub pod_security: Option<Result<PodSecurity, Failure>>,
}

/// The data that a decision about a run requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Name of another object with the same stamp.
    SameStamp,
    /// Whether a pod of its Job runs that [`is_hidden`](existing::is_hidden): the Job counts a pod that the watch
    /// does not show.
    HiddenPod,
    /// The level of Pod Security that the namespace of the run enforces; required for a run with intercepted
    /// connections.
    PodSecurity,
    /// The approvals and denials of the run, from the API server instead of the watch.
    Approvals,
    /// The other unreviewed emergencies of the requester, by the UIDs of their objects. If the limit permits one more, it is
    /// reserved for the run from then on.
    Emergencies(Box<ReviewLimit>),
}

impl Facts {
    /// Checks whether approvals of the run may be relevant, as far as its templates and its stamp show without a key.
    #[must_use]
    pub fn may_ask(&self, run: &HarnessRun) -> bool {
        let own = self.template.as_ref().map(|template| &template.spec);
        let cluster = [&self.cluster_template, &self.base].into_iter().flatten();
        let mut specs = own
            .into_iter()
            .chain(cluster.map(|template| &template.spec.0));
        specs.any(|spec| spec.approval.is_some()) || policy::requires_approval(&run.metadata)
    }
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The run has ended.
    Over,
    /// The run cannot begin yet.
    Waiting(Failure),
    /// The run waits for approvals.
    Asking(Failure, Box<Asked>),
    /// The run has its approvals, which the condition names, and is in another state before its start.
    Approved(Box<State>, Fact),
    /// The run requires its own workspace.
    Lacking,
    /// The run is the next holder of its workspace.
    Next,
    /// The run can begin; its NetworkPolicy is created first.
    Confinable(Box<Decided>, Isolation),
    /// The run is confined; its Job is created next.
    Startable(Box<Decided>, Box<Value>, Isolation),
    /// The Job exists, with the current grants; `None` if they are unknown.
    Begun(Box<Decided>, Pending, Isolation, Option<Box<Granted>>),
    /// The run is being ended.
    Ending(RunEnd, Option<Box<Decided>>),
    /// No process of the run is active.
    Ended(RunEnd, Option<Timestamp>, Option<Box<Decided>>),
}

impl State {
    /// Returns the state of a run apart from its approvals, and the condition that it has its approvals, if it waits with
    /// them.
    pub(super) fn split(&self) -> (&Self, Option<&Fact>) {
        match self {
            Self::Approved(state, approved) => (state, Some(approved)),
            state => (state, None),
        }
    }
}

/// The approvals that a run waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// User who requests the run.
    pub submitter: Requester,
    /// Required approvals.
    pub config: ApprovalConfig,
    /// Content of the status.
    pub status: ApprovalStatus,
    /// Instant of the next change without an event: the deadline, or the expiry of a lock on an approver.
    pub changes_at: Timestamp,
}

/// The deadlines of a run that has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Expiry of the run.
    pub until: Option<Timestamp>,
    /// Deadline for the start of its pod.
    pub ready_until: Option<Timestamp>,
    /// Instant from which the status reports why the pod has not started.
    pub reported_from: Option<Timestamp>,
    /// Instant until which the status does not change before the pod starts, so that one update reports all changes.
    pub quiet_until: Option<Timestamp>,
}

/// The reason for which a run does not begin.
pub(super) enum Otherwise {
    State(Box<State>),
    Need(Question),
}

impl Otherwise {
    /// Adds the condition that the run has its approvals to a state in which the run waits for something else.
    pub(super) fn with_approvals(self, approved: Option<Fact>) -> Self {
        match (self, approved) {
            (Self::State(state), Some(approved))
                if matches!(*state, State::Waiting(_) | State::Next | State::Lacking) =>
            {
                State::Approved(state, approved).into()
            }
            (other, _) => other,
        }
    }
}

impl From<State> for Otherwise {
    fn from(state: State) -> Self {
        Self::State(Box::new(state))
    }
}

impl From<Stop> for Otherwise {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Wait(failure) => State::Waiting(failure).into(),
            Stop::Refuse(_, failure) => refused(failure.reason, failure.message),
            Stop::End(end) => refused(end.reason.into(), end.detail().to_owned()),
            Stop::Special(never) => match never {},
            Stop::Need(question) => Self::Need(question),
        }
    }
}

/// The reason why a rule does not hold for a run.
pub(super) type Stop = lifecycle::Stop<Infallible, Question>;

pub(super) fn refused(reason: &str, message: impl Into<String>) -> Otherwise {
    State::Ended(RunEnd::new(RunPhase::Failed, reason, message), None, None).into()
}

pub(super) fn waiting(reason: &'static str, message: impl Into<String>) -> Otherwise {
    State::Waiting(Failure::invalid(reason, message)).into()
}
