//! Evaluating: the desired children of an owner, from the response of its function.

use std::collections::BTreeMap;

use jiff::Timestamp;
use oz_core::controller::{Child, Key, Live};

use crate::answer::AnswerError;
use crate::desired::desired;
use crate::ends;
use crate::function::Called;
use crate::owner::{Owner, Terms};

/// A desired child.
#[derive(Debug, PartialEq)]
pub(super) struct Desired {
    /// The child, with the seal of its expiry.
    pub(super) child: Child,
    /// The expiry; `None` if the child does not expire.
    pub(super) until: Option<Timestamp>,
}

/// Returns the desired children of an owner. `have` are its existing children.
///
/// # Errors
/// If the response is invalid.
pub(super) fn evaluate(
    now: Timestamp,
    owner: &Owner<'_>,
    terms: &Terms,
    called: &Called,
    have: &BTreeMap<Key, &Live>,
) -> Result<Vec<Desired>, AnswerError> {
    let named = &called.answer.children;
    let (count, most) = (named.len(), owner.rules.most_children);
    if count > most {
        return Err(AnswerError::TooManyChildren { count, most });
    }
    let children = desired(owner, &terms.selector, named)?;
    if !terms.bounds.are_around(now) {
        return Ok(Vec::new());
    }
    let children = children.into_iter().zip(named);
    let sealed = children.map(|(mut child, named)| {
        let instants = [called.gone_at(named), terms.bounds.until];
        let until = instants.into_iter().flatten().min();
        let live = have.get(&child.key()).copied();
        let written = ends::write(
            owner.rules.keys,
            owner.uid.as_str(),
            &mut child,
            until,
            live,
        );
        written
            .map(|()| Desired { child, until })
            .map_err(AnswerError::Unsealed)
    });
    sealed.collect()
}
