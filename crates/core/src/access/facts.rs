//! What is known when it is decided about a request, and what may have to be found out first.

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

/// What is known besides the request and its objects: what the edge holds anyway, and the answers to what
/// was asked. What was not asked yet is `None`.
#[derive(Debug)]
pub struct Facts<T, W> {
    /// The template that the request names, if there is one.
    pub template: Option<Arc<T>>,
    /// What is known of the request that this one continues.
    pub continued: Option<Continued>,
    /// The answers of those who are asked to approve the request, as the watch has shown them.
    pub approvals: Vec<AccessRequestApproval>,
    /// The answer to [`Question::Approvals`].
    pub confirmed: Option<Result<Vec<AccessRequestApproval>, Failure>>,
    /// The locks that there are, as the watch has shown them.
    pub locks: Locks,
    /// What servers said of the ticket that the request names.
    pub tickets: Tickets,
    /// The answer to [`Question::Emergencies`].
    pub unreviewed: Option<Result<usize, Failure>>,
    /// What has the name of the pod that was granted, if that is known.
    pub pod: Option<PodSeen>,
    /// The pod that this process made for the request, if it did.
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

/// How the Role of a grant is called, and who else may bind to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleName {
    /// A reserved name with a number; `None` if there is none for it, and it gets a name of its own.
    pub number: Option<String>,
    /// Whether a policy keeps others from binding to Roles of grants, for longer than any watch is behind.
    pub kept: bool,
}

/// How many NetworkPolicies of a namespace are looked at, to tell which of them open what a template
/// closes.
pub const MAX_POLICIES: u32 = 500;

/// How many answers to one request are read to tell whether it is approved; with more, it is not.
pub const MAX_ANSWERS: u32 = 1_000;

/// What must be found out before it can be decided about a request. It is asked in this order, and only
/// what the answer to matters: a request that waits, was granted or is over costs no reads.
#[derive(Clone, Debug)]
pub enum Question {
    /// Is the request being deleted or gone, by the API server's own word? What the garbage collector
    /// removes then looks as if somebody meddled with the grant, if its watch is ahead of the request's:
    /// ask before somebody is suspected.
    Deletion,
    /// What has the name of the grant of a request without a stamp, whoever made it? It may be older than
    /// oz, and the program that was there before may have granted it.
    Predecessor,
    /// Which other request carries the very same stamp?
    SameStamp,
    /// What is there of this workload?
    Workload(CrossVersionObjectReference),
    /// Is the pod that was chosen still there, and what are its containers able to? If it is gone, the
    /// answer is another [`Facts::workload`].
    Probes(Box<Chosen>),
    /// Which NetworkPolicies are in the namespace, at most [`MAX_POLICIES`]?
    Policies,
    /// Could the template's author make this pod themselves?
    Trial(Box<Trial>),
    /// Which of the reserved names is the Role to have? Others bind to these already.
    RoleName(Vec<String>),
    /// What do those say who are asked to approve the request, by the API server's own word? At most
    /// [`MAX_ANSWERS`].
    Approvals,
    /// How many other emergencies of this person are unreviewed? If there is room for one more, it is this
    /// request's from then on.
    Emergencies(Box<ReviewLimit>),
}

/// How many unreviewed emergencies one person may have.
#[derive(Clone, Debug)]
pub struct ReviewLimit {
    /// Whose it is.
    pub requester: Requester,
    /// From how many unreviewed ones on there is none.
    pub most: usize,
}

/// A pod that was chosen among those of a workload.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The pod.
    pub pod: Pod,
    /// The workload.
    pub of: CrossVersionObjectReference,
}

/// A pod that is to be tried before it is made.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The pod, without the decision that it will carry.
    pub pod: Child,
    /// Name of the template.
    pub template: String,
    /// Who wrote it.
    pub author: Requester,
}

/// A pod as the API server made it for a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodMade {
    /// Its UID.
    pub uid: String,
    /// Digest of what it runs.
    content: String,
    /// Digest of what can be changed of it.
    changeable: String,
}

impl PodMade {
    /// The pod that was made; `None` if this is none.
    #[must_use]
    pub fn of(live: &Live) -> Option<Self> {
        let spec = &live.object.data["spec"];
        (live.resource.kind == "Pod").then(|| Self {
            uid: live.object.metadata.uid.clone().unwrap_or_default(),
            content: build::content(spec),
            changeable: build::changeable(spec),
        })
    }

    /// Digest of what it runs, by which the decision tells it.
    pub(super) fn runs(&self, content: &str) -> bool {
        self.content == content
    }
}

/// What has a name among pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// The name.
    pub name: String,
    /// UID of the pod that has it; `None` if none has.
    pub uid: Option<String>,
}

impl PodSeen {
    /// Why the pod of a grant is not there any more; `None` if it is, or this is about another.
    pub(super) fn replaced(&self, grant: &Grant) -> Option<String> {
        if grant.own_pod.is_some() || self.name != grant.pod.name {
            return None;
        }
        let name = &self.name;
        match &self.uid {
            Some(uid) if *uid == grant.pod.uid => None,
            Some(_) => Some(format!("pod {name} was replaced by another of its name")),
            None => Some(format!("pod {name} is gone")),
        }
    }
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
    /// As if nothing else were in the cluster that could matter: no other request, no policy, nothing
    /// that another program made.
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
            unreviewed: Some(Ok(0)),
            predecessor: Some(Ok(Vec::new())),
            ..Self::default()
        }
    }
}
