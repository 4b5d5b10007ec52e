//! The changes of a parent's children by the passage of time only, for users.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::function::{self, Called, place};

/// An instant at which the response of a function changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// The instant.
    pub at: Timestamp,
    /// The children that the response contains from this instant on.
    pub come: Vec<String>,
    /// The children that the response no longer contains.
    pub go: Vec<String>,
    /// The children with other content.
    pub change: Vec<String>,
    /// The reason why there is no response from this instant on. Children without an expiry remain unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Moment {
    /// Creates an instant without changes.
    const fn new(at: Timestamp) -> Self {
        Self {
            at,
            come: Vec::new(),
            go: Vec::new(),
            change: Vec::new(),
            failure: None,
        }
    }

    /// Creates the instant from which this object no longer exists.
    #[must_use]
    pub fn going(at: Timestamp, title: String) -> Self {
        let go = vec![title];
        Self {
            go,
            ..Self::new(at)
        }
    }
}

impl Called {
    /// Returns the changes and their instants, the earliest first.
    #[must_use]
    pub fn timeline(&self) -> Vec<Moment> {
        let mut before = by_title(&self.answer.children);
        let mut moments = Vec::with_capacity(self.ahead.len());
        for (at, answer) in &self.ahead {
            let mut moment = Moment::new(*at);
            match answer {
                Err(failure) => moment.failure = Some(failure.message.clone()),
                Ok(answer) => {
                    let after = by_title(&answer.children);
                    for (title, child) in &after {
                        match before.get(title) {
                            None => moment.come.push(title.clone()),
                            Some(old) if old != child => moment.change.push(title.clone()),
                            Some(_) => {}
                        }
                    }
                    let gone = before.keys().filter(|title| !after.contains_key(*title));
                    moment.go.extend(gone.cloned());
                    before = after;
                }
            }
            moments.push(moment);
        }
        moments
    }
}

fn by_title(children: &[Value]) -> BTreeMap<String, &Value> {
    let title = |child: &Value| {
        let [_, kind, namespace, name] = place(child);
        function::title(
            kind.unwrap_or_default(),
            namespace,
            name.unwrap_or_default(),
        )
    };
    children.iter().map(|child| (title(child), child)).collect()
}

#[cfg(test)]
mod tests {
    use oz_core::controller::Failure;
    use serde_json::json;

    use super::*;
    use crate::protocol::Answer;

    fn answer(children: &[(&str, &str)]) -> Answer {
        let child = |(name, value): &(&str, &str)| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"value": value},
            })
        };
        Answer {
            children: children.iter().map(child).collect(),
            ..Answer::default()
        }
    }

    #[test]
    fn children_come_change_and_go_and_an_answer_that_fails_is_passed_over() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let failed = Failure::transient("PolicyFailed", "no answer");
        let called = Called {
            answer: answer(&[("a", "1"), ("b", "1")]),
            ahead: vec![
                (at(1), Ok(answer(&[("a", "2"), ("c", "1")]))),
                (at(2), Err(failed)),
                (at(3), Ok(answer(&[("a", "2")]))),
            ],
            look_again: None,
            policy: None,
        };
        let told: Vec<String> = (called.timeline().iter())
            .map(|moment| {
                let Moment {
                    come, go, change, ..
                } = moment;
                let failure = moment.failure.as_deref().unwrap_or_default();
                format!("+{come:?} -{go:?} ~{change:?} {failure}")
            })
            .collect();
        assert_eq!(
            told,
            [
                r#"+["ConfigMap c"] -["ConfigMap b"] ~["ConfigMap a"] "#,
                "+[] -[] ~[] no answer",
                r#"+[] -["ConfigMap c"] ~[] "#,
            ]
        );
    }
}
