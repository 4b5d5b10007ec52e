//! The policies of composites in files, compiled as the operator compiles them.

use oz_api::composite::CompositeController;
pub(super) use oz_api::composite::GROUP;
use oz_api::rego::RegoController;
use oz_composites::Source;
use oz_composites::declared::{Declared, Modules};
use oz_core::kinds::{Entry, Kind as _};
use serde_json::Value;

use super::found::Found;

/// Finds the errors in the policy of a composite with valid fields, if the declaration contains the policy.
pub(super) fn check(kind: &Entry, object: &Value, found: &mut Found) {
    let declared = match kind.name {
        CompositeController::NAME => declared::<CompositeController>(object),
        RegoController::NAME => declared::<RegoController>(object),
        _ => None,
    };
    for function in declared.iter().flat_map(Declared::policies) {
        let Modules::Inline(text) = &function.modules else {
            continue;
        };
        let place = function.modules.to_string();
        let modules = [(place.clone(), text.clone())];
        let compiled = oz_function::compile(&place, &modules, oz_function::dialect(function));
        if let Err(failure) = compiled {
            found.push(("rule", place, failure.message));
        }
    }
}

/// Returns the declaration of a composite without violations.
fn declared<S: Source>(object: &Value) -> Option<Declared> {
    let source: S = serde_json::from_value(object.clone()).ok()?;
    source.declared().ok()
}
