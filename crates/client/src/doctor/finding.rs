//! The findings that checks return.

use std::fmt;

use kube::core::ObjectMeta;
use oz_api::Name;
use serde::{Serialize, Serializer};

use crate::failure::Result;

/// The subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The API server responds.
    ApiServer,
    /// The clocks here and there agree.
    Clock,
    /// The kinds of oz are installed.
    Kinds,
    /// The user may request access.
    YourRights,
    /// The webhook stamps requests.
    Webhook,
    /// The templates of the namespace are ready.
    Templates,
    /// Objects that oz failed to read.
    Unreadable,
    /// The hooks of oz are registered.
    Registration,
    /// Hooks of other projects for the kinds of oz.
    OtherRegistrations,
    /// Registrations of oz with a Service that no longer exists.
    OutlivingRegistrations,
    /// The certificates of the hooks are valid.
    Certificates,
    /// The operator holds its lease.
    Operator,
    /// The operator may do its work.
    OperatorsRights,
    /// The configuration is valid, and all pods started with it.
    Configuration,
    /// The name servers of pods that may connect to name servers only.
    NameServers,
    /// The admission policies are as they were installed.
    Policies,
    /// The public keys of the audit trail are published.
    AuditKeys,
    /// The Secrets with the keys of the components exist.
    SigningKeys,
    /// Composites work as declared.
    Composites,
    /// Harness runs can begin.
    HarnessRuns,
    /// Brokers can lend credentials by the broker policies.
    BrokerPolicies,
    /// The versions here and there are the same.
    Versions,
    /// Rights to pods without oz.
    StandingRights,
    /// Windows of transient bindings that have yet to open.
    WaitingWindows,
}

impl Check {
    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiServer => "API server",
            Self::Clock => "clock",
            Self::Kinds => "oz's kinds",
            Self::YourRights => "your rights",
            Self::Webhook => "webhook",
            Self::Templates => "templates",
            Self::Unreadable => "what oz reads",
            Self::Registration => "registration",
            Self::OtherRegistrations => "other registrations",
            Self::OutlivingRegistrations => "outliving registrations",
            Self::Certificates => "certificates",
            Self::Operator => "operator",
            Self::OperatorsRights => "operator's rights",
            Self::Configuration => "configuration",
            Self::NameServers => "name servers",
            Self::Policies => "policies",
            Self::AuditKeys => "audit keys",
            Self::SigningKeys => "signing keys",
            Self::Composites => "composites",
            Self::HarnessRuns => "harness runs",
            Self::BrokerPolicies => "broker policies",
            Self::Versions => "versions",
            Self::StandingRights => "standing rights",
            Self::WaitingWindows => "waiting windows",
        }
    }

    pub(super) fn good(self, message: impl Into<String>) -> Finding {
        self.found(Verdict::Good, message)
    }

    pub(super) fn wrong(self, message: impl Into<String>, fix: impl Into<String>) -> Finding {
        self.found(Verdict::Wrong { fix: fix.into() }, message)
    }

    pub(super) fn unknown(self, message: impl Into<String>) -> Finding {
        self.found(Verdict::Unknown, message)
    }

    /// Returns the finding of a check; one that failed found nothing out.
    pub(super) fn concluded(self, finding: Result<Finding>) -> Finding {
        finding.unwrap_or_else(|failure| self.unknown(failure.message()))
    }

    fn found(self, verdict: Verdict, message: impl Into<String>) -> Finding {
        Finding {
            check: self,
            object: None,
            verdict,
            message: message.into(),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// The object, if the finding is about a single one. The message names it, too.
    #[serde(skip)]
    pub object: Option<Object>,
    /// The result.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The reason for the verdict.
    pub message: String,
}

impl Finding {
    /// Adds the object.
    pub(super) fn about(mut self, object: Object) -> Self {
        self.object = Some(object);
        self
    }

    /// Checks whether the finding is a problem.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        matches!(self.verdict, Verdict::Wrong { .. })
    }

    /// Checks whether the examination ends here: without an API server, all other results are unknown.
    pub(super) fn ends_the_examination(&self) -> bool {
        self.is_wrong() && matches!(self.check, Check::ApiServer | Check::Clock)
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// No problem.
    Good,
    /// A problem.
    Wrong {
        /// The text of the repair.
        fix: String,
    },
    /// The check was not possible.
    Unknown,
}

/// An object in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The kind, as kubectl takes it.
    pub kind: &'static str,
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl Object {
    /// Returns a cluster-scoped object.
    pub(super) fn of_cluster(kind: &'static str, name: &str) -> Self {
        Self {
            kind,
            namespace: None,
            name: name.to_owned(),
        }
    }

    /// Returns an object in a namespace.
    pub(super) fn in_namespace(kind: &'static str, namespace: &str, name: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..Self::of_cluster(kind, name)
        }
    }

    /// Returns a stored object.
    pub(super) fn from_metadata(kind: &'static str, metadata: &ObjectMeta) -> Result<Self> {
        Ok(Self {
            namespace: metadata.namespace.clone(),
            ..Self::of_cluster(kind, name(metadata)?)
        })
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        match namespace {
            Some(namespace) => write!(f, "{kind} {namespace}/{name}"),
            None => write!(f, "{kind} {name}"),
        }
    }
}

/// Returns the name of a stored object.
pub(super) fn name(metadata: &ObjectMeta) -> Result<&str> {
    Ok(Name::from_metadata(metadata)?.as_str())
}
