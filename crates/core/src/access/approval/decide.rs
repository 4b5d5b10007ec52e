//! The result of the approvals and denials of a request. One denial by a user who could approve ends it; a
//! person counts for one rule; a decision that was late, or for something other than the current request,
//! does not count.

use std::collections::BTreeSet;

use jiff::Timestamp;
use oz_api::Requester;

use super::super::denial::format_subjects;
use super::escalation::with_escalation;
use super::{Answer, ApprovalRequest, Approved, matching, may_approve};
use crate::lifecycle::window::has_come;

/// The maximum number of approvals that are read for one request, the earliest first. No rules require more
/// than 64.
pub const MAX_APPROVALS: usize = 256;
/// The maximum length of a message about approvals, in bytes.
const MAX_MESSAGE: usize = 512;
/// The maximum number of named approvers for each rule.
const MAX_NAMED: usize = 5;
/// The maximum length of a name in a list, in bytes.
const MAX_NAME: usize = 64;

/// The result of the approvals and denials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All rules hold.
    Granted {
        /// The approvers, each with the rule.
        by: Vec<Approved>,
        /// Time of the last approval.
        at: Timestamp,
    },
    /// Some rules do not hold yet.
    Waiting {
        /// The rules that do not hold, in the order of the template.
        missing: Vec<Missing>,
        /// Number of decisions that do not count, since they were made for something other than the current
        /// request.
        void: usize,
    },
    /// A user who could approve denied the request.
    Denied {
        /// User who denied it.
        by: Requester,
        /// Reason in the words of that user.
        reason: Option<String>,
        /// Time of the denial.
        at: Timestamp,
    },
    /// The timeout has passed, and some rules do not hold.
    TimedOut {
        /// The rules that do not hold.
        missing: Vec<Missing>,
    },
}

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Name of the rule.
    pub rule: String,
    /// Number of required approvals.
    pub needed: usize,
    /// Number of given approvals.
    pub given: usize,
    /// Remaining possible approvers: users by their names, groups as `group NAME`.
    pub may: Vec<String>,
}

/// Returns the result at `now` of `answers` to the request in `asked`.
#[must_use]
pub fn decide(asked: &ApprovalRequest<'_>, answers: &[Answer], now: Timestamp) -> Verdict {
    let own = own(asked, answers);
    let in_time = |answer: &&Answer| !has_come(answer.at, asked.until);
    let (mut counted, void): (Vec<&Answer>, Vec<&Answer>) = answers
        .iter()
        .enumerate()
        .filter(|(number, _)| !own.contains(number))
        .map(|(_, answer)| answer)
        .filter(in_time)
        .filter(|answer| may_approve(asked, &answer.by, answer.at))
        .partition(|answer| answer.digest == asked.digest);
    counted.sort_by(|one, other| (one.at, &one.name).cmp(&(other.at, &other.name)));
    if let Some(denial) = counted.iter().find(|answer| !answer.approves) {
        return Verdict::Denied {
            by: denial.by.clone(),
            reason: denial.reason.clone(),
            at: denial.at,
        };
    }
    counted.truncate(MAX_APPROVALS);
    let config = with_escalation(asked.config, asked.created, now);
    let asked = &ApprovalRequest {
        config: &config,
        ..asked.clone()
    };
    if let Some((by, at)) = granted(asked, &counted) {
        return Verdict::Granted { by, at };
    }
    let missing = missing(asked, &counted);
    if has_come(now, asked.until) {
        return Verdict::TimedOut { missing };
    }
    let void = void.len();
    Verdict::Waiting { missing, void }
}

/// Returns the decisions of the requester and of the users who get the access, by their indices. A user with the name
/// or UID of one of these in one decision is that user in all of them.
fn own(asked: &ApprovalRequest<'_>, answers: &[Answer]) -> BTreeSet<usize> {
    let mut names: Vec<&Requester> = asked.excluded().collect();
    let excluded = names.len();
    names.extend(answers.iter().map(|answer| &answer.by));
    let persons = matching::persons(&names).into_iter();
    let own = persons.filter(|person| person.iter().any(|&name| name < excluded));
    let own = own.flatten();
    own.filter_map(|name| name.checked_sub(excluded)).collect()
}

