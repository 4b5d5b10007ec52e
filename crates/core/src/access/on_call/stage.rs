//! The responses of servers to on-call checks, and their effect. A missing response replaces nothing, with every
//! failure policy. Access ends when a check that replaced approvals stops accepting the requester, or does
//! not respond for as long as a ticket check may. The queries are those of ticket checks ([`Ask`]).

use jiff::{SignedDuration, Timestamp};
use oz_api::{ApprovalConfig, OnCallCheck, Requester};

use super::super::grant::Grant;
use super::super::kind::{Assessment, FactsOf, Kind};
use super::super::policy::{self, Judgement};
use super::super::request::StoredRequest;
use super::super::ticket::{Fresh, Lost, counts, due, lost, repeat};
use super::{OnCall, name};
use crate::controller::{Plan, Step};
use crate::kinds::AccessTemplate;
use crate::lifecycle::End;
use crate::lifecycle::window::{after, has_come};
use crate::tickets::{Answer, Ask, CheckTerms, Person, Said, Subject, Tickets};

/// The reason of a request while its on-call checks run for the first time.
pub const WAITING: &str = "OnCallCheckPending";
/// The reason of the condition `Approved` of a request for which an on-call check replaced approvals.
pub const ON_CALL: &str = "OnCall";

/// The time, in addition to the timeout of its server, for which a request waits for the first response of an on-call
/// check before its approvers are asked.
const GRACE: SignedDuration = SignedDuration::from_secs(5);
/// The maximum number of reasons in a message why checks replace no approval.
const MAX_NOTES: usize = 3;

/// The responses of the on-call checks about the requester of a request without a grant.
#[derive(Clone, Debug, Default)]
pub(in crate::access) struct Responses {
    /// The checks that accept the requester, the first of each list.
    pub(in crate::access) accepted: Vec<OnCallCheck>,
    /// The reason why the request waits before its approvers are asked: a check has not responded yet.
    pub(in crate::access) pending: Option<String>,
    /// The reasons why the other checks replace no approval.
    notes: Vec<String>,
}

/// The effect of one on-call check on a request without a grant.
enum Effect {
    /// It replaces approvals.
    Replaces,
    /// It has not responded yet.
    Pending(String),
    /// It replaces nothing, for this reason.
    None(String),
}

impl Responses {
    /// Leaves out the checks that replace no rule, because another source requires the same rules: the grant must not
    /// depend on them.
    pub(in crate::access) fn without_unneeded(
        mut self,
        required: impl Fn(&[OnCallCheck]) -> Option<ApprovalConfig>,
    ) -> Self {
        let required =
            |accepted: &[OnCallCheck]| required(accepted).map_or_else(Vec::new, |rest| rest.rules);
        let rest = required(&self.accepted);
        let mut at = 0;
        while at < self.accepted.len() {
            let mut others = self.accepted.clone();
            others.remove(at);
            if policy::find_absent(&required(&others), &rest).is_empty() {
                self.accepted = others;
            } else {
                at += 1;
            }
        }
        self
    }

