//! The facts for the decision about a request, and the questions that precede the decision.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use oz_api::{AccessRequestApproval, CrossVersionObjectReference, Requester, SessionProbe};

use super::continued::Continued;
use super::grant::Grant;
use super::lock::Locks;
use crate::build;
use crate::controller::{Child, Failure, Live};
use crate::tickets::Tickets;

/// The facts apart from the request and its objects: the data that the caller holds anyway, and the answers to the
/// questions. A fact is `None` until its question was asked.
#[derive(Debug)]
pub struct Facts<T, W> {
    /// The template that the request names, if it exists.
    pub template: Option<Arc<T>>,
    /// The data about the request that this one continues.
    pub continued: Option<Continued>,
    /// The approvals and denials of the request, as the watch has shown them.
    pub approvals: Vec<AccessRequestApproval>,
    /// The answer to [`Question::Approvals`].
    pub confirmed: Option<Result<Vec<AccessRequestApproval>, Failure>>,
    /// All locks, as the watch has shown them.
    pub locks: Locks,
    /// The responses of the servers about the change ticket that the request names.
    pub tickets: Tickets,
    /// The answer to [`Question::Emergencies`].
    pub unreviewed: Option<Result<Vec<String>, Failure>>,
    /// The state of the granted pod's name, if it is known.
    pub pod: Option<PodSeen>,
    /// The pod that this process created for the request, if it did.
    pub made: Option<PodMade>,
    /// The answer to [`Question::Deletion`].
    pub is_deleted: Option<bool>,
    /// The answer to [`Question::SameStamp`]: the name of another request, if there is one.
    pub same_stamp: Option<Option<String>>,
    /// The answer to [`Question::Workload`].
    pub workload: Option<Result<W, Failure>>,
    /// The answer to [`Question::Probes`].
    pub probes: Option<Vec<SessionProbe>>,
    /// The answer to [`Question::Policies`].
    pub policies: Option<Result<Vec<NetworkPolicy>, Failure>>,
    /// The answer to [`Question::Trial`].
    pub tried: Option<Result<(), Failure>>,
    /// The answer to [`Question::RoleName`].
    pub role_name: Option<RoleName>,
    /// The answer to [`Question::Predecessor`].
    pub predecessor: Option<Result<Vec<Live>, Failure>>,
}

/// The name of a grant's Role, and the control over bindings to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleName {
    /// A reserved name with a number; `None` if no such name is available, and the Role gets another name.
    pub number: Option<String>,
    /// An admission policy prevents other users from binding to Roles of grants, for longer than any watch lags.
    pub kept: bool,
}

/// The number of NetworkPolicies of a namespace that oz reads to find those that open connections which a template
/// closes.
pub const MAX_POLICIES: u32 = 500;

/// The number of approvals and denials of one request that oz reads for its decision; a request with more is not
/// approved.
pub const MAX_ANSWERS: u32 = 1_000;

/// A question that precedes the decision about a request. The questions are asked in this order, and only if the answer
/// matters: a request that waits, was granted or has ended costs no reads.
#[derive(Clone, Debug)]
pub enum Question {
    /// The deletion of the request, pending or complete, according to the API server itself. If the watch of the
    /// grant's objects is ahead of the request's watch, the deletions of the garbage collector look like drift: this
    /// question precedes a finding of drift.
    Deletion,
    /// The objects with the name of the grant of a request without a stamp, regardless of their author. The request
    /// may be older than oz, and the program that oz replaces may have granted it.
    Predecessor,
    /// The other request that carries the same stamp.
    SameStamp,
    /// The existing parts of this workload.
    Workload(CrossVersionObjectReference),
    /// The existence of the chosen pod, and the capabilities of its containers. If it is gone, the answer is another
    /// [`Facts::workload`].
    Probes(Box<Chosen>),
    /// The NetworkPolicies in the namespace, at most [`MAX_POLICIES`].
    Policies,
    /// The result of a trial whether the template's author could create this pod with their own rights.
    Trial(Box<Trial>),
    /// The reserved name for the Role. Bindings of other authors already refer to the names listed here.
    RoleName(Vec<String>),
    /// The approvals and denials of the request, according to the API server itself. At most [`MAX_ANSWERS`].
    Approvals,
    /// The other unreviewed emergencies of this requester, by the UIDs of their requests. If the limit permits one more,
    /// it is reserved for this request from then on.
    Emergencies(Box<ReviewLimit>),
}

