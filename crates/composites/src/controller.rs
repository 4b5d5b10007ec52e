//! The controller of one composite: its decision about a parent, from the live objects and the response of the
//! function. Expired children are deleted first, without a call of the function.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::core::{ApiResource, DynamicObject, Selector, SelectorExt};
use oz_api::composite::Method;
use oz_api::labels;
use oz_core::controller::{
    Child, Controller, Decision, Failure, Key, Live, Outcome, Plan, Step, Transition, Verdict,
    has_content, has_metadata,
};
use oz_core::lifecycle::seal::Keys;
use oz_core::lifecycle::window::{after, has_come};
use oz_core::transient::Policy;
use serde_json::{Map, Value, json};

use super::adoption::adopted;
use super::answer::AnswerError;
use super::claim::{Claimed, Owner, claim, controller_reference, selector};
use super::declared::{Declared, Family};
use super::desired::{APPLIED, desired};
use super::function::{Called, Function, title};
use super::guard::Report;
use super::related::{Related, Rule};
use super::rights::{self, Found, Judge, Judged, Want};
use super::settling::Change;
use super::stored::{Doubt, annotation, doubt};
use super::supervise::Mode;
use super::window::Bounds;
use super::{ends, protocol};

/// Minimum interval between two passes that a function requests.
const SHORTEST_RESYNC: SignedDuration = SignedDuration::from_millis(100);
/// Maximum interval between two passes that a function requests; a number that is not valid has this value.
const LONGEST_RESYNC: SignedDuration = SignedDuration::from_hours(24 * 365);
/// Interval until the next pass of a parent after a change of the policy, without another event.
const POLICY_CHANGED: SignedDuration = SignedDuration::from_secs(5);
/// Interval between two checks of rights that an author lacked.
pub(super) const JUDGED_AGAIN: SignedDuration = SignedDuration::from_mins(1);
/// Delay of the pass that follows the deletion of expired children.
const NEXT: SignedDuration = SignedDuration::from_millis(1);
/// Delay of the pass that follows a call of the function with children that expired.
const ONCE_MORE: SignedDuration = SignedDuration::from_secs(1);

/// The answers whether the API server stores children otherwise than they are applied; `None` before they were asked for.
type Stored<'a> = Option<&'a [(Doubt, bool)]>;

/// The controller of one composite.
#[derive(Clone)]
pub struct Composite {
    /// Name of the controller.
    pub name: String,
    /// The declaration.
    pub declared: Declared,
    /// The kinds, as the API server describes them.
    pub family: Family,
    /// Whether the parents' status may hold observedGeneration.
    pub observes_generation: bool,
    /// The keys that seal expiries.
    pub keys: Keys,
    /// The mode in which the composite runs.
    pub mode: Mode,
    /// Digest of the policy for which the mode was decided; `None` for a function behind HTTP.
    pub policy: Option<String>,
    /// The roles with rights that children may grant; `None` if nothing is written, and this is not checked.
    pub bindable: Option<Arc<Policy>>,
}

/// The data about one parent.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether the parent exists at the API server and is not being deleted.
    pub alive: Option<Result<bool, Failure>>,
    /// The rules of the related objects that the function requests.
    pub rules: Option<Result<Vec<Rule>, Refused>>,
    /// The related objects.
    pub related: Option<Result<Vec<Related>, Failure>>,
    /// The response of the function.
    pub called: Option<Result<Called, Refused>>,
    /// The rights of the parent's authors.
    pub rights: Vec<(Want, Found)>,
    /// The instant until which changes are delayed; `None` if they are permitted now.
    pub slowed: Option<Option<Timestamp>>,
    /// The children that look otherwise than they were applied, and whether an application would not change them; `None`
    /// if all of them are applied again.
    pub stored: Option<Vec<(Doubt, bool)>>,
    /// The expired children that the function has not been called with; `None` if they are not recorded.
    pub expired: Option<Vec<Live>>,
}

/// The failure of a call of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The failure that is reported.
    pub failure: Failure,
    /// The instant of the next call, if the server states one.
    pub again: Option<Timestamp>,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        let again = None;
        Self { failure, again }
    }
}

/// The data that a decision about one parent requires.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Whether the parent exists and is not being deleted.
    Alive,
    /// The related objects that a function requests for this request.
    Customize(Value),
    /// The objects that these rules select.
    Related(Vec<Rule>),
    /// The response of a function to this request.
    Call(Function, Value),
    /// Whether the authors of the parent have these rights.
    Rights(Vec<Want>),
    /// The instant until which this change is delayed.
    Slowed(Change),
    /// Whether the API server stores these children as they were applied.
    Stored(Vec<Doubt>),
    /// That these expired children are recorded, before they are deleted.
    Expired(Vec<Live>),
}

