//! The changes between the existing and the desired children of an owner.

use std::collections::{BTreeMap, BTreeSet};

use oz_api::composite::Method;
use oz_core::controller::{Child, Key, Live, Step, has_content, has_metadata};

use super::evaluate::Desired;
use super::facts::Question;
use crate::desired::APPLIED;
use crate::ends;
use crate::function::title;
use crate::owner::Owner;
use crate::stored::{Doubt, annotation, doubt};

/// The changes of a pass: deletions, then applications.
#[derive(Default)]
pub(super) struct Changes {
    /// The deletions of children that the function does not return.
    pub(super) unwanted: Vec<Step>,
    /// The deletions of children that are created again.
    pub(super) replaced: Vec<Step>,
    pub(super) applies: Vec<Step>,
    /// The children that do not exist yet.
    pub(super) new: BTreeSet<String>,
}

impl Changes {
    /// Compares the desired children with the existing ones. `stored` are those that the API server stores otherwise
    /// than they were applied.
    pub(super) fn between(
        owner: &Owner<'_>,
        have: &BTreeMap<Key, &Live>,
        desired: &[Desired],
        stored: &BTreeSet<Key>,
    ) -> Self {
        let mut changes = Self::default();
        for live in have.values() {
            let is_desired = desired.iter().any(|one| one.child.key() == live.key());
            if !is_desired && live.object.metadata.deletion_timestamp.is_none() {
                changes.unwanted.push(Step::Delete(live.reference()));
            }
        }
        for Desired { child, .. } in desired {
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
            let method = owner.rules.family.children.iter();
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
                // Its expiry may have changed.
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

    /// Returns the deletions.
    pub(super) fn deletions(&self) -> impl Iterator<Item = &Step> {
        self.unwanted.iter().chain(&self.replaced)
    }

    /// Removes the changes of these children.
    pub(super) fn leave_out(&mut self, keys: &BTreeSet<Key>) {
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

/// Returns the name of the child of a step, for messages.
pub(super) fn name(step: &Step) -> Option<String> {
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

/// Returns the children that the API server stores otherwise than they were applied, or the question which they are.
/// `known` are the answers; `None` if all children are applied again.
pub(super) fn as_stored(
    have: &BTreeMap<Key, &Live>,
    desired: &[Desired],
    known: Option<&[(Doubt, bool)]>,
) -> Result<BTreeSet<Key>, Question> {
    let mut unchanged = BTreeSet::new();
    let Some(known) = known else {
        return Ok(unchanged);
    };
    let mut unknown = Vec::new();
    for Desired { child, .. } in desired {
        let key = child.key();
        let live = have.get(&key);
        let Some(doubt) = live.and_then(|live| doubt(live, child)) else {
            continue;
        };
        match known.iter().find(|(known, _)| *known == doubt) {
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
        Err(Question::Stored(unknown))
    }
}

/// Checks whether a child has the content that the function returned: by the digest of that content at the last
/// write, which detects a removed field; and by the live content, which detects changes by others.
fn is_as_named(live: &Live, child: &Child) -> bool {
    let before = annotation(&live.object, APPLIED);
    let is_named_so = before.is_none() || before == annotation(&child.object, APPLIED);
    // An object of the first generation is unchanged since its creation: the API server wrote the differences.
    let is_untouched = before.is_some() && live.object.metadata.generation == Some(1);
    is_named_so && (is_untouched || has_content(&live.object, &child.object))
}
