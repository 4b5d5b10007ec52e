//! The facts about a transient binding, the questions that must be answered first, and the resulting state.

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::PolicyRule;
use oz_api::{AccessRequestApproval, ApprovalStatus, Requester, RoleReference, conditions};

use super::grant::Grant;
use super::waiting::WaitingWindow;
use crate::access::approval;
use crate::access::fact::Fact;
use crate::access::kind::ReviewLimit;
use crate::access::lock::Locks;
use crate::access::ticket;
use crate::controller::Failure;
use crate::lifecycle;
use crate::tickets::Tickets;

/// The conditions that the rules establish, and that the status shows.
pub(super) const ESTABLISHED: [&str; 3] = [
    conditions::APPROVED,
    conditions::TICKET_ACCEPTED,
    conditions::EMERGENCY,
];

/// The facts apart from the object and its binding. A fact is `None` until its question was asked.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The locks in the cluster, from the watch.
    pub locks: Locks,
    /// The answer to [`Question::Waiting`].
    pub waiting: Option<Vec<WaitingWindow>>,
    /// The answer to [`Question::SameStamp`]: the name of another object, if there is one.
    pub same_stamp: Option<Option<String>>,
    /// The answer to [`Question::Lookup`].
    pub lookup: Option<Lookup>,
    /// The approvals and denials, from the watch.
    pub approvals: Vec<AccessRequestApproval>,
    /// The answer to [`Question::Approvals`].
    pub confirmed: Option<Result<Vec<AccessRequestApproval>, Failure>>,
    /// The responses of the servers about the change ticket of the binding.
    pub tickets: Tickets,
    /// The answer to [`Question::Emergencies`].
    pub unreviewed: Option<Result<Vec<String>, Failure>>,
}

/// The questions that must be answered before a binding waits or is created, in this order. An object that waits or has
/// ended costs no read: the other waiting bindings are in stores.
#[derive(Clone, Debug)]
pub enum Question {
    /// Reads the bindings of this user, of all kinds, that wait for their windows to open.
    Waiting(Requester),
    /// Searches for another object with the same stamp.
    SameStamp,
    /// Reads the role, and the object with the name of the binding.
    Lookup(Box<Want>),
    /// Reads the approvals and denials from the API server instead of the watch.
    Approvals,
    /// Reads the other unreviewed emergencies of this requester, by the UIDs of their objects. If the limit permits one
    /// more, it is reserved for this binding from then on.
    Emergencies(Box<ReviewLimit>),
}

/// The data that was read before the creation of a binding.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The rules of the role; `None` if the role does not exist.
    pub role: Result<Option<Vec<PolicyRule>>, Failure>,
    /// Whether the requester may bind the role, as the API server decides.
    pub may_bind: Result<bool, Failure>,
    /// Whether another object has the name of the binding.
    pub taken: Result<bool, Failure>,
}

/// The data to read before the creation of a binding.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// The requester.
    pub requester: Requester,
    /// The role.
    pub role: RoleReference,
    /// The namespace; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// Name of the binding.
    pub name: String,
}

/// The state of an object.
pub type State = lifecycle::State<Grant, Grant, Opens>;

/// The state of an object, its conditions, and its approvals.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// The state.
    pub state: State,
    /// The established conditions, of the types in [`ESTABLISHED`].
    pub(super) facts: Vec<Fact>,
    /// The required approvals, as the status shows them.
    pub(super) approval: Option<ApprovalStatus>,
    /// The instant at which the object stops waiting.
    pub(super) waits_until: Timestamp,
    /// The instant at which a lock on an approver ends and the approval counts again, if there is such a lock.
    pub(super) unlocked_at: Option<Timestamp>,
}

impl Assessment {
    /// Creates the assessment of an object in this state, with the conditions that follow from the state alone.
    pub(super) fn new(state: State, waits_until: Timestamp) -> Self {
        let facts = match &state {
            State::Granted(grant) => grant.facts(),
            State::Ending(end, _) => ticket::lost_fact(end).into_iter().collect(),
            _ => Vec::new(),
        };
        Self {
            state,
            facts,
            approval: None,
            waits_until,
            unlocked_at: None,
        }
    }

    /// Returns the approvals in the status after a plan, of which `failure` is the reason why it was not completed.
    pub(super) fn shown(
        &self,
        failure: Option<&Failure>,
        said: Option<&ApprovalStatus>,
    ) -> Option<ApprovalStatus> {
        approval::shown(self.state.waits(), self.approval.as_ref(), failure, said)
    }
}

/// The state of an object before its window, and the instant at which the window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opens(pub Timestamp);
