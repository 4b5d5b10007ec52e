//! `spec.accessConfig.ticket`, and `requireTicket` of an access policy: the change tickets that a request must name.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The maximum length of a change ticket, in bytes.
pub const MAX_TICKET: usize = 128;

/// The rule of the API server for every change ticket: visible characters, no space, and no sequence with which a URL
/// refers to a parent path.
pub(crate) const TICKET: &str =
    r"self.matches(r'^[!-~]*$') && !self.matches(r'(^|[/\\])[.][.]?([/\\]|$)')";

/// The message of [`TICKET`].
pub(crate) const TICKET_MESSAGE: &str =
    "must be printable ASCII without spaces, and no part of it between slashes may be . or ..";

/// Change ticket that a request must name. With neither field, any ticket is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TicketConfig {
    /// Regular expression that the whole ticket must match, such as INC-[0-9]+. Any ticket matches if
    /// unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub pattern: Option<String>,

    /// Name of a ticket check in the operator's configuration (the chart's value tickets.checks). oz
    /// queries its server before the grant and while it lasts; a ticket that is closed ends the grant. No
    /// query if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub check: Option<String>,
}