/// Returns the approvers with their rules among the earliest approvals that fill all rules; `None` if there
/// are too few.
fn granted(
    asked: &ApprovalRequest<'_>,
    approvals: &[&Answer],
) -> Option<(Vec<Approved>, Timestamp)> {
    let places = matching::places(&asked.config.rules);
    let is_full = |count: usize| {
        let (_, assigned) = assigned(asked, &approvals[..count]);
        matching::is_full(&places, &assigned)
    };
    if !is_full(approvals.len()) {
        return None;
    }
    // One more approval may show that two names are one person, and so fill less: the first number that fills
    // all counts.
    let count = (0..=approvals.len()).find(|&count| is_full(count))?;
    let approvals = &approvals[..count];
    let (persons, assigned) = assigned(asked, approvals);
    let rules = asked.config.rules.iter().zip(&assigned);
    let by = rules.flat_map(|(rule, people)| {
        let mut people = people.clone();
        people.sort_unstable();
        let persons = &persons;
        people.into_iter().filter_map(move |person| {
            let first = approvals[*persons[person].first()?];
            Some(Approved {
                rule: rule.name.clone(),
                user: first.by.user.clone(),
                uid: first.by.uid.clone(),
                at: first.at,
            })
        })
    });
    let last = approvals.last()?.at;
    Some((by.collect(), last))
}

/// Returns the persons behind approvals, and the rule for which each counts.
fn assigned(
    asked: &ApprovalRequest<'_>,
    approvals: &[&Answer],
) -> (Vec<Vec<usize>>, matching::Assignment) {
    let rules = &asked.config.rules;
    let names: Vec<&Requester> = approvals.iter().map(|answer| &answer.by).collect();
    let persons = matching::persons(&names);
    let people: Vec<Vec<usize>> = persons
        .iter()
        .map(|person| matching::rules_of(rules, person.iter().map(|&name| names[name])))
        .collect();
    let assigned = matching::assign(&matching::places(rules), &people);
    (persons, assigned)
}

fn missing(asked: &ApprovalRequest<'_>, approvals: &[&Answer]) -> Vec<Missing> {
    let rules = &asked.config.rules;
    let (_, assigned) = assigned(asked, approvals);
    let places = matching::places(rules);
    let lacking = rules.iter().zip(places).zip(assigned);
    let lacking = lacking.filter(|((_, places), people)| people.len() < *places);
    lacking
        .map(|((rule, needed), people)| {
            let answered = |user: &String| approvals.iter().any(|answer| answer.by.user == *user);
            let is_own = |user: &String| asked.excluded().any(|own| own.user == *user);
            let users = rule.users.iter();
            let users = users.filter(|user| !is_own(user) && !answered(user));
            Missing {
                rule: rule.name.clone(),
                needed,
                given: people.len(),
                may: format_subjects(users, &rule.groups),
            }
        })
        .collect()
}

/// Describes the missing approvals in words of bounded length: `security: bob, carol may`.
#[must_use]
pub fn waited_for(missing: &[Missing]) -> String {
    let mut text = missing.iter().map(one).collect::<Vec<_>>().join("; ");
    cut(&mut text, MAX_MESSAGE);
    text
}

fn one(missing: &Missing) -> String {
    let Missing {
        rule,
        needed,
        given,
        may,
    } = missing;
    let counted = if *needed > 1 {
        format!(" ({given} of {needed})")
    } else {
        String::new()
    };
    if may.is_empty() {
        return format!("{rule}{counted}: no other approver is left");
    }
    let named = may.iter().take(MAX_NAMED).map(|name| {
        let mut name = name.clone();
        cut(&mut name, MAX_NAME);
        name
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = may.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{rule}{counted}: {named}{more} may")
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most - "…".len()));
        text.push('…');
    }
}