/// The reason for which a function is not called.
enum Unshown {
    /// The decision requires this data.
    Need(Question),
    /// The content of the request cannot be read.
    Refused(Refused),
}

/// The reason for which a response is not applied.
enum Otherwise {
    /// The response is invalid.
    Wrong(AnswerError),
    /// The decision requires this data.
    Need(Question),
}

impl From<AnswerError> for Otherwise {
    fn from(error: AnswerError) -> Self {
        Self::Wrong(error)
    }
}

/// The result of a pass, for the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pass {
    /// The status that the function returned; `None` if the parent's status does not change.
    pub status: Option<Map<String, Value>>,
}

impl Pass {
    fn of_call(called: &Called) -> Self {
        let status = Some(called.answer.status.clone().unwrap_or_default());
        Self { status }
    }
}

/// A parent in one pass.
pub(super) struct Parent<'a> {
    pub(super) owner: Owner<'a>,
    deleting: bool,
    /// Whether the parent may have no children of oz any more: it is being deleted, or not selected.
    finalizing: bool,
    /// Whether the parent has oz's finalizer.
    held: bool,
    /// UIDs of the children that the status of the parent names.
    seen: BTreeSet<String>,
}

impl Composite {
    fn parent<'a>(&self, owner: Owner<'a>, live: &[Live]) -> Parent<'a> {
        let metadata = &owner.object.metadata;
        let is_its = |child: &&Live| {
            let controller = labels::controller(&child.object.metadata);
            controller.is_some_and(|controller| owner.uid == *controller.uid)
        };
        let seen = live.iter().filter(is_its);
        let seen = seen.filter_map(|child| child.object.metadata.uid.clone());
        let deleting = metadata.deletion_timestamp.is_some();
        let none = BTreeMap::new();
        let selected = self
            .declared
            .selects(metadata.labels.as_ref().unwrap_or(&none));
        Parent {
            owner,
            deleting,
            finalizing: deleting || !selected,
            held: self.declared.holds(metadata),
            // Only those that are told of it.
            seen: match self.mode {
                Mode::Guard => seen.collect(),
                _ => BTreeSet::new(),
            },
        }
    }

    pub(super) fn title(&self, parent: &DynamicObject) -> Key {
        Key::new(&self.family.parent.resource, &parent.metadata)
    }

    /// Returns the children of a parent that have an expiry: in their annotation, or from the parent's window. A
    /// child that lost its owner reference by an orphaning deletion still counts, by its annotation.
    fn with_end<'a>(
        &self,
        object: Option<&DynamicObject>,
        live: &'a [Live],
    ) -> Vec<(&'a Live, Timestamp)> {
        // Without its UID, no statement of an end is about it.
        let Some(owner) = object.and_then(|object| Owner::new(object).ok()) else {
            return Vec::new();
        };
        let uid = owner.uid.as_str();
        let window = self.declared.window.as_ref().and_then(|window| {
            let selector = selector(&self.declared, &owner).ok()?;
            Some((window.end(owner.object)?, selector))
        });
        let end = |child: &Live| {
            let metadata = &child.object.metadata;
            let controller = labels::controller(metadata);
            if controller.is_some_and(|controller| controller.uid != uid) {
                return None;
            }
            let none = BTreeMap::new();
            let labels = metadata.labels.as_ref().unwrap_or(&none);
            let window = window
                .as_ref()
                .filter(|(_, selector)| controller.is_some() && selector.matches(labels));
            let ends = [
                ends::read(&self.keys, uid, child),
                window.map(|(end, _)| *end),
            ];
            ends.into_iter().flatten().min()
        };
        live.iter()
            .filter_map(|child| Some((child, end(child)?)))
            .collect()
    }

    /// Returns the first expiry of the children and of the parent itself.
    fn first_end(&self, object: &DynamicObject, live: &[Live]) -> Option<Timestamp> {
        let ends = self.with_end(Some(object), live);
        let ends = ends.iter().map(|(_, until)| *until);
        ends.chain(self.parent_end(object)).min()
    }

    /// Returns the expired children.
    fn overdue<'a>(
        &self,
        now: Timestamp,
        object: &DynamicObject,
        live: &'a [Live],
    ) -> Vec<&'a Live> {
        let ends = self.with_end(Some(object), live).into_iter();
        let over = ends.filter(|(child, until)| {
            has_come(now, *until) && child.object.metadata.deletion_timestamp.is_none()
        });
        over.map(|(child, _)| child).collect()
    }

    /// Returns the decision about expired children, which are recorded for the next call of the function.
    fn ended(
        &self,
        now: Timestamp,
        parent: &Parent<'_>,
        facts: &Facts,
        over: &[&Live],
    ) -> Verdict<Question, Decision<Pass>> {
        let end = self.parent_end(parent.owner.object);
        let asks = matches!(self.mode, Mode::Run | Mode::Guard)
            && !parent.finalizing
            && end.is_none_or(|end| !has_come(now, end));
        let recorded = facts.expired.as_ref().filter(|_| asks);
        let unrecorded = recorded.map(|recorded| {
            let is_new = |one: &&&Live| !recorded.iter().any(|known| known.is_same(one));
            let unrecorded = over.iter().filter(is_new);
            unrecorded.map(|one| (*one).clone()).collect::<Vec<_>>()
        });
        if let Some(unrecorded) = unrecorded.filter(|unrecorded| !unrecorded.is_empty()) {
            return Verdict::Need {
                question: Question::Expired(unrecorded),
                until: None,
            };
        }
        let over = over.iter().map(|child| Step::Delete(child.reference()));
        decided(Plan::default().then(over).wake_at(after(now, NEXT)))
    }

    /// Returns the expired children with which the function is called once.
    fn expired<'a>(parent: &Parent<'_>, facts: &'a Facts) -> &'a [Live] {
        match &facts.expired {
            Some(expired) if !parent.finalizing => expired,
            _ => &[],
        }
    }

    /// Returns the plan for a parent that is being deleted without a call of the function: children with an expiry
    /// are deleted with it.
    fn leave(&self, parent: &Parent<'_>, live: &[Live]) -> Plan {
        let left = self.with_end(Some(parent.owner.object), live);
        let deletes = left
            .iter()
            .map(|(child, _)| Step::Delete(child.reference()));
        let plan = Plan::default().then(deletes);
        let finalizer = parent.held.then(|| self.declared.finalizer.clone());
        plan.then(finalizer.map(Step::Release))
    }

    /// Returns the related objects of the function.
    fn related<'a>(&self, parent: &Parent<'_>, facts: &'a Facts) -> Result<&'a [Related], Unshown> {
        let (declared, metadata) = (&self.declared, &parent.owner.object.metadata);
        let own = metadata.namespace.as_ref();
        let mut rules: Vec<Rule> = declared.related.clone();
        for rule in &mut rules {
            rule.namespace = rule.namespace.take().or_else(|| own.cloned());
        }
        if declared.customize.is_some() {
            match &facts.rules {
                None => {
                    let request =
                        protocol::customizing(declared, &self.family, parent.owner.object);
                    return Err(Unshown::Need(Question::Customize(request)));
                }
                Some(Err(refused)) => return Err(Unshown::Refused(refused.clone())),
                Some(Ok(named)) => rules.extend(named.iter().cloned()),
            }
        }
        match &facts.related {
            _ if rules.is_empty() => Ok(&[]),
            None => Err(Unshown::Need(Question::Related(rules))),
            Some(Err(failure)) => Err(Unshown::Refused(failure.clone().into())),
            Some(Ok(related)) => Ok(related),
        }
    }

    fn call(
        &self,
        parent: &Parent<'_>,
        claimed: &Claimed,
        related: &[Related],
        expired: &[Live],
    ) -> Question {
        let (function, call) = match &self.declared.finalize {
            Some(finalize) if parent.finalizing => (Function::Finalize, finalize),
            _ => (Function::Sync, &self.declared.sync),
        };
        let (declared, family) = (&self.declared, &self.family);
        let there = claimed.own.iter().chain(&claimed.adoptable);
        // Another object may have the name of one that expired.
        let is_gone = |one: &&Live| !there.clone().any(|live| live.key() == one.key());
        let expired = expired.iter().filter(is_gone);
        let children: Vec<Live> = there.clone().chain(expired).cloned().collect();
        let request = protocol::request(
            declared,
            family,
            call.version,
            parent.owner.object,
            &children,
            related,
            function == Function::Finalize,
        );
        Question::Call(function, request)
    }

    /// Returns the decision about a parent for which the function is called.
    fn sync(
        &self,
        now: Timestamp,
        parent: &Parent<'_>,
        facts: &Facts,
        live: &[Live],
    ) -> Verdict<Question, Decision<Pass>> {
        let object = parent.owner.object;
        let until = self.first_end(object, live);
        let waking = |plan: Plan| until.into_iter().fold(plan, Plan::wake_at);
        let selector = match selector(&self.declared, &parent.owner) {
            Ok(selector) => selector,
            Err(error) => {
                let error = format!("{} {error}", self.title(object));
                let failure = Failure::invalid("SelectorInvalid", error);
                return decided(waking(self.unanswered(parent, live, failure)));
            }
        };
        let bounds = match self.bounds(parent) {
            Ok(bounds) => bounds,
            Err(failure) => return decided(waking(self.unanswered(parent, live, failure))),
        };
        let mut claimed = claim(&self.family, &parent.owner, &selector, live);
        match &facts.alive {
            _ if claimed.adoptable.is_empty() || parent.deleting => claimed.adoptable.clear(),
            None => {
                return Verdict::Need {
                    question: Question::Alive,
                    until,
                };
            }
            Some(Ok(true)) => match self.adopts(&parent.owner, facts, claimed.adoptable) {
                Ok(adoptable) => claimed.adoptable = adoptable,
                Err(question) => return Verdict::Need { question, until },
            },
            Some(_) => claimed.adoptable.clear(),
        }
        let refuse = |refused: &Refused| {
            let failure = refused.failure.clone();
            let plan = waking(self.unanswered(parent, &claimed.own, failure));
            decided(refused.again.into_iter().fold(plan, Plan::wake_at))
        };
        let related = match self.related(parent, facts) {
            Ok(related) => related,
            Err(Unshown::Need(question)) => return Verdict::Need { question, until },
            Err(Unshown::Refused(refused)) => return refuse(&refused),
        };
        let called = match &facts.called {
            None => {
                let expired = Self::expired(parent, facts);
                let question = self.call(parent, &claimed, related, expired);
                return Verdict::Need { question, until };
            }
            Some(Err(refused)) => return refuse(refused),
            Some(Ok(called)) if self.is_of_another_policy(called) => {
                let again = after(now, POLICY_CHANGED);
                return decided(waking(Plan::default().wake_at(again)));
            }
            Some(Ok(called)) => called,
        };
        let rights = facts.rights.as_slice();
        let facts_of_children = (called, rights, facts.stored.as_deref());
        match self.follow(now, parent, &claimed, &selector, facts_of_children, bounds) {
            Ok(plan) => {
                let plan = match Self::expired(parent, facts) {
                    [] => plan,
                    _ => plan.wake_at(after(now, ONCE_MORE)),
                };
                let state = Pass::of_call(called);
                let decision = Decision { plan, state };
                match self.slowed(now, parent, called, live, &decision) {
                    None => Verdict::Decided(decision),
                    Some(change) => self.settle(facts, change, decision, until),
                }
            }
            Err(Otherwise::Need(question)) => Verdict::Need { question, until },
            Err(Otherwise::Wrong(error)) => {
                let message = format!(
                    "{}: the response of the function for {}: {error}",
                    self.declared.name,
                    self.title(object)
                );
                let failure = Failure::invalid("ResponseInvalid", message);
                decided(waking(self.unanswered(parent, &claimed.own, failure)))
            }
        }
    }

    /// Returns the objects that the parent adopts.
    fn adopts(
        &self,
        owner: &Owner<'_>,
        facts: &Facts,
        adoptable: Vec<Live>,
    ) -> Result<Vec<Live>, Question> {
        let kind = &self.family.parent.resource;
        let kind = rights::title(&kind.kind, &kind.group);
        // Of authors who are not known none may anything.
        let authors = rights::authors_of(&self.keys, &kind, owner.object).ok();
        let authors = authors.as_deref();
        adopted(&self.declared, owner, authors, &facts.rights, adoptable).map_err(Question::Rights)
    }

    /// Returns the change of existing objects by a decision; `None` if it only creates objects.
    fn slowed(
        &self,
        now: Timestamp,
        parent: &Parent<'_>,
        called: &Called,
        live: &[Live],
        decision: &Decision<Pass>,
    ) -> Option<Change> {
        if self.mode == Mode::DryRun || parent.deleting {
            return None;
        }
        let mut steps = decision.plan.steps();
        let mut what = Vec::new();
        if steps.any(|step| matches!(step, Step::Apply(_) | Step::Delete(_))) {
            let there: BTreeSet<Key> = live.iter().map(Live::key).collect();
            let changes = decision.plan.steps().filter(|step| match step {
                Step::Apply(child) => there.contains(&child.key()),
                Step::Delete(_) => true,
                _ => false,
            });
            what.extend(changes.filter_map(name));
        }
        let status = parent.owner.object.data.get("status");
        if status.is_some_and(|now| *now != self.status_of(parent.owner.object, &decision.state)) {
            what.push("its status".to_owned());
        }
        if what.is_empty() {
            return None;
        }
        let asked = called.answer.resync_after.map(resync_after);
        let resync = self.declared.resync.into_iter().chain(asked).min();
        // Time that passes is a cause as well, at the instants that the parent names.
        let time = ends::instants(&parent.owner.object.data, now)
            .first()
            .copied();
        let policy = called.policy.as_deref();
        let of = (policy, time);
        Some(Change::new(parent.owner.object, of, live, resync, what))
    }

    /// Returns the decision about a plan that changes objects.
    fn settle(
        &self,
        facts: &Facts,
        change: Change,
        decision: Decision<Pass>,
        until: Option<Timestamp>,
    ) -> Verdict<Question, Decision<Pass>> {
        match facts.slowed {
            None => Verdict::Need {
                question: Question::Slowed(change),
                until,
            },
            Some(None) => Verdict::Decided(decision),
            Some(Some(again)) => {
                let plan = Plan::default().because(change.failure(&self.declared.name));
                let plan = until.into_iter().fold(plan, Plan::wake_at);
                decided(plan.wake_at(again))
            }
        }
    }

    /// Returns the status of a parent that a response requires.
    #[must_use]
    pub fn required_status(&self, object: &DynamicObject, called: &Called) -> Value {
        self.status_of(object, &Pass::of_call(called))
    }

    /// Returns the next status of a parent.
    fn status_of(&self, object: &DynamicObject, pass: &Pass) -> Value {
        let Some(mut status) = pass.status.clone() else {
            return self.current_status(object).unwrap_or_default();
        };
        if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
            newest_of_each_type(conditions);
        }
        if self.observes_generation
            && let Some(generation) = object.metadata.generation
        {
            status.insert("observedGeneration".to_owned(), json!(generation));
        }
        Value::Object(status)
    }

    /// Checks whether the policy has changed since the mode was decided: the number of its deletions is unknown, and
    /// another controller is about to replace this one.
    fn is_of_another_policy(&self, called: &Called) -> bool {
        let guards = self.declared.most_deletions.is_some();
        guards && self.policy.is_some() && self.policy != called.policy
    }

    /// Returns the window in which the parent has children.
    fn bounds(&self, parent: &Parent<'_>) -> Result<Bounds, Failure> {
        let window = self.declared.window.as_ref();
        let bounds = window.map(|window| window.bounds(parent.owner.object));
        bounds
            .transpose()
            .map(Option::unwrap_or_default)
            .map_err(|error| {
                let message = format!("{} {error}", self.title(parent.owner.object));
                Failure::invalid("WindowInvalid", message)
            })
    }

    /// Returns the plan for a parent without a response of the function.
    fn unanswered(&self, parent: &Parent<'_>, own: &[Live], failure: Failure) -> Plan {
        let report = || Report {
            doubtful: own.len(),
            ..self.report(parent)
        };
        let withholds = matches!(self.mode, Mode::Guard | Mode::DryRun);
        let told = withholds.then(|| report().step(parent.owner.uid.as_str()));
        Plan::default().because(failure).then(told)
    }

    pub(super) fn report(&self, parent: &Parent<'_>) -> Report {
        let metadata = &parent.owner.object.metadata;
        let namespace = metadata.namespace.iter();
        let names = namespace.chain(&metadata.name).map(String::as_str);
        Report {
            composite: self.declared.uid.clone(),
            parent: names.collect::<Vec<_>>().join("/"),
            seen: parent.seen.clone(),
            ..Report::default()
        }
    }

    /// Returns the plan for a response of the function.
    fn follow(
        &self,
        now: Timestamp,
        parent: &Parent<'_>,
        claimed: &Claimed,
        selector: &Selector,
        (called, rights, stored): (&Called, &[(Want, Found)], Stored<'_>),
        bounds: Bounds,
    ) -> Result<Plan, Otherwise> {
        let answer = &called.answer;
        let mut wanted = self.wanted(now, parent, selector, called, bounds)?;
        let have: BTreeMap<Key, &Live> = (claimed.own.iter().chain(&claimed.adoptable))
            .map(|live| (live.key(), live))
            .collect();
        for (child, until) in &mut wanted {
            let live = have.get(&child.key()).copied();
            ends::write(&self.keys, parent.owner.uid.as_str(), child, *until, live)
                .map_err(AnswerError::Unsealed)?;
        }
        let ends = wanted.iter().filter_map(|(_, until)| *until);
        let mut plan = ends.min().into_iter().fold(Plan::default(), Plan::wake_at);
        let holds = self.declared.finalize.is_some() || plan.wake.is_some();
        if holds && !parent.held && !parent.finalizing {
            plan = plan.then([Step::Hold(self.declared.finalizer.clone())]);
        }
        if !parent.deleting {
            let reference = controller_reference(&self.family, &parent.owner);
            let adopted = claimed.adoptable.iter();
            let adopted = adopted.map(|one| Step::Adopt(one.reference(), reference.clone()));
            let released = claimed.released.iter();
            plan = plan.then(adopted.chain(released.map(|one| Step::Disown(one.reference()))));
        }
        let stored = as_stored(&have, &wanted, stored)?;
        let mut changes = self.changes(&have, &wanted, &stored);
        let judge = self.bindable.as_deref().map(|policy| Judge {
            policy,
            keys: &self.keys,
            kind: &self.family.parent.resource,
            have: &have,
        });
        // The garbage collector deletes the children of a parent that is being deleted, and asks nobody.
        let deletions = changes.deletions().filter(|_| !parent.deleting);
        let steps = changes.applies.iter().chain(deletions);
        match judge.map(|judge| judge.judge(parent.owner.object, steps, rights)) {
            Some(Judged::Ask(wants)) => return Err(Otherwise::Need(Question::Rights(wants))),
            Some(Judged::Refused(keys, Some(failure))) => {
                changes.leave_out(&keys);
                plan = plan.because(failure).wake_at(after(now, JUDGED_AGAIN));
            }
            Some(Judged::Refused(_, None)) | None => {}
        }
        plan = self.carries_out(plan, parent, changes);
        let mut bounds = [bounds.from, bounds.until].into_iter().flatten();
        let ahead = bounds.find(|at| !has_come(now, *at));
        plan = ahead.into_iter().fold(plan, Plan::wake_at);
        if parent.finalizing && answer.finalized {
            plan = plan.then([Step::Release(self.declared.finalizer.clone())]);
        }
        Ok(self.wakes(now, plan, parent, called))
    }

    /// Returns the current children of the parent, each with its expiry.
    fn wanted(
        &self,
        now: Timestamp,
        parent: &Parent<'_>,
        selector: &Selector,
        called: &Called,
        bounds: Bounds,
    ) -> Result<Vec<(Child, Option<Timestamp>)>, AnswerError> {
        let children = &called.answer.children;
        let (count, most) = (children.len(), self.declared.most_children);
        if count > most {
            return Err(AnswerError::TooManyChildren { count, most });
        }
        let wanted = desired(
            &self.declared,
            &self.family,
            &parent.owner,
            selector,
            children,
        )?;
        if !bounds.are_around(now) {
            return Ok(Vec::new());
        }
        let until = |named: &Value| {
            let ends = [called.gone_at(named), bounds.until];
            ends.into_iter().flatten().min()
        };
        let wanted = wanted.into_iter().zip(children);
        Ok(wanted.map(|(child, named)| (child, until(named))).collect())
    }

    /// Returns the plan with the changes that are permitted, and reports the others.
    fn carries_out(&self, plan: Plan, parent: &Parent<'_>, changes: Changes) -> Plan {
        let names = |steps: &[Step]| steps.iter().filter_map(name).collect();
        let delete = Report {
            delete: names(&changes.unwanted),
            ..self.report(parent)
        };
        match self.mode {
            Mode::Guard => {
                let mut plan = plan.then(changes.replaced).then(changes.applies);
                // Told before anything can fail.
                plan.stages
                    .insert(0, vec![delete.step(parent.owner.uid.as_str())]);
                plan
            }
            Mode::DryRun => {
                let is_new = |step: &Step| name(step).is_some_and(|it| changes.new.contains(&it));
                let (create, change) = changes
                    .applies
                    .iter()
                    .cloned()
                    .partition::<Vec<_>, _>(is_new);
                let report = Report {
                    create: names(&create),
                    change: names(&change),
                    ..delete
                };
                plan.then([report.step(parent.owner.uid.as_str())])
            }
            _ => plan
                .then(changes.unwanted.into_iter().chain(changes.replaced))
                .then(changes.applies),
        }
    }

    fn changes(
        &self,
        have: &BTreeMap<Key, &Live>,
        wanted: &[(Child, Option<Timestamp>)],
        stored: &BTreeSet<Key>,
    ) -> Changes {
        let mut changes = Changes::default();
        for live in have.values() {
            let is_wanted = wanted.iter().any(|(child, _)| child.key() == live.key());
            if !is_wanted && live.object.metadata.deletion_timestamp.is_none() {
                changes.unwanted.push(Step::Delete(live.reference()));
            }
        }
        for (child, _) in wanted {
            let Some(live) = have.get(&child.key()) else {
                let step = Step::Apply(child.clone());
                changes.new.extend(name(&step));
                changes.applies.push(step);
                continue;
            };
            // It is created anew when it is gone.
            if live.object.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let method = self.family.children.iter();
            let mut method = method.filter(|(placed, _)| placed.resource == child.resource);
            let method = method
                .next()
                .map_or(Method::OnDelete, |(_, method)| *method);
            let same = is_as_named(live, child) || stored.contains(&child.key());
            match method {
                Method::InPlace
                    if !same || !has_metadata(&live.object.metadata, &child.object.metadata) =>
                {
                    changes.applies.push(Step::Apply(child.clone()));
                }
                Method::Recreate if !same => {
                    changes.replaced.push(Step::Delete(live.reference()));
                    changes.applies.push(Step::Apply(child.clone()));
                }
                // Until when it lasts may have changed.
                _ if same
                    && annotation(&live.object, ends::UNTIL)
                        != annotation(&child.object, ends::UNTIL) =>
                {
                    changes.applies.push(Step::Apply(child.clone()));
                }
                _ => {}
            }
        }
        changes
    }

    /// Adds the instant of the next pass without an event to a plan.
    fn wakes(&self, now: Timestamp, mut plan: Plan, parent: &Parent<'_>, called: &Called) -> Plan {
        let asked = called.answer.resync_after.map(resync_after);
        for length in [self.declared.resync, asked].into_iter().flatten() {
            plan = plan.wake_at(after(now, length));
        }
        let first = called.ahead.first().map(|(at, _)| *at);
        let at = match (self.declared.sync.in_process.is_some(), first) {
            (true, at) => at.or(called.look_again),
            (false, _) => ends::instants(&parent.owner.object.data, now)
                .into_iter()
                .find(|instant| !has_come(now, *instant)),
        };
        at.into_iter().fold(plan, Plan::wake_at)
    }
}

