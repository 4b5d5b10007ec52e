//! Access policies over all templates: their combined result for one request ([`combine`]), their input
//! ([`situation`]), and the status of an access policy itself ([`status`]). The webhook evaluates them when a
//! request is created and seals the result in its stamp, as a [`Judgement`]; it evaluates them again when a
//! user approves. The operator follows the seal, and evaluates nothing.

mod combine;
mod effect;
mod emergency;
#[cfg(test)]
mod emergency_tests;
pub mod situation;
pub mod status;
#[cfg(test)]
mod tests;
mod without_template;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{ApprovalConfig, EmergencyConfig, Escalation, OnCallCheck, TicketConfig, encode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::kinds::AccessTemplate;

pub use combine::{Opinion, combine, too_many};
pub(super) use effect::find_absent;
pub use effect::{
    Stricter, approval, approval_on_call, asks, both, ceiling, holds, joined, longest, not_refused,
    note, on_call_checks, permits, permits_ask, requires_approval, rules, same_template, stricter,
};
pub use emergency::{emergency_longest, emergency_terms};
pub use situation::Situation;
pub use without_template::stricter_ask;

/// The maximum number of access policies in a cluster. With more, all requests are refused.
pub const MAX_POLICIES: usize = 64;
/// The maximum number of rules of all access policies together, in addition to those of the template.
pub const MAX_RULES: usize = 16;
/// The maximum number of requirements for change tickets of all access policies together.
pub const MAX_TICKETS: usize = 8;
/// The maximum size of a sealed judgement, in bytes.
pub const MAX_JUDGEMENT: usize = 16 * 1024;

/// The reason of a request that an access policy refuses.
pub const DENIED: &str = "PolicyDenied";
/// The reason of a request that is refused because an access policy cannot be evaluated.
pub const FAILED: &str = "PolicyFailed";
/// The reason of a request of which the template is not the one for which access policies were evaluated.
pub const ANOTHER_TEMPLATE: &str = "PolicyOutdated";

/// The result of the access policies, and of the condition of the template's own rules, for one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judgement {
    /// Digest of the evaluated template, see [`seen`]; for a transient binding, which has none, of its
    /// request. `None` if there was no template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether the rules of the template apply; `None` if it has no condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// Number of evaluated access policies. If it is not zero, the judgement holds only for the template in
    /// its state at that time.
    #[serde(default)]
    pub asked: usize,
    /// Matching access policies, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Applied>,
    /// Refusal of the request, if it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// Additional required approvals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Extra>,
    /// The access policy that requires a reason, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_reason: Option<String>,
    /// Requirements for the change ticket of the request, all for one ticket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<TicketRule>,
    /// Decisions about emergencies of objects without a template. Empty if no access policy permits one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub emergencies: Vec<EmergencyRule>,
    /// Maximum duration of access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Longest>,
}

/// The requirement of an access policy for a change ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketRule {
    /// Access policy.
    pub policy: String,
    /// Requirement for the change ticket.
    pub ticket: TicketConfig,
}

/// The decision of an access policy about emergencies of objects without a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmergencyRule {
    /// Access policy.
    pub policy: String,
    /// Terms of an emergency; `None` for an access policy that requires approvals or a change ticket, and
    /// permits no emergency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<EmergencyConfig>,
}

/// The result of the condition of a template's rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// The rules apply.
    Applies,
    /// The rules do not apply.
    Exempts,
    /// The condition could not be evaluated, for this reason, so the rules apply.
    Failed(String),
}

/// A matching access policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Applied {
    /// Name of the access policy.
    pub name: String,
    /// Digest of its content.
    pub digest: String,
}

/// The refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The refusing access policy.
    pub policy: String,
    /// Whether the access policy could not be evaluated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Reason, and next step.
    pub message: String,
}

/// The approvals that access policies require together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Extra {
    /// The rules, each named after its access policy, as in `prod/security`.
    pub rules: Vec<Rule>,
    /// The shortest timeout of any of them.
    pub timeout: String,
    /// Whether an approval must give a reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_reason: bool,
}

/// A rule of an access policy as it is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Name of its access policy, and its own name.
    pub name: String,
    /// Groups of which the members may approve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Users who may approve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Number of required approvals.
    pub approvals: i32,
    /// Whether no notification is sent about waiting for this rule.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// The on-call checks of its access policy, of which one that accepts the requester replaces the rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unless: Vec<OnCallCheck>,
    /// The additional approvers after a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<Escalation>,
}

/// The maximum duration of access according to the access policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Longest {
    /// The access policy that sets it.
    pub policy: String,
    /// Maximum duration.
    pub duration: String,
}

impl Judgement {
    /// Checks whether the judgement is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asked == 0 && self.when.is_none() && self.refused.is_none()
    }

    /// Returns the names of the matching access policies, in one line.
    #[must_use]
    pub fn names(&self) -> String {
        let names = self.policies.iter().map(|one| one.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Formats access policies for audit records: each with its digest.
#[must_use]
pub fn applied(policies: &[Applied]) -> String {
    let each = policies.iter();
    let each = each.map(|one| format!("{} {}", one.name, one.digest));
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the limit of `new` that is stricter than that of `sealed`, if there is one.
fn stricter_limit(sealed: Option<&Judgement>, new: Option<&Judgement>) -> Option<Stricter> {
    let (known, longest) = (ceiling(sealed), ceiling(new)?);
    let is_stricter = known.is_none_or(|known| longest < known);
    is_stricter.then_some(Stricter::Duration(longest))
}

/// Returns the digest of a template as access policies see it: of its content, labels and annotations.
#[must_use]
pub fn seen<T: AccessTemplate>(template: &T) -> String {
    seen_as(template.meta(), &template.spec_digest())
}

/// Returns the same of a template with this metadata, of which the content has the digest `spec`.
#[must_use]
pub fn seen_as(metadata: &ObjectMeta, spec: &str) -> String {
    encode::digest(&json!({
        "uid": metadata.uid,
        "spec": spec,
        "labels": metadata.labels,
        "annotations": metadata.annotations,
    }))
}

/// Returns the condition of a template's own rules, if it has one.
#[must_use]
pub fn condition<T: AccessTemplate>(template: &T) -> Option<&str> {
    let approval: &ApprovalConfig = template.config().approval.as_ref()?;
    approval.when.as_deref()
}
