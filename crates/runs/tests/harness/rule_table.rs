//! A table of the outcomes of a request that violates one rule, and of one that violates two: the text that a test
//! compares with a checked-in file. The tests of oz-webhook use this file, too.

use std::collections::BTreeMap;

/// The violated rules, as indexes, and the outcome of a request that violates only these.
pub(crate) type Outcomes = BTreeMap<Vec<usize>, String>;

/// Returns no rule, each rule, and each pair of rules that can be violated together. Rules with the same text before a
/// colon are about one value, and exclude each other.
pub(crate) fn violations(names: &[&str]) -> Vec<Vec<usize>> {
    let value = |rule: usize| names[rule].split_once(':').map(|(value, _)| value);
    let can_both = |one, other| value(one).is_none() || value(one) != value(other);
    let mut all = vec![Vec::new()];
    all.extend((0..names.len()).map(|rule| vec![rule]));
    for one in 0..names.len() {
        let others = (one + 1..names.len()).filter(|other| can_both(one, *other));
        all.extend(others.map(|other| vec![one, other]));
    }
    all
}

/// Formats outcomes, a line each. The line of a pair has the name of the rule that alone has the same outcome, or else
/// the outcome.
pub(crate) fn table(names: &[&str], outcomes: &Outcomes) -> String {
    assert_are_distinct(names, outcomes);
    let mut text = String::new();
    for rules in violations(names) {
        let outcome = &outcomes[&rules];
        let decisive = rules
            .iter()
            .find(|rule| outcomes[&vec![**rule]] == *outcome);
        let told = match (rules.len(), decisive) {
            (2, Some(rule)) => names[*rule],
            _ => outcome,
        };
        let violated: Vec<&str> = rules.iter().map(|rule| names[*rule]).collect();
        let violated = match violated.is_empty() {
            true => "no rule".to_owned(),
            false => violated.join(" + "),
        };
        text.push_str(&format!("{violated} => {told}\n"));
    }
    text
}

/// Asserts that each rule has an effect, and another one than each other rule: the outcome of a pair then shows which
/// of both decides.
fn assert_are_distinct(names: &[&str], outcomes: &Outcomes) {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    known.insert(&outcomes[&Vec::new()], "no rule");
    for (rule, name) in names.iter().enumerate() {
        let outcome = &outcomes[&vec![rule]];
        let same = known.insert(outcome, name);
        assert_eq!(same, None, "{name} has the same outcome: {outcome}");
    }
}