/// The changes of a pass: deletions, then applications.
#[derive(Default)]
struct Changes {
    /// The deletions of children that the function does not return.
    unwanted: Vec<Step>,
    /// The deletions of children that are created again.
    replaced: Vec<Step>,
    applies: Vec<Step>,
    /// The children that do not exist yet.
    new: BTreeSet<String>,
}

impl Changes {
    fn deletions(&self) -> impl Iterator<Item = &Step> {
        self.unwanted.iter().chain(&self.replaced)
    }

    /// Removes the changes of these children.
    fn leave_out(&mut self, keys: &BTreeSet<Key>) {
        let of = |step: &Step| match step {
            Step::Apply(child) => Some(child.key()),
            Step::Delete(child) => Some(child.key()),
            _ => None,
        };
        let stays = |step: &Step| !of(step).is_some_and(|key| keys.contains(&key));
        self.unwanted.retain(stays);
        self.replaced.retain(stays);
        self.applies.retain(stays);
    }
}

/// Returns the interval after which a function requests the next pass, within the limits.
fn resync_after(seconds: f64) -> SignedDuration {
    let asked = SignedDuration::try_from_secs_f64(seconds).unwrap_or(LONGEST_RESYNC);
    asked.clamp(SHORTEST_RESYNC, LONGEST_RESYNC)
}

