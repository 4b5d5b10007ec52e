//! The values of the configuration that determine grants and their terms. The operator and a command that explains a
//! decision create the same controllers from them.

use jiff::SignedDuration;

use crate::access::exec::ExecAccess;
use crate::access::kind::KeepFinished;
use crate::access::pod::PodAccess;
use crate::access::seal::Keys;
use crate::confine::NameServer;
use crate::gate::GateAccount;
use crate::mutate::RenderCache;
use crate::transient::Policy;

/// The time for which a request with an audit record in the cluster is kept without `operator.keepFinished`.
const KEEP_ENDED: SignedDuration = SignedDuration::from_mins(1);
/// The time for which every other request is kept without `operator.keepFinished`.
const KEEP_OTHERS: SignedDuration = SignedDuration::from_hours(1);
/// The values of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Time for which a request is kept after its end.
    pub keep_finished: KeepFinished,
    /// Time within which a dedicated pod must become ready.
    pub pod_ready_timeout: SignedDuration,
    /// Whether oz creates dedicated pods.
    pub pod_access: bool,
    /// Name servers to which pods with no other permitted connections may connect.
    pub name_servers: Vec<NameServer>,
    /// Whether a pod is created only if its template's author could create it.
    pub impersonate_authors: bool,
    /// Whether scripts run in containers, to end sessions and to find out how they can be ended.
    pub terminate_sessions: bool,
    /// Namespaces in which oz grants access; all if empty.
    pub access_namespaces: Vec<String>,
    /// Namespaces of which composites evaluate the policies in process.
    pub policy_namespaces: Vec<String>,
    /// Service account of the gate, if there is one.
    pub gate: Option<GateAccount>,
    /// Permitted transient bindings.
    pub policy: Policy,
}

impl Settings {
    /// Checks whether oz grants access in a namespace.
    #[must_use]
    pub fn serves(&self, namespace: &str) -> bool {
        let mut served = self.access_namespaces.iter();
        self.access_namespaces.is_empty() || served.any(|name| name == namespace)
    }

    /// Returns the controller of ExecAccessRequests.
    #[must_use]
    pub fn exec_access(&self, keys: Keys) -> ExecAccess {
        ExecAccess {
            keys,
            keep_finished: self.keep_finished,
            gate: self.gate.clone(),
        }
    }

    /// Returns the controller of PodAccessRequests.
    #[must_use]
    pub fn pod_access(&self, keys: Keys) -> PodAccess {
        PodAccess {
            keys,
            keep_finished: self.keep_finished,
            gate: self.gate.clone(),
            ready_timeout: self.pod_ready_timeout,
            rendered: RenderCache::default(),
            name_servers: self.name_servers.clone(),
            as_author: self.impersonate_authors,
        }
    }
}

/// Returns the times for which requests are kept. `operator.keepFinished` applies to all; without it, a request
/// with an ended grant is kept for as long as users look at it, if the AuditEvents of the cluster contain it
/// permanently.
#[must_use]
pub fn keep_finished(given: Option<SignedDuration>, audit_objects: bool) -> KeepFinished {
    match given {
        Some(keep) => KeepFinished::all(keep),
        None if audit_objects => KeepFinished {
            ended: KEEP_ENDED,
            others: KEEP_OTHERS,
        },
        None => KeepFinished::all(KEEP_OTHERS),
    }
}
