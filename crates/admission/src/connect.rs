//! The options that a `CONNECT` review carries as its object.
//!
//! They are API types but not resources, so the generated API crates omit them; a hook on `pods/exec`
//! requires them.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Options of `pods/exec` and `pods/attach` (`PodExecOptions`, `PodAttachOptions`).
///
/// Fields that a later API version adds are kept in [`rest`](Self::rest), and returned unchanged.
///
/// ```
/// use oz_admission::connect::PodStreamOptions;
/// use oz_admission::{Hook, Notes, Operation, Rejection, ResourceRule, Review, validate_fn};
///
/// let terminals = validate_fn(|_, review: &Review<PodStreamOptions>| {
///     match &review.object {
///         Some(options) if options.tty => Err(Rejection::forbidden("NoTerminals", "run one command")),
///         _ => Ok(Notes::none()),
///     }
/// });
/// let rule = ResourceRule::new("", "v1", "pods").subresource("exec");
/// let hook = Hook::validating_on("terminals", rule, terminals).on([Operation::Connect]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStreamOptions {
    /// The kind: `PodExecOptions` or `PodAttachOptions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The API version: `v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// True if the standard input of the process is connected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdin: bool,
    /// True if its standard output is connected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdout: bool,
    /// True if its standard error is connected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stderr: bool,
    /// True if the process gets a terminal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tty: bool,
    /// The container; empty or absent means the default container of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The command line, for `exec` only. The API server sends `null` if there is none.
    #[serde(
        default,
        deserialize_with = "null_or",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub command: Vec<String>,
    /// Fields that this version does not define.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Options of `pods/portforward`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPortForwardOptions {
    /// The kind: `PodPortForwardOptions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The API version: `v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The ports to forward; empty over SPDY, where streams name them later.
    #[serde(
        default,
        deserialize_with = "null_or",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ports: Vec<i32>,
    /// Fields that this version does not define.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

fn null_or<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