/// Returns the name of the child of a step, for messages.
fn name(step: &Step) -> Option<String> {
    let (kind, namespace, name) = match step {
        Step::Apply(child) => {
            let key = child.key();
            (&child.resource.kind, key.namespace, key.name)
        }
        Step::Delete(child) => {
            let (namespace, name) = (child.namespace.clone(), child.name.clone());
            (&child.resource.kind, namespace, name)
        }
        _ => return None,
    };
    Some(title(kind, namespace.as_deref(), &name?))
}

/// Returns a plan without its steps that only reports.
fn told_only(mut plan: Plan) -> Plan {
    for stage in &mut plan.stages {
        stage.retain(|step| matches!(step, Step::Effect(_)));
    }
    plan.stages.retain(|stage| !stage.is_empty());
    plan
}

/// Returns the children that the API server stores otherwise than they were applied, or the question which they are.
fn as_stored(
    have: &BTreeMap<Key, &Live>,
    wanted: &[(Child, Option<Timestamp>)],
    stored: Option<&[(Doubt, bool)]>,
) -> Result<BTreeSet<Key>, Otherwise> {
    let mut unchanged = BTreeSet::new();
    let Some(stored) = stored else {
        return Ok(unchanged);
    };
    let mut unknown = Vec::new();
    for (child, _) in wanted {
        let key = child.key();
        let live = have.get(&key);
        let Some(doubt) = live.and_then(|live| doubt(live, child)) else {
            continue;
        };
        match stored.iter().find(|(known, _)| *known == doubt) {
            Some((_, true)) => {
                unchanged.insert(key);
            }
            Some((_, false)) => {}
            None => unknown.push(doubt),
        }
    }
    if unknown.is_empty() {
        Ok(unchanged)
    } else {
        Err(Otherwise::Need(Question::Stored(unknown)))
    }
}