/// The limit of unreviewed emergencies of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewLimit {
    /// The user.
    pub requester: Requester,
    /// The number of unreviewed emergencies from which on no other is granted.
    pub most: usize,
}

/// A pod that was chosen among the pods of a workload.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The pod.
    pub pod: Pod,
    /// The workload.
    pub of: CrossVersionObjectReference,
}

/// A pod to try before its creation.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The pod, without the decision that it will carry.
    pub pod: Child,
    /// Name of the template.
    pub template: String,
    /// The author of the template.
    pub author: Requester,
}

/// A pod as the API server made it for a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodMade {
    /// UID of the pod.
    pub uid: String,
    /// Digest of its programs, their inputs and their accounts.
    content: String,
    /// Digest of the fields of its spec that can be changed.
    changeable: String,
}

impl PodMade {
    /// Returns the created pod; `None` if the object is not a stored pod.
    #[must_use]
    pub fn from_live(live: &Live) -> Option<Self> {
        if live.resource.kind != "Pod" {
            return None;
        }
        let spec = &live.object.data["spec"];
        Some(Self {
            uid: live.object.metadata.uid.clone()?,
            content: build::content(spec),
            changeable: build::changeable(spec),
        })
    }

    /// Checks whether the pod has this digest of content, by which the decision identifies it.
    pub(super) fn runs(&self, content: &str) -> bool {
        self.content == content
    }
}

/// The state of a name among pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// The name.
    pub name: String,
    /// UID of the pod with this name; `None` if no pod has it.
    pub uid: Option<String>,
}

impl PodSeen {
    /// Returns the reason why the pod of a grant no longer exists; `None` if it exists, or if the state is about another
    /// name.
    pub(super) fn replaced(&self, grant: &Grant) -> Option<PodReplaced> {
        if grant.own_pod.is_some() || self.name != grant.pod.name {
            return None;
        }
        let name = &self.name;
        match &self.uid {
            Some(uid) if *uid == grant.pod.uid => None,
            Some(_) => Some(PodReplaced::ByAnother(name.clone())),
            None => Some(PodReplaced::Gone(name.clone())),
        }
    }
}

/// The reason why the pod of a grant no longer exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodReplaced {
    /// Another pod has its name.
    #[error("pod {0} was replaced by another of its name")]
    ByAnother(String),
    /// No pod has its name.
    #[error("pod {0} is gone")]
    Gone(String),
}

impl<T, W> Default for Facts<T, W> {
    fn default() -> Self {
        Self {
            template: None,
            continued: None,
            approvals: Vec::new(),
            confirmed: None,
            locks: Locks::default(),
            tickets: Tickets::default(),
            unreviewed: None,
            pod: None,
            made: None,
            is_deleted: None,
            same_stamp: None,
            workload: None,
            probes: None,
            policies: None,
            tried: None,
            role_name: None,
            predecessor: None,
        }
    }
}

impl<T, W> Facts<T, W> {
    /// Returns the facts of a cluster without any other relevant object: without other requests, policies and objects
    /// of another program.
    #[must_use]
    pub fn alone(template: Option<Arc<T>>) -> Self {
        Self {
            template,
            is_deleted: Some(false),
            same_stamp: Some(None),
            policies: Some(Ok(Vec::new())),
            tried: Some(Ok(())),
            role_name: Some(RoleName::default()),
            confirmed: None,
            unreviewed: Some(Ok(Vec::new())),
            predecessor: Some(Ok(Vec::new())),
            ..Self::default()
        }
    }
}
