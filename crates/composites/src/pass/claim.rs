//! Claiming: the children of an owner are the objects that it controls and selects. It also adopts and releases
//! objects.

use std::collections::BTreeMap;

use kube::core::{Selector, SelectorExt};
use oz_api::labels;
use oz_core::controller::{Key, Live};

use super::facts::{Facts, Question};
use crate::adoption::adopted;
use crate::owner::Owner;

/// The objects that concern one owner.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Claimed {
    /// The children of the owner.
    pub(super) own: Vec<Live>,
    /// The objects that the owner adopts.
    pub(super) adoptable: Vec<Live>,
    /// The objects that the owner controls and no longer selects.
    pub(super) released: Vec<Live>,
}

impl Claimed {
    /// Returns the children, including the adopted objects.
    pub(super) fn children(&self) -> impl Iterator<Item = &Live> {
        self.own.iter().chain(&self.adoptable)
    }

    /// Returns the children by kind, namespace and name.
    pub(super) fn by_key(&self) -> BTreeMap<Key, &Live> {
        self.children().map(|live| (live.key(), live)).collect()
    }
}

/// Returns the objects that concern an owner, or the question that its adoptions require.
pub(super) fn claim(
    owner: &Owner<'_>,
    selector: &Selector,
    facts: &Facts,
    live: &[Live],
) -> Result<Claimed, Question> {
    let mut claimed = sort(owner, selector, live);
    let candidates = std::mem::take(&mut claimed.adoptable);
    if candidates.is_empty() || owner.is_deleting() {
        return Ok(claimed);
    }
    match &facts.alive {
        None => return Err(Question::Alive),
        Some(Ok(true)) => {
            let adoptable = adopted(owner, &facts.rights, candidates);
            claimed.adoptable = adoptable.map_err(Question::Rights)?;
        }
        Some(_) => {}
    }
    Ok(claimed)
}

/// Sorts the objects of the watches. Those that an owner may adopt are candidates.
fn sort(owner: &Owner<'_>, selector: &Selector, live: &[Live]) -> Claimed {
    let mut claimed = Claimed::default();
    let uid = owner.uid;
    for child in live {
        let metadata = &child.object.metadata;
        let selected = selector.matches(labels::of_object(metadata));
        let here = owner.rules.family.parent.cluster_scoped
            || metadata.namespace == owner.object.metadata.namespace;
        match labels::controller(metadata) {
            Some(controller) if uid == *controller.uid && selected => {
                claimed.own.push(child.clone())
            }
            Some(controller) if uid == *controller.uid => claimed.released.push(child.clone()),
            None if selected && here && metadata.deletion_timestamp.is_none() => {
                claimed.adoptable.push(child.clone());
            }
            _ => {}
        }
    }
    claimed
}