/// Checks whether a child has the content that the function returned: by the digest of that content at the last
/// write, which detects a removed field; and by the live content, which detects changes by others.
fn is_as_named(live: &Live, child: &Child) -> bool {
    let before = annotation(&live.object, APPLIED);
    let is_named_so = before.is_none() || before == annotation(&child.object, APPLIED);
    // Nobody has changed it since it was made: what looks otherwise is written so by the API server.
    let is_untouched = before.is_some() && live.object.metadata.generation == Some(1);
    is_named_so && (is_untouched || has_content(&live.object, &child.object))
}

/// Returns a decision that does not change the status.
pub(super) fn decided(plan: Plan) -> Verdict<Question, Decision<Pass>> {
    let state = Pass::default();
    Verdict::Decided(Decision { plan, state })
}

impl Controller for Composite {
    type Object = DynamicObject;
    type Facts = Facts;
    type Question = Question;
    type State = Pass;
    type Status = Value;

    fn name(&self) -> &str {
        &self.name
    }

    fn dynamic_type(&self) -> ApiResource {
        self.family.parent.resource.clone()
    }

    fn current_status(&self, object: &DynamicObject) -> Option<Value> {
        object.data.get("status").cloned()
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &DynamicObject,
        facts: &Facts,
        live: &[Live],
    ) -> Verdict<Question, Decision<Pass>> {
        let owner = match Owner::new(object) {
            Ok(owner) => owner,
            Err(error) => return decided(Plan::default().because(error.into())),
        };
        let parent = self.parent(owner, live);
        let over = self.overdue(now, object, live);
        if !over.is_empty() {
            return self.ended(now, &parent, facts, &over);
        }
        if let Some(verdict) = self.ends(now, &parent, facts) {
            return verdict;
        }
        match self.mode {
            Mode::Run | Mode::Guard | Mode::DryRun => {}
            // Nobody would be asked about it in the other modes either.
            Mode::Ends if parent.deleting && self.declared.finalize.is_none() => {
                return decided(self.leave(&parent, live));
            }
            Mode::Ends => {
                let first = self.first_end(object, live);
                return decided(first.into_iter().fold(Plan::default(), Plan::wake_at));
            }
            Mode::Leave => return decided(self.leave(&parent, live)),
        }
        let asks_finalize = self.declared.finalize.is_some() && parent.held;
        if parent.finalizing && !asks_finalize {
            return decided(if parent.deleting || parent.held {
                self.leave(&parent, live)
            } else {
                Plan::default()
            });
        }
        if !self.declared.has_function() {
            return decided(self.lasts(&parent));
        }
        match self.sync(now, &parent, facts, live) {
            Verdict::Decided(decision) if self.mode == Mode::DryRun => {
                decided(told_only(decision.plan))
            }
            verdict => verdict,
        }
    }