    /// Returns the reasons why checks replace no approval, in one line; `None` if there are none.
    pub(in crate::access) fn note(&self) -> Option<String> {
        let notes = &self.notes[..self.notes.len().min(MAX_NOTES)];
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

/// Describes which on-call checks can replace which approvals, in words; `None` if none can.
#[must_use]
pub fn replaceable<T: AccessTemplate>(
    judgement: Option<&Judgement>,
    template: &T,
) -> Option<String> {
    let all = policy::approval(judgement, template)?;
    let lists = policy::on_call_checks(judgement, template).into_iter();
    let each = lists.filter_map(|list| {
        let rest = policy::approval_on_call(judgement, template, list);
        let rest = rest.as_ref().map_or(&[][..], |rest| &rest.rules);
        let rules = policy::find_absent(&all.rules, rest);
        let rules: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
        let checks: Vec<String> = list.iter().map(name).collect();
        let (rules, checks) = (rules.join(", "), checks.join(" or "));
        (!rules.is_empty()).then(|| format!("{checks} can replace {rules}"))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| each.join("; "))
}

/// Returns the responses of the checks in `lists` about the requester of an object that was created at `created`.
pub(in crate::access) fn responses(
    times: (Timestamp, Timestamp),
    requester: &Requester,
    lists: &[&[OnCallCheck]],
    known: &Tickets,
) -> Responses {
    let mut responses = Responses::default();
    for list in lists {
        let mut accepted = None;
        for check in *list {
            match effect(times, requester, check, known) {
                Effect::Replaces => accepted = accepted.or(Some(check)),
                Effect::Pending(why) => responses.pending = Some(why),
                Effect::None(why) if responses.notes.contains(&why) => {}
                Effect::None(why) => responses.notes.push(why),
            }
        }
        let accepted = accepted.filter(|check| !responses.accepted.contains(check));
        responses.accepted.extend(accepted.cloned());
    }
    responses
}

fn effect(
    (now, created): (Timestamp, Timestamp),
    requester: &Requester,
    check: &OnCallCheck,
    known: &Tickets,
) -> Effect {
    let (user, name) = (&requester.user, name(check));
    let Some(person) = person(requester, check) else {
        return Effect::None(format!("{user} is not a member of the group of {name}"));
    };
    let Some(terms) = known.terms(&check.check) else {
        let setting = format!("tickets.checks.{}", check.check);
        return Effect::None(format!(
            "{name} does not exist; have the administrators of oz set {setting}"
        ));
    };
    let said = since_created((now, created), &person, check, terms, known);
    match said.map(|said| (said, &said.answer)) {
        Some((said, Answer::Accepted)) if counts((now, created), said, terms, Fresh::Now) => {
            Effect::Replaces
        }
        Some((_, Answer::Accepted)) => Effect::None(format!("{name} is asked again")),
        Some((_, Answer::Refused(why))) => {
            Effect::None(format!("{user} is not on call by {name}: {why}"))
        }
        Some((_, Answer::Away(why))) => {
            Effect::None(format!("{name} does not respond, and is retried: {why}"))
        }
        None if has_come(now, after(created, terms.timeout + GRACE)) => {
            Effect::None(format!("{name} has not responded yet"))
        }
        None => Effect::Pending(format!("{name} is checking whether {user} is on call")),
    }
}

/// Returns the last response of a check, if it was asked after the creation of the request.
fn since_created<'a>(
    times: (Timestamp, Timestamp),
    person: &Person,
    check: &OnCallCheck,
    terms: CheckTerms,
    known: &'a Tickets,
) -> Option<&'a Said> {
    let said = about(known, person, &check.check);
    said.filter(|said| counts(times, said, terms, Fresh::SinceCreated))
}

/// Returns the plan of a request without a grant that requires approvals: its due queries, and the time of the next
/// pass. The queries continue while approvers are asked, so that a shift that begins during the wait has an effect.
pub(in crate::access) fn wait<K: Kind>(
    kind: &K,
    now: Timestamp,
    request: &StoredRequest<'_>,
    known: &FactsOf<K>,
    assessment: &Assessment,
    mut plan: Plan,
) -> Plan {
    // Most requests require no approvals, and then no stamp is opened.
    let template = known.template.as_deref();
    let Some(template) = template.filter(|_| assessment.approval.is_some()) else {
        return plan;
    };
    let Ok(stamp) = request.stamp(kind.keys()) else {
        return plan;
    };
    let mut checks = policy::on_call_checks(stamp.judgement.as_ref(), template).concat();
    checks.sort_unstable();
    checks.dedup();
    let times = (now, request.created());
    let mut asks = Vec::new();
    for check in &checks {
        let terms = known.tickets.terms(&check.check);
        let Some((person, terms)) = person(&stamp.requester, check).zip(terms) else {
            continue;
        };
        let said = since_created(times, &person, check, terms, &known.tickets);
        let (is_due, next) = due(now, said, terms);
        plan = plan.wake_at(next);
        if said.is_none() {
            // Approvers are asked if the check has not responded by then.
            plan = plan.wake_at(after(now, GRACE));
        }
        if is_due {
            asks.push(ask(check, person, request.uid(), true));
        }
    }
    plan.then(asks)
}

/// Returns the plan of a grant while it lasts: its on-call checks, and the time of the next pass.
pub(in crate::access) fn keep(now: Timestamp, grant: &Grant, known: &Tickets, plan: Plan) -> Plan {
    let Some(on_call) = &grant.on_call else {
        return plan;
    };
    let checks = sealed(&grant.requester, on_call, known).map(|(check, said, terms)| {
        let person = Person::new(&grant.requester, check.group.as_deref());
        (ask(check, person, &grant.request.uid, false), said, terms)
    });
    repeat(now, checks, plan)
}

/// Returns the reason why a grant ends before its expiry: its requester is no longer on call, or no server responded
/// for too long.
pub(in crate::access) fn ended(
    now: Timestamp,
    requester: &Requester,
    on_call: &OnCall,
    known: &Tickets,
) -> Option<End> {
    let user = &requester.user;
    let (check, lost) = lost(now, sealed(requester, on_call, known))?;
    let name = name(check);
    Some(match lost {
        Lost::Refused(why) => End::on_call_ended(format!(
            "{user} is no longer on call by {name}, which replaced approvals: {why}"
        )),
        Lost::Unanswered(until, why) => End::on_call_unanswered(format!(
            "{name} has not responded whether {user} is on call until {until}: {why}"
        )),
    })
}

/// Returns the on-call checks that a grant seals, with their last responses and their settings.
fn sealed<'a>(
    requester: &'a Requester,
    on_call: &'a OnCall,
    known: &'a Tickets,
) -> impl Iterator<Item = (&'a OnCallCheck, Option<&'a Said>, CheckTerms)> + Clone {
    on_call.checks.iter().map(|check| {
        let person = Person::new(requester, check.group.as_deref());
        let terms = known.terms(&check.check).unwrap_or(CheckTerms::UNKNOWN);
        (check, about(known, &person, &check.check), terms)
    })
}

/// Returns the subject of a check; `None` if the requester is not a member of its group.
fn person(requester: &Requester, check: &OnCallCheck) -> Option<Person> {
    let group = check.group.as_ref();
    let is_member = group.is_none_or(|group| requester.groups.contains(group));
    is_member.then(|| Person::new(requester, group.map(String::as_str)))
}

/// Returns the last response of a check about exactly this person.
fn about<'a>(known: &'a Tickets, person: &Person, check: &str) -> Option<&'a Said> {
    known.on_call.get(person)?.get(check)
}

fn ask(check: &OnCallCheck, person: Person, uid: &str, waits: bool) -> Step {
    Step::from(Ask {
        check: check.check.clone(),
        request: uid.to_owned(),
        user: person.user.clone(),
        subject: Subject::Requester(person),
        waits,
    })
}
