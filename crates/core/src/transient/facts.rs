//! What is known of a transient binding, what must be found out, and where it stands by that.

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::PolicyRule;
use oz_api::{AccessRequestApproval, ApprovalStatus, Phase, Requester, RoleReference};

use super::grant::Grant;
use super::waiting::WaitingWindow;
use crate::access::fact::Fact;
use crate::access::lock::Locks;
use crate::controller::Failure;
use crate::lifecycle;

/// What is known besides the object and its binding. What was not asked yet is `None`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The locks that there are, as the watch has shown them.
    pub locks: Locks,
    /// The answer to [`Question::Waiting`].
    pub waiting: Option<Vec<WaitingWindow>>,
    /// The answer to [`Question::SameStamp`]: the name of another object, if there is one.
    pub same_stamp: Option<Option<String>>,
    /// The answer to [`Question::Lookup`].
    pub lookup: Option<Lookup>,
    /// What those said who were asked to approve it, as the watch has shown it.
    pub approvals: Vec<AccessRequestApproval>,
    /// The answer to [`Question::Approvals`].
    pub confirmed: Option<Result<Vec<AccessRequestApproval>, Failure>>,
}

/// What must be found out before a binding can wait or be made, in this order. What waits or is over costs no
/// reads: which others wait is in stores.
#[derive(Clone, Debug)]
pub enum Question {
    /// Which bindings of this user wait for their windows to open, of all kinds?
    Waiting(Requester),
    /// Which other object carries the very same stamp?
    SameStamp,
    /// What is there of the role, and of the name of the binding?
    Lookup(Box<Want>),
    /// What do those say who were asked to approve it, by the API server itself?
    Approvals,
}

/// What was found when a binding was about to be made.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The rules of the role; `None` if there is no such role.
    pub role: Result<Option<Vec<PolicyRule>>, Failure>,
    /// Whether the requester may bind the role themselves, by the API server's own judgement.
    pub may_bind: Result<bool, Failure>,
    /// Whether something else has the name that the binding would have.
    pub taken: Result<bool, Failure>,
}

/// What must be looked up before a binding can be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// Who asked.
    pub requester: Requester,
    /// The role.
    pub role: RoleReference,
    /// The namespace; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// Name of the binding.
    pub name: String,
}

/// Where an object stands.
pub type State = lifecycle::State<Grant, Grant, Opens>;

/// Where an object stands, and what is known of those who have to approve it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// Where it stands.
    pub state: State,
    /// Whether those have approved it who have to, if any have.
    pub(super) approved: Option<Fact>,
    /// What others are asked, as the status says it.
    pub(super) approval: Option<ApprovalStatus>,
    /// When it stops waiting, if it does.
    pub(super) waits_until: Timestamp,
    /// When an approval counts again whose author is locked out until then, if there is one.
    pub(super) unlocked_at: Option<Timestamp>,
}

/// What must be found out before it can be said where an object stands.
pub(super) struct Need {
    pub(super) question: Question,
    pub(super) until: Timestamp,
}

/// It waits for its window, which opens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opens(pub Timestamp);

/// Why no binding is made.
pub(super) type Otherwise = lifecycle::Otherwise<State, Question>;

pub(super) fn denied(failure: Failure) -> State {
    State::Refused(Phase::Denied, failure)
}
