//! The messages between the containers of a run and the broker, over TLS, as JSON. They never name the run: the broker
//! identifies it by the pod to which the caller's token is bound.

use serde::{Deserialize, Serialize};

use super::RunEvent;

/// The maximum size of a body in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// The maximum size of a termination message in bytes: the kubelet truncates it there.
pub const MAX_RESULT: usize = 4096;

/// The route of the run of the caller: `GET`, answered by [`RunAnswer`].
pub const RUN_PATH: &str = "/v1/run";
/// The route that takes events: `POST` of a [`Report`], answered by 204.
pub const REPORT_PATH: &str = "/v1/report";

/// The run of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunAnswer {
    /// The inline prompt of the run; absent if its prompt has another source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// The last events of a run, without texts of prompts and answers, the oldest first. They replace the events of earlier
/// reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The events.
    pub events: Vec<RunEvent>,
}

/// The reason why the broker denied a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The code for programs, such as `RunOver`.
    pub code: String,
    /// The message for users.
    pub message: String,
}
