//! The registration of the hooks of transient bindings.

use std::marker::PhantomData;
use std::sync::Arc;

use oz_admission::{Hook, NamespaceScope, Operation, SideEffects};
use oz_core::transient::Kind;

use super::stamp::BindingStamper;
use super::validate::BindingValidator;
use super::watches::Watches;
use crate::hooks::{Grounds, path, validating};
use crate::policy::Judges;

/// Returns the hooks of one kind.
pub(crate) fn hooks<K: Kind>(grounds: &Grounds, judges: &Judges, watches: &Watches) -> [Hook; 2] {
    [stamp::<K>(grounds, judges), validate::<K>(grounds, watches)]
}

/// Returns the stamp hook, which has no exceptions: an object without a stamp is never bound.
fn stamp<K: Kind>(grounds: &Grounds, judges: &Judges) -> Hook {
    let handler = BindingStamper::<K>::new(grounds.keys.clone(), judges.clone());
    Hook::mutating(&format!("stamp-{}", K::NAME), handler)
        .on([Operation::Create])
        .namespaces(NamespaceScope::All)
        .reinvoke(true)
        .side_effects(SideEffects::None)
        .path(&path::<K>("mutate"))
        .webhook_name(&format!("m{}.kb.io", K::NAME))
}

fn validate<K: Kind>(grounds: &Grounds, watches: &Watches) -> Hook {
    let handler = BindingValidator::<K> {
        keys: grounds.keys.clone(),
        policy: Arc::clone(&grounds.policy),
        served: Arc::clone(&grounds.served),
        operator: grounds.operator.clone(),
        records: grounds.records.clone(),
        watches: watches.clone(),
        kind: PhantomData,
    };
    let hook = Hook::validating(&format!("validate-{}", K::NAME), handler);
    validating::<K>(grounds, hook)
}
