//! The controller of one composite, and its parents as owners of their children.

use std::sync::Arc;

use kube::core::DynamicObject;
use oz_api::{IdentityError, labels};
use oz_core::lifecycle::seal::Keys;
use oz_core::transient::Policy;

use crate::declared::{Declared, Family};
use crate::mode::Mode;
use crate::owner::{Owner, Ownership, Selection};

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

impl Composite {
    /// Returns a parent as the owner of its children.
    pub(super) fn owner<'a>(
        &'a self,
        parent: &'a DynamicObject,
    ) -> Result<Owner<'a>, IdentityError> {
        let declared = &self.declared;
        let selection = match declared.generate_selector {
            true => Selection::Generated,
            false => Selection::Stated {
                adopts_all: declared.adopts_as_original,
            },
        };
        let rules = Ownership {
            family: &self.family,
            selection,
            finalizer: &declared.finalizer,
            finalizes: declared.finalize.is_some(),
            window: declared.window.as_ref(),
            most_children: declared.most_children,
            keys: &self.keys,
            bindable: self.bindable.as_deref(),
        };
        let is_selected = declared.selects(labels::of_object(&parent.metadata));
        Owner::new(parent, rules, is_selected)
    }
}
