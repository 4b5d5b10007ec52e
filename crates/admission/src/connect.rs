//! The options that a `CONNECT` review carries in place of an object.
//!
//! They are API types without being resources, so the generated API crates leave
//! them out; a hook on `pods/exec` needs them all the same.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Options of `pods/exec` and `pods/attach` (`PodExecOptions`, `PodAttachOptions`).
///
/// Whatever the API adds later is kept in [`rest`](Self::rest), and goes back unchanged.
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
    /// `PodExecOptions` or `PodAttachOptions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Whether the standard input of the process is connected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdin: bool,
    /// Whether its standard output is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdout: bool,
    /// Whether its standard error is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stderr: bool,
    /// Whether it gets a terminal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tty: bool,
    /// The container; empty or absent means the pod's default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The command line, for `exec` only. The API server says `null` where there is none.
    #[serde(
        default,
        deserialize_with = "null_or",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub command: Vec<String>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Options of `pods/portforward`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPortForwardOptions {
    /// `PodPortForwardOptions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The ports to forward; empty over SPDY, where streams name them later.
    #[serde(
        default,
        deserialize_with = "null_or",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ports: Vec<i32>,
    /// Fields this version does not know.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

fn null_or<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