    fn status(
        &self,
        _: Timestamp,
        object: &DynamicObject,
        decision: &Decision<Pass>,
        _: &Outcome,
    ) -> Value {
        self.status_of(object, &decision.state)
    }

    fn orphaned(&self, _: Timestamp, object: Option<&DynamicObject>, live: &[Live]) -> Plan {
        // The garbage collector looks after the others.
        let left = self.with_end(object, live);
        Plan::default().then(
            left.iter()
                .map(|(child, _)| Step::Delete(child.reference())),
        )
    }

    fn selects(&self, object: &DynamicObject) -> Option<Selector> {
        if self.declared.generate_selector {
            return None;
        }
        selector(&self.declared, &Owner::new(object).ok()?).ok()
    }

    fn lasts_until(&self, object: Option<&DynamicObject>, live: &[Live]) -> Option<Timestamp> {
        self.first_end(object?, live)
    }

    fn failed(&self, _: &DynamicObject, failure: &Failure) -> Option<Transition> {
        Some(Transition {
            warning: true,
            reason: "SyncError",
            action: "Sync",
            note: format!("{} ({}): {failure}", self.declared.name, failure.reason),
            due: None,
        })
    }
}

/// Removes conditions with a type that occurs again: the newest condition of each type remains.
fn newest_of_each_type(conditions: &mut Vec<Value>) {
    let mut seen = std::collections::BTreeSet::new();
    conditions.retain(
        |condition| match condition.get("type").and_then(Value::as_str) {
            Some(type_) => seen.insert(type_.to_owned()),
            None => true,
        },
    );
}
