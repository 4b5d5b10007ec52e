//! The assignment of persons to rules. A person counts for one rule only, so taking the first that fits is
//! not enough: where persons are in several, the assignment that fills most must be found.

use oz_api::{ApprovalRule, Requester};

use super::escalation::extended;
use super::{is_named, is_same_person};

/// The assignment of persons to rules: for each rule the indices of its persons.
pub type Assignment = Vec<Vec<usize>>;

/// Returns the assignment that fills most places of the rules. `people` contains for each person the rules
/// that name them; earlier persons are preferred.
#[must_use]
pub fn assign(places: &[usize], people: &[Vec<usize>]) -> Assignment {
    let mut assigned = vec![Vec::new(); places.len()];
    for person in 0..people.len() {
        let mut tried = vec![false; places.len()];
        place(person, places, people, &mut assigned, &mut tried);
    }
    assigned
}

/// Assigns a person to a rule, if others can be assigned to other rules instead. Each rule is tried once, so the
/// recursion is never deeper than the number of rules.
fn place(
    person: usize,
    places: &[usize],
    people: &[Vec<usize>],
    assigned: &mut Assignment,
    tried: &mut [bool],
) -> bool {
    for &rule in &people[person] {
        if std::mem::replace(&mut tried[rule], true) {
            continue;
        }
        if assigned[rule].len() < places[rule] {
            assigned[rule].push(person);
            return true;
        }
        for at in 0..assigned[rule].len() {
            let other = assigned[rule][at];
            if place(other, places, people, assigned, tried) {
                assigned[rule][at] = person;
                return true;
            }
        }
    }
    false
}

/// Checks whether every place of every rule is filled.
#[must_use]
pub fn is_full(places: &[usize], assigned: &Assignment) -> bool {
    let mut each = places.iter().zip(assigned);
    each.all(|(places, people)| people.len() >= *places)
}

/// Returns the number of places of each rule.
#[must_use]
pub fn places(rules: &[ApprovalRule]) -> Vec<usize> {
    let count = |rule: &ApprovalRule| usize::try_from(rule.approvals).unwrap_or(0).max(1);
    rules.iter().map(count).collect()
}

/// Returns the rules that name a person, by their indices. A person may be known by several names.
#[must_use]
pub fn rules_of<'a>(
    rules: &[ApprovalRule],
    person: impl Iterator<Item = &'a Requester> + Clone,
) -> Vec<usize> {
    let named = |rule: &ApprovalRule| person.clone().any(|name| is_named(rule, name));
    let numbered = rules.iter().enumerate();
    numbered
        .filter(|(_, rule)| named(rule))
        .map(|(number, _)| number)
        .collect()
}

/// Returns the persons behind these names: each with the indices of their names, in the order in which the
/// first of them occurred. A user who shares a name with one person and a UID with another joins both into
/// one.
#[must_use]
pub fn persons(names: &[&Requester]) -> Vec<Vec<usize>> {
    let mut persons: Vec<Vec<usize>> = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let is_theirs =
            |person: &mut Vec<usize>| person.iter().any(|&own| is_same_person(names[own], name));
        let mut theirs = persons
            .extract_if(.., is_theirs)
            .flatten()
            .collect::<Vec<_>>();
        theirs.push(number);
        theirs.sort_unstable();
        persons.push(theirs);
    }
    persons.sort_unstable();
    persons
}

/// Returns the first rule that can never hold because the rules name too few users; for rules that name a
/// group there may always be another member.
#[must_use]
pub fn unsatisfiable(rules: &[ApprovalRule]) -> Option<usize> {
    let rules: Vec<ApprovalRule> = rules.iter().map(extended).collect();
    let mut places = places(&rules);
    for (rule, places) in rules.iter().zip(&mut places) {
        if !rule.groups.is_empty() {
            *places = 0;
        }
    }
    let mut users: Vec<&String> = rules.iter().flat_map(|rule| &rule.users).collect();
    users.sort_unstable();
    users.dedup();
    let named = |user: &&String| {
        let numbered = rules.iter().enumerate();
        let theirs = numbered.filter(|(_, rule)| rule.users.contains(user));
        theirs.map(|(number, _)| number).collect()
    };
    let people: Vec<Vec<usize>> = users.iter().map(named).collect();
    let assigned = assign(&places, &people);
    let mut each = places.iter().zip(&assigned);
    each.position(|(places, people)| people.len() < *places)
}
