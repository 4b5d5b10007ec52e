//! What the containers of a run and the broker say to each other, over TLS, as JSON. The run is never named: the
//! broker knows it by the pod that the token of the caller is bound to.

use serde::{Deserialize, Serialize};

use super::RunEvent;

/// The most bytes that a body may have.
pub const MAX_BODY: usize = 64 * 1024;
/// The most bytes that a termination message may have: the kubelet cuts it there.
pub const MAX_RESULT: usize = 4096;

/// The route of the run of the caller: `GET`, answered by [`RunAnswer`].
pub const RUN_PATH: &str = "/v1/run";
/// The route that takes events: `POST` of a [`Report`], answered by 204.
pub const REPORT_PATH: &str = "/v1/report";

/// The run of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunAnswer {
    /// Its inline prompt; absent if it has its prompt from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// The last events of a run, without texts of prompts and answers, the oldest first. They replace those that were
/// reported before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The events.
    pub events: Vec<RunEvent>,
}

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// One word that programs read, such as `RunOver`.
    pub code: String,
    /// The same for people.
    pub message: String,
}
