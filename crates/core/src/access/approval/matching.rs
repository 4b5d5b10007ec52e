//! Which person counts for which rule. A person counts for one rule only, so taking the first that fits is
//! not enough: where people are in several, the assignment that fills most has to be found.

use oz_api::{ApprovalRule, Requester};

use super::{is_named, is_same_person};

/// Who counts for which rule: for each rule the numbers of those who do.
pub type Assignment = Vec<Vec<usize>>;

/// The assignment that fills most places of the rules. `people` says for each person the rules that they
/// are named by; those who come first are preferred.
#[must_use]
pub fn assign(places: &[usize], people: &[Vec<usize>]) -> Assignment {
    let mut assigned = vec![Vec::new(); places.len()];
    for person in 0..people.len() {
        let mut tried = vec![false; places.len()];
        place(person, places, people, &mut assigned, &mut tried);
    }
    assigned
}

/// Finds a place for a person, if others can move to make one. Each rule is tried once, so this is never
/// deeper than there are rules.
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

/// Whether every place of every rule is filled.
#[must_use]
pub fn is_full(places: &[usize], assigned: &Assignment) -> bool {
    let mut each = places.iter().zip(assigned);
    each.all(|(places, people)| people.len() >= *places)
}

/// How many places each rule has.
#[must_use]
pub fn places(rules: &[ApprovalRule]) -> Vec<usize> {
    let count = |rule: &ApprovalRule| usize::try_from(rule.approvals).unwrap_or(0).max(1);
    rules.iter().map(count).collect()
}

/// The rules that name a person, by their numbers. A person may be known by several names.
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

/// The persons behind these names: each with the numbers of the names that are theirs, in the order in
/// which the first of them came. Who shares a name with one and a UID with another is all of them.
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

/// The first rule that can never hold because the users whom the rules name are too few; rules that name a
/// group may always find somebody.
#[must_use]
pub fn unsatisfiable(rules: &[ApprovalRule]) -> Option<usize> {
    let mut places = places(rules);
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
