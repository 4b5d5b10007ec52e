//! The expiry of children, which precedes the stages of a pass: expired children are deleted without a call of the
//! function.

use jiff::{SignedDuration, Timestamp};
use kube::core::{DynamicObject, SelectorExt};
use oz_api::labels;
use oz_core::controller::{Decision, Live, Plan, Step, Verdict};
use oz_core::lifecycle::window::{after, has_come};

use super::composite::Composite;
use super::facts::{Parent, Question};
use super::report::{Pass, decided};
use crate::ends;
use crate::mode::Mode;
use crate::owner::Owner;

/// Delay of the pass that follows the deletion of expired children.
const NEXT: SignedDuration = SignedDuration::from_millis(1);

/// Returns the children of an owner that have an expiry: in their annotation, or from the owner's window. A child that
/// lost its owner reference by an orphaning deletion still counts, by its annotation.
pub(super) fn expiring<'a>(owner: &Owner<'_>, live: &'a [Live]) -> Vec<(&'a Live, Timestamp)> {
    let uid = owner.uid.as_str();
    let window = owner.rules.window.and_then(|window| {
        let selector = owner.selector().ok()?;
        Some((window.end(owner.object)?, selector))
    });
    let end = |child: &Live| {
        let metadata = &child.object.metadata;
        let controller = labels::controller(metadata);
        if controller.is_some_and(|controller| controller.uid != uid) {
            return None;
        }
        let window = window.as_ref().filter(|(_, selector)| {
            controller.is_some() && selector.matches(labels::of_object(metadata))
        });
        let ends = [
            ends::read(owner.rules.keys, uid, child),
            window.map(|(end, _)| *end),
        ];
        ends.into_iter().flatten().min()
    };
    live.iter()
        .filter_map(|child| Some((child, end(child)?)))
        .collect()
}

impl Parent<'_> {
    /// Returns the expired children.
    pub(super) fn expired(&self) -> Vec<&Live> {
        let expired = self.expiring.iter().filter(|(child, until)| {
            has_come(self.now, *until) && child.object.metadata.deletion_timestamp.is_none()
        });
        expired.map(|(child, _)| *child).collect()
    }

    /// Returns the plan for a parent that is released without a call of the function: its children with an expiry are
    /// deleted.
    pub(super) fn leave(&self) -> Plan {
        let deletes = self.expiring.iter();
        let deletes = deletes.map(|(child, _)| Step::Delete(child.reference()));
        let finalizer = self.owner.rules.finalizer;
        let finalizer = self.owner.is_held().then(|| finalizer.to_owned());
        Plan::default()
            .then(deletes)
            .then(finalizer.map(Step::Release))
    }
}

impl Composite {
    /// Returns the children of a parent that have an expiry; none for a parent without an identity, which no seal can
    /// name.
    pub(super) fn expiring<'a>(
        &self,
        parent: Option<&DynamicObject>,
        live: &'a [Live],
    ) -> Vec<(&'a Live, Timestamp)> {
        let owner = parent.and_then(|parent| self.owner(parent).ok());
        owner.map_or_else(Vec::new, |owner| expiring(&owner, live))
    }

    /// Returns the first expiry of the children and of the parent itself.
    pub(super) fn first_end(
        &self,
        parent: &DynamicObject,
        expiring: &[(&Live, Timestamp)],
    ) -> Option<Timestamp> {
        let ends = expiring.iter().map(|(_, until)| *until);
        ends.chain(self.parent_end(parent)).min()
    }

    /// Returns the decision about expired children, which are recorded for the next call of the function.
    pub(super) fn expire(
        &self,
        parent: &Parent<'_>,
        expired: &[&Live],
    ) -> Verdict<Question, Decision<Pass>> {
        let now = parent.now;
        let end = self.parent_end(parent.owner.object);
        let asks = matches!(self.mode, Mode::Run | Mode::Guard)
            && !parent.owner.is_finalizing()
            && end.is_none_or(|end| !has_come(now, end));
        let recorded = parent.facts.expired.as_ref().filter(|_| asks);
        let unrecorded = recorded.map(|recorded| {
            let is_new = |one: &&&Live| !recorded.iter().any(|known| known.is_same(one));
            let unrecorded = expired.iter().filter(is_new);
            unrecorded.map(|one| (*one).clone()).collect::<Vec<_>>()
        });
        if let Some(unrecorded) = unrecorded.filter(|unrecorded| !unrecorded.is_empty()) {
            return Verdict::Need {
                question: Question::Expired(unrecorded),
                until: None,
            };
        }
        let deletes = expired.iter().map(|child| Step::Delete(child.reference()));
        decided(Plan::default().then(deletes).wake_at(after(now, NEXT)))
    }
}
