//! The controller of the composites of one kind of declaration.

use std::marker::PhantomData;

use kube::core::{Selector, SelectorExt};
use oz_api::labels;
use oz_api::names::COMPOSITE_FINALIZER;
use oz_core::lifecycle::drift;

use crate::account::Accounts;
use crate::declared::KindName;
use crate::source::Source;

/// The controller of the composites of one kind of declaration.
#[derive(Clone, Debug)]
pub struct Composites<S> {
    pub(super) accounts: Accounts,
    pub(super) natively: Vec<KindName>,
    /// Selector of the composites that run here.
    selector: Selector,
    declarations: PhantomData<fn() -> S>,
}

impl<S: Source> Composites<S> {
    /// Creates the controller with the accounts that read and write, and the kinds that oz itself reconciles: a
    /// composite of such a kind would conflict with oz.
    #[must_use]
    pub fn new(accounts: Accounts, natively: Vec<KindName>) -> Self {
        Self {
            accounts,
            natively,
            selector: Selector::default(),
            declarations: PhantomData,
        }
    }

    /// Limits the controller to composites with these labels. A composite without them, or that loses them, belongs
    /// to another controller.
    #[must_use]
    pub fn selecting(mut self, labels: impl IntoIterator<Item = (String, String)>) -> Self {
        self.selector = labels.into_iter().collect();
        self
    }

    /// Checks whether the composite is to be stopped.
    pub(super) fn is_leaving(&self, composite: &S) -> bool {
        let metadata = composite.meta();
        metadata.deletion_timestamp.is_some() || !self.selector.matches(labels::of_object(metadata))
    }
}

/// Checks whether a composite has oz's finalizer.
pub(super) fn is_held<S: Source>(composite: &S) -> bool {
    drift::has_finalizer(composite.meta(), COMPOSITE_FINALIZER)
}
