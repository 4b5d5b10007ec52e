//! `spec.accessConfig.emergency`: the users who get access without approvals, and the users who review it afterwards.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{DURATION, DURATION_MESSAGE};

/// The value of `emergency.maxDuration` if a template names none.
pub const DEFAULT_EMERGENCY_DURATION: &str = "1h";
/// The value of `emergency.review.within` if a template names none.
pub const DEFAULT_REVIEW_WITHIN: &str = "24h";
/// The value of `emergency.openReviews` if a template names none.
pub const DEFAULT_OPEN_REVIEWS: i32 = 2;

/// Who may get in without approvals, for how long, and who looks at it afterwards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmergencyConfig {
    /// Groups whose members may, whether or not they are among allowedGroups. Service accounts are not
    /// among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,

    /// Users who may, by the name that the API server knows them by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub users: Vec<String>,

    /// The longest that access can last, as a number with a unit for each part: 30m, 1h30m. No longer than
    /// the maxDuration of the template.
    #[serde(default = "default_max_duration")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub max_duration: String,

    /// Who looks at it afterwards, and until when.
    pub review: ReviewConfig,

    /// How many emergencies of one person may be unreviewed, of whatever template: whoever has as many gets no
    /// further one by this.
    #[serde(default = "default_open_reviews")]
    #[schemars(range(min = 1, max = 16))]
    pub open_reviews: i32,
}

/// Who looks at an emergency afterwards. Whoever asked for it never does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewConfig {
    /// How long after the grant it is due, as a number with a unit for each part: 24h.
    #[serde(default = "default_within")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(DURATION).message(DURATION_MESSAGE))]
    pub within: String,

    /// Groups whose members may review. Service accounts are not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,

    /// Users who may review, by the name that the API server knows them by; service accounts too.
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

/// Who may review one emergency, as the template said when it was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reviewers {
    /// Groups whose members may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub groups: Vec<String>,

    /// Users who may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 512)))]
    pub users: Vec<String>,
}

/// Who is reviewed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct Reviewed {
    /// User name.
    #[schemars(length(max = 1024))]
    pub user: String,

    /// The identity provider's unique id, if it gave one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub uid: String,
}

/// The records of a request as they were when its review was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct RecordsSoFar {
    /// How many there were.
    #[schemars(range(min = 0))]
    pub count: i64,

    /// Digest of their names, the earliest first; each name holds a part of the digest of its record.
    #[schemars(length(max = 128))]
    pub digest: String,
}

/// What somebody found who looked at an emergency.
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
    /// It was an emergency.
    #[default]
    Justified,
    /// It was none, or something else was done than was needed.
    Unjustified,
    /// Something has to be done about it that the reason names.
    FollowUp,
}

/// `status` of a review.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewStatus {
    /// What there is to say about it, one for each type.
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
