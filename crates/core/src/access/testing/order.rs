//! The order of the rules between an object and its grant, as text for a snapshot: each rule is broken alone and with
//! each other rule, and the answer of the assessment shows the rule that applies first.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oz_api::{AccessLock, ApprovalStatus};
use serde_json::{Value, json};

use crate::lifecycle::State;

/// A rule, and the change of an object or of the facts about it that breaks the rule.
pub(crate) type Rule<C> = (&'static str, fn(&mut C));

/// Creates a list of rules for a [`Case`].
macro_rules! rules {
    ($case:ty: $($name:literal => $fails:expr;)*) => {{
        let rules: &[$crate::access::testing::order::Rule<$case>] = &[$(($name, $fails)),*];
        rules.to_vec()
    }};
}
pub(crate) use rules;

/// An object, with all facts about it.
pub(crate) trait Case: Sized {
    /// Returns the answer of the assessment, see [`needs`] and [`decided`].
    fn answer(self) -> String;
}

/// Returns the answer for each rule that is broken alone. Pairs follow, each in one line, but only those with another
/// answer than that of the rule that is listed first.
pub(crate) fn table<C: Case>(granted: impl Fn() -> C, rules: &[Rule<C>]) -> String {
    let answer = |broken: &[Rule<C>]| {
        let mut case = granted();
        broken.iter().for_each(|(_, fails)| fails(&mut case));
        case.answer()
    };
    assert_eq!(answer(&[]), "Granted");
    let mut text = String::new();
    let mut alone = Vec::new();
    for rule in rules {
        let (name, answer) = (rule.0, answer(&[*rule]));
        assert_ne!(answer, "Granted", "{name} breaks nothing");
        writeln!(text, "{name} =>\n    {}\n", answer.replace('\n', "\n    ")).unwrap();
        alone.push((name, answer));
    }
    let (mut count, mut pairs) = (0, String::new());
    for (place, first) in rules.iter().enumerate() {
        for (second, other) in rules.iter().zip(&alone).skip(place + 1) {
            count += 1;
            let both = answer(&[*first, *second]);
            if both != alone[place].1 {
                let both = compared(&both, [&alone[place], other]);
                writeln!(pairs, "{} + {} => {both}", first.0, second.0).unwrap();
            }
        }
    }
    let head =
        format!("The answer to each of {count} pairs is that of the rule listed first, except:");
    format!("{text}{head}\n\n{pairs}")
}

/// Returns the name of the rule to which the answer belongs, with the lines that only the answer to the rule has (-) and
/// that only this answer has (+); the complete answer if it belongs to none.
fn compared(answer: &str, rules: [&(&str, String); 2]) -> String {
    let state = |answer: &str| answer.lines().next().map(ToOwned::to_owned);
    let is_of = |rule: &&(_, String)| state(&rule.1) == state(answer);
    let Some((name, alone)) = rules.into_iter().find(is_of) else {
        return answer.replace('\n', "; ");
    };
    let without = |lines: &str, other: &str, sign| {
        let only = |line: &&str| other.lines().all(|one| one != *line);
        let lines = lines.lines().filter(only);
        lines.fold(String::new(), |text, line| format!("{text}; {sign}{line}"))
    };
    let (less, more) = (without(alone, answer, '-'), without(answer, alone, '+'));
    format!("{name}{less}{more}")
}

/// Describes a question.
pub(crate) fn needs(question: &impl Debug, until: Option<Timestamp>) -> String {
    let question = format!("{question:?}");
    let name = question.split(['(', ' ']).next().unwrap();
    format!("Needs {name} until {}", until.unwrap())
}

/// Describes a state with its reason and message, the conditions that report it, and the request for approvals. A `…`
/// in a condition is the message of the state.
pub(crate) fn decided<G, O, S: Debug>(
    state: &State<G, O, S>,
    conditions: &[Condition],
    approval: Option<&ApprovalStatus>,
) -> String {
    let (mut text, said) = match state {
        State::Over => ("Over".to_owned(), ""),
        // The plan is not executed, so no condition is meaningful.
        State::Granted(_) | State::Grantable(_) => return "Granted".to_owned(),
        State::Ending(end, _) => (format!("Ending {}", end.reason), end.detail()),
        State::Refused(phase, why) => (format!("{phase} {}", why.reason), why.message.as_str()),
        State::Waiting(why) => {
            let state = format!("Waiting {} ({})", why.reason, why.class);
            (state, why.message.as_str())
        }
        State::Special(special) => (format!("{special:?}"), ""),
    };
    if !said.is_empty() {
        text = format!("{text}: {said}");
    }
    for one in conditions {
        let message = match said {
            "" => one.message.clone(),
            said => one.message.replace(said, "…"),
        };
        write!(
            text,
            "\n{}={} {}: {message}",
            one.type_, one.status, one.reason
        )
        .unwrap();
    }
    if let Some(approval) = approval {
        write!(text, "\nrequests approvals until {}", approval.until).unwrap();
    }
    text
}

/// Creates a lock on this target.
pub(crate) fn lock(target: &Value) -> Arc<AccessLock> {
    let lock = json!({
        "metadata": {"name": "incident-7"},
        "spec": {"target": target, "reason": "stolen laptop"},
    });
    Arc::new(serde_json::from_value(lock).unwrap())
}
