//! A function that was asked.

use jiff::Timestamp;
use oz_core::controller::Failure;
use serde_json::Value;

use super::protocol::Answer;

/// The reason of a policy that gave no answer.
pub const POLICY_FAILED: &str = "PolicyFailed";

/// What a function is asked, and as which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Which children a parent has.
    Sync,
    /// Which children one still has that is being deleted.
    Finalize,
}

/// What came of asking.
#[derive(Clone, Debug, PartialEq)]
pub struct Called {
    /// What holds now.
    pub answer: Answer,
    /// What will hold from these instants on, the earliest first, if the function can tell.
    pub ahead: Vec<(Timestamp, Result<Answer, Failure>)>,
    /// When it is to be asked again because more than this could not be told.
    pub look_again: Option<Timestamp>,
    /// Digest of the policy that answered, if it was one in process.
    pub policy: Option<String>,
}

impl Called {
    /// What a policy says at `path`: `now`, and what it will say from these instants on; `None` where it is
    /// undefined.
    ///
    /// # Errors
    /// When what it says now is no answer.
    pub fn of_policy<'a>(
        path: &str,
        now: Option<&'a Value>,
        ahead: impl IntoIterator<Item = (Timestamp, Option<&'a Value>)>,
        look_again: Option<Timestamp>,
        strict: bool,
    ) -> Result<Self, Failure> {
        let read = |document: Option<&Value>| match document {
            None => {
                let message = format!("data.{path}: is undefined for this parent");
                Err(Failure::transient(POLICY_FAILED, message))
            }
            Some(document) => Answer::read(document, strict).map_err(|error| {
                Failure::invalid("AnswerInvalid", format!("data.{path}: its answer {error}"))
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

    /// From when on a child is not among the answer's any more, as far as that can be told: its place is
    /// its API version, kind, namespace and name.
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

/// A child, for people.
pub(super) fn title(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace.unwrap_or_default() {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// API version, kind, namespace and name.
pub(super) fn place(child: &Value) -> [Option<&str>; 4] {
    [
        "/apiVersion",
        "/kind",
        "/metadata/namespace",
        "/metadata/name",
    ]
    .map(|path| child.pointer(path).and_then(Value::as_str))
}

/// What of an answer is compared to tell whether it is another one: all of it, but the instants in its
/// status. Those that tell the time are always others.
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
