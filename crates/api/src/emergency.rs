//! `spec.accessConfig.emergency`, and `emergency` of an access policy: the users who get access without approvals, and
//! the users who review it afterwards.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{DURATION, DURATION_MESSAGE};

/// The value of `emergency.maxDuration` if a template names none.
pub const DEFAULT_EMERGENCY_DURATION: &str = "1h";
/// The value of `emergency.review.deadline` if a template names none.
pub const DEFAULT_REVIEW_WITHIN: &str = "24h";
/// The value of `emergency.openReviews` if a template names none.
pub const DEFAULT_OPEN_REVIEWS: i32 = 2;

/// Users who get access without approvals, its maximum duration, and the review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmergencyConfig {
    /// Groups that may declare an emergency, at most 64. They need not be among allowedGroups.
    /// Service accounts do not count as members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,

    /// Users who may declare an emergency, by the user name of the API server, at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub users: Vec<String>,

    /// Maximum duration of access in an emergency, in units from h to ns, such as 30m. In a template, it must
    /// not exceed maxDuration of the template.
    #[serde(default = "default_max_duration")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub max_duration: String,

    /// Reviewers of the emergency, and the time in which they must review it.
    pub review: ReviewConfig,

    /// Number of unreviewed emergencies of a person, by all templates, from which on further emergencies of
    /// this person are denied; from 1 to 16.
    #[serde(default = "default_open_reviews")]
    #[schemars(range(min = 1, max = 16))]
    pub open_reviews: i32,
}

/// Users who review an emergency. The requester never counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewConfig {
    /// Time from the grant until which the review is due, in units from h to ns, such as 24h.
    #[serde(default = "default_within")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub deadline: String,

    /// Groups that may review, at most 64. Service accounts do not count as members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,

    /// Users who may review, by the user name of the API server, at most 64. Service accounts count if they
    /// are named here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub users: Vec<String>,
}

fn default_max_duration() -> String {
    DEFAULT_EMERGENCY_DURATION.to_owned()
}

fn default_within() -> String {
    DEFAULT_REVIEW_WITHIN.to_owned()
}

fn default_open_reviews() -> i32 {
    DEFAULT_OPEN_REVIEWS
}

/// Users who may review an emergency, as the template named them at the time of the grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reviewers {
    /// Groups that may review.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,

    /// Users who may review.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub users: Vec<String>,
}

/// A user whose access is reviewed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct Reviewed {
    /// User name.
    #[schemars(length(max = 1024))]
    pub user: String,

    /// Unique ID of the user from the identity provider; empty if it provides none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub uid: String,
}

/// The audit records of a request when its review was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct RecordsSoFar {
    /// Number of audit records.
    #[schemars(range(min = 0))]
    pub count: i64,

    /// Digest of the names of the audit records, in ascending order of time; each name contains a part of
    /// the record's digest.
    #[schemars(length(max = 128))]
    pub digest: String,
}

/// Finding of the reviewer, which is written once, together with reason. Justified: the emergency was justified.
/// Unjustified: there was no emergency, or the user did more than it required. FollowUp: further action is
/// required, which the reason names.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::EnumIter,
)]
#[strum(ascii_case_insensitive)]
pub enum Finding {
    /// The emergency was justified.
    #[default]
    Justified,
    /// There was no emergency, or the user did more than it required.
    Unjustified,
    /// The emergency requires further action, which the reason names.
    FollowUp,
}

/// Observed state of a review.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewStatus {
    /// Conditions of the review, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

impl From<&ReviewConfig> for Reviewers {
    fn from(config: &ReviewConfig) -> Self {
        Self {
            groups: config.groups.clone(),
            users: config.users.clone(),
        }
    }
}
