//! The operator.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{NotNegative, Number, Positive};

/// The operator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Operator {
    /// Retention of a request after it has ended. By default 1m if it was granted, since the audit trail contains the
    /// grant, and 1h if it was not; 1h for all requests without audit.objects. While the request exists, a user who
    /// applies the same manifest again requests nothing.
    pub keep_finished: Option<NotNegative>,
    /// Timeout for a dedicated pod to become ready.
    pub pod_ready_timeout: NotNegative,
    /// Create a dedicated pod only if admission would allow the author of its template to create it. The operator needs
    /// the right to impersonate every user, and has with it every other right.
    pub impersonate_authors: bool,
    /// Run scripts in the containers to which access is granted: to end sessions with their grant, and to find out in
    /// advance which sessions can be ended this way.
    pub terminate_sessions: bool,
    /// Minutes between two checks of a template's target.
    pub template_reconciliation_interval: Number<0, 1440>,
    /// Number of requests that are reconciled at once.
    pub workers: Number<1, 1024>,
    /// Interval between two searches for Roles and bindings that have the marks of a decision and belong to no
    /// request.
    pub sweep_interval: Positive,
}

impl Default for Operator {
    fn default() -> Self {
        Self {
            keep_finished: None,
            pod_ready_timeout: NotNegative::seconds(300),
            impersonate_authors: false,
            terminate_sessions: true,
            template_reconciliation_interval: Number::new(5),
            workers: Number::new(32),
            sweep_interval: Positive::seconds(600),
        }
    }
}
