//! Composites in files, checked against their schemas and by the operator's rules for the condition
//! Accepted.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use oz_api::composite::CompositeController;
pub(super) use oz_api::composite::GROUP;
use oz_api::rego::RegoController;
use oz_composites::declared::Modules;
use oz_composites::{Declaration, Source};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::found::{Found, add, add_checked};

/// The only kind of MetaController's group that oz runs.
const KIND: &str = "CompositeController";

pub(super) fn crds() -> [CustomResourceDefinition; 2] {
    [CompositeController::crd(), RegoController::crd()]
}

/// Finds the errors in the declaration of a composite, and in its policy if the declaration
/// contains it.
pub(super) fn declared(kind: &str, object: &Value, found: &mut Found) {
    let read = match kind {
        KIND => read::<CompositeController>(object),
        _ => read::<RegoController>(object),
    };
    let declared = read.map(|read| read.declared());
    let declared = match declared {
        Err(error) => return add_checked(Err(error), "spec", found),
        Ok(Err(violations)) => return add(violations, found),
        Ok(Ok(declared)) => declared,
    };
    for function in declared.policies() {
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

fn read<S: Source + DeserializeOwned>(object: &Value) -> serde_json::Result<Declaration> {
    let read: S = serde_json::from_value(object.clone())?;
    Ok(read.declaration())
}
