//! The webhook.

use std::num::NonZeroU16;

use oz_core::access::extra::ExtraKey;
use oz_trail::CONNECTIONS_PER_MINUTE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{NotNegative, Positive, Text};

/// The webhook.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Webhook {
    /// Groups with access to the pods of enforcing namespaces without a grant, also while no replica of the webhook
    /// runs. The ValidatingAdmissionPolicies do not apply to these groups.
    #[schemars(inner(length(min = 1)), extend("uniqueItems" = true))]
    pub break_glass_groups: Vec<String>,
    /// Reviews of the connections of these groups in enforcing namespaces.
    pub break_glass_review: BreakGlassReview,
    /// Time after SIGTERM during which the webhook still answers calls, until the API server sends no more.
    pub drain: NotNegative,
    /// In enforcing namespaces, deny a session that cannot be recorded before it opens.
    pub audit_required: bool,
    /// Keys of the API server's `userInfo.extra`. The webhook stamps their values on requests, and access policies read
    /// them as `requester.extra`. Keys of `authentication.kubernetes.io` and of oz are refused. A request of a user with
    /// more than 4 KiB of values is denied.
    #[schemars(inner(length(min = 1, max = 256), regex(pattern = "^[!-~]+$")), extend("uniqueItems" = true))]
    pub requester_extra: Vec<Text<ExtraKey>>,
    /// Maximum number of connections of one user to pods of enforcing namespaces that are recorded within a minute, on
    /// each replica; 0 for no limit. Further ones are denied (TooManyConnections), except for break-glass groups.
    pub max_connections_per_minute: u32,
    /// Maximum numbers of requests at a time; 0 for no limit.
    pub limits: RequestLimits,
    /// The Service through which the API server connects.
    pub service: Service,
    /// Address at which the API server reaches the webhook, instead of the Service. Port 0 stands for the port that the
    /// webhook listens on, as in https://127.0.0.1:0.
    pub url: Option<String>,
    /// Maintain the webhook configurations. With false, another replica or tool maintains them.
    pub register: bool,
    /// Name of a ConfigMap in oz's namespace. Its `ca.crt` signs the certificates that the API servers present to
    /// webhooks (AdmissionConfiguration, kubeConfigFile): no other client then reaches the hooks. The webhook reads it
    /// at its start, from the directory client-ca of installation.secrets. Empty if the API servers present no
    /// certificate, which is the usual case.
    #[serde(rename = "clientCA")]
    pub client_ca: String,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            break_glass_groups: vec!["system:masters".to_owned()],
            break_glass_review: BreakGlassReview::default(),
            drain: NotNegative::seconds(5),
            audit_required: true,
            requester_extra: Vec::new(),
            max_connections_per_minute: CONNECTIONS_PER_MINUTE,
            limits: RequestLimits::default(),
            service: Service::default(),
            url: None,
            register: true,
            client_ca: String::new(),
        }
    }
}

/// Reviews of the connections of break-glass groups.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct BreakGlassReview {
    /// Period of a review: one review covers the connections of one person in one namespace in this period.
    pub window: Positive,
    /// Time after that period at which the review is due.
    pub deadline: Positive,
    /// Groups of the reviewers; if empty, the reviewers are all users with the ClusterRole oz-review-access in the
    /// namespace.
    #[schemars(inner(length(min = 1)), extend("uniqueItems" = true))]
    pub groups: Vec<String>,
}

impl Default for BreakGlassReview {
    fn default() -> Self {
        Self {
            window: Positive::seconds(3_600),
            deadline: Positive::seconds(24 * 3_600),
            groups: Vec::new(),
        }
    }
}

/// Maximum numbers of requests at a time; 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RequestLimits {
    /// Requests of one user in one namespace that wait for a grant.
    pub waiting: usize,
    /// Requests of one user in one namespace that are granted.
    pub active: usize,
    /// Requests of all users in one namespace that wait or are granted.
    pub namespace: usize,
    /// Requests of one user in one namespace that have ended and still exist (operator.keepFinished).
    pub finished: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            waiting: 20,
            active: 20,
            namespace: 200,
            finished: 200,
        }
    }
}

/// A Service through which the API server connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Service {
    /// Port of the Service.
    pub port: NonZeroU16,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            port: const { NonZeroU16::new(443).unwrap() },
        }
    }
}
