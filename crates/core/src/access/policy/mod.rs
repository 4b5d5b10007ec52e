//! Policies over all templates: what they come to for one request ([`combine`]), what they are asked about
//! ([`situation`]), and what becomes of a policy itself ([`status`]). The webhook asks them when a request is
//! created and seals the answer in its stamp, as a [`Judgement`]; it asks again when somebody approves. The
//! operator goes by the seal, and evaluates nothing.

mod combine;
mod effect;
pub mod situation;
pub mod status;
#[cfg(test)]
mod tests;

use oz_api::{ApprovalConfig, TicketConfig, encode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::kinds::AccessTemplate;

pub use combine::{Opinion, combine, too_many};
pub use effect::{
    approval, asks, ceiling, holds, longest, note, permits, rules, stricter,
    stricter_without_template, told,
};
pub use situation::Situation;

/// How many policies a cluster can have. With more, all requests are refused.
pub const MAX_POLICIES: usize = 64;
/// How many rules policies can add up to, beside those of the template.
pub const MAX_RULES: usize = 16;
/// How many demands on a ticket policies can add up to.
pub const MAX_TICKETS: usize = 8;
/// The largest judgement that is sealed, in bytes.
pub const MAX_JUDGEMENT: usize = 16 * 1024;

/// Reason of a request that a policy refuses.
pub const DENIED: &str = "PolicyDenied";
/// Reason of a request that is refused because a policy cannot be asked.
pub const FAILED: &str = "PolicyFailed";
/// Reason of a request whose template is not the one that policies were asked about.
pub const ANOTHER_TEMPLATE: &str = "PolicyOutdated";

/// What the policies, and the condition of the template's own rules, came to for one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judgement {
    /// Digest of the template that was looked at, see [`seen`]; of a transient binding, which has none, of what it
    /// asks for. `None` if there was no template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether the rules of the template apply; `None` if it names no condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// How many policies were asked. If any was, the judgement holds for the template as it was, and for no
    /// other.
    #[serde(default)]
    pub asked: usize,
    /// Those that matched, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Applied>,
    /// Why the request is refused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// Who else has to agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Extra>,
    /// The policy that requires a reason, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_reason: Option<String>,
    /// Which tickets the request must name, all in one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<TicketRule>,
    /// The longest that access can last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Longest>,
}

/// Which ticket a policy requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketRule {
    /// The policy.
    pub policy: String,
    /// What the ticket must be like.
    pub ticket: TicketConfig,
}

/// What the condition of a template's rules came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// They apply.
    Applies,
    /// They do not.
    Exempts,
    /// It could not be evaluated, for this reason, so they apply.
    Failed(String),
}

/// A policy that matched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Applied {
    /// Its name.
    pub name: String,
    /// Digest of what it said.
    pub digest: String,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The policy that does.
    pub policy: String,
    /// Whether that is because it could not be asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Why, and what to do next.
    pub message: String,
}

/// What policies ask of others together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Extra {
    /// The rules, each named after its policy, as in `prod/security`.
    pub rules: Vec<Rule>,
    /// The shortest time that any leaves.
    pub timeout: String,
    /// Whether an answer must give a reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_reason: bool,
}

/// A rule of a policy as it is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its policy and its name.
    pub name: String,
    /// Groups whose members may approve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Users who may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// How many of them must.
    pub approvals: i32,
    /// Whether nobody is told that it waits for this rule.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
}

/// The longest that access can last by the policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Longest {
    /// The policy that says so.
    pub policy: String,
    /// For how long.
    pub duration: String,
}

impl Judgement {
    /// Whether it says anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asked == 0 && self.when.is_none() && self.refused.is_none()
    }

    /// The names of the policies that matched, in one line.
    #[must_use]
    pub fn names(&self) -> String {
        let names = self.policies.iter().map(|one| one.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Policies as records name them: each with its digest.
#[must_use]
pub fn applied(policies: &[Applied]) -> String {
    let each = policies.iter();
    let each = each.map(|one| format!("{} {}", one.name, one.digest));
    each.collect::<Vec<_>>().join(", ")
}

/// Digest of a template as policies see it: of what it says, and of its labels and annotations.
#[must_use]
pub fn seen<T: AccessTemplate>(template: &T) -> String {
    let metadata = template.meta();
    encode::digest(&json!({
        "uid": metadata.uid,
        "spec": template.spec_digest(),
        "labels": metadata.labels,
        "annotations": metadata.annotations,
    }))
}

/// The condition of a template's own rules, if it names one.
#[must_use]
pub fn condition<T: AccessTemplate>(template: &T) -> Option<&str> {
    let approval: &ApprovalConfig = template.config().approval.as_ref()?;
    approval.when.as_deref()
}
