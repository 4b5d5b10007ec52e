//! The result of a call of a function.

use jiff::Timestamp;
use oz_core::controller::Failure;
use serde_json::Value;

use super::protocol::Answer;

/// The reason for a policy without a valid response.
pub const POLICY_FAILED: &str = "PolicyFailed";

/// The hook by which a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The hook for the children of a parent.
    Sync,
    /// The hook for the children of a parent that is being deleted.
    Finalize,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Called {
    /// The response for the current time.
    pub answer: Answer,
    /// The responses from these instants on, the earliest first, if the function can determine them.
    pub ahead: Vec<(Timestamp, Result<Answer, Failure>)>,
    /// The time of the next call, if further responses could not be determined.
    pub look_again: Option<Timestamp>,
    /// The digest of the policy that responded, if it runs in process.
    pub policy: Option<String>,
}

impl Called {
    /// Reads the responses of a policy at `path`: `now`, and from these instants on; `None` where the document is
    /// undefined.
    ///
    /// # Errors
    /// If the current response is invalid.
    pub fn of_policy<'a>(
        path: &str,
        now: Option<&'a Value>,
        ahead: impl IntoIterator<Item = (Timestamp, Option<&'a Value>)>,
        look_again: Option<Timestamp>,
        strict: bool,
    ) -> Result<Self, Failure> {
        let read = |document: Option<&Value>| match document {
            None => {
                let message = format!("data.{path}: undefined for this parent");
                Err(Failure::transient(POLICY_FAILED, message))
            }
            Some(document) => Answer::read(document, strict).map_err(|error| {
                Failure::invalid(
                    "ResponseInvalid",
                    format!("data.{path}: its result {error}"),
                )
            }),
        };
        Ok(Self {
            answer: read(now)?,
            ahead: ahead
                .into_iter()
                .map(|(at, document)| (at, read(document)))
                .collect(),
            look_again,
            policy: None,
        })
    }

    /// Returns the instant from which the response no longer contains a child, as far as it can be determined. Children
    /// are compared by API version, kind, namespace and name.
    #[must_use]
    pub fn gone_at(&self, child: &Value) -> Option<Timestamp> {
        let is_same = |other: &Value| place(other) == place(child);
        let without = self.ahead.iter().find(|(_, answer)| match answer {
            Ok(answer) => !answer.children.iter().any(is_same),
            Err(_) => false,
        });
        without.map(|(at, _)| *at)
    }
}

/// Returns the title of a child, for messages.
pub(super) fn title(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => format!("{kind} {name}"),
        Some(namespace) => format!("{kind} {namespace}/{name}"),
    }
}

/// Returns the API version, kind, namespace and name of a child.
pub(super) fn place(child: &Value) -> [Option<&str>; 4] {
    [
        "/apiVersion",
        "/kind",
        "/metadata/namespace",
        "/metadata/name",
    ]
    .map(|path| child.pointer(path).and_then(Value::as_str))
}

/// Returns the part of a response that is compared to detect a change: all fields, without the instants in its status.
/// A status with the current time changes always.
#[must_use]
pub fn compared(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(status) = answer.get_mut("status") {
        without_instants(status);
    }
    answer
}

fn without_instants(value: &mut Value) {
    match value {
        Value::String(text) if text.parse::<Timestamp>().is_ok() => text.clear(),
        Value::Array(items) => items.iter_mut().for_each(without_instants),
        Value::Object(fields) => fields.values_mut().for_each(without_instants),
        _ => {}
    }
}
