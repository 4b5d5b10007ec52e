//! The JSON Patch (RFC 6902) of a template, with what the original takes beyond the RFC: indices
//! below zero count from the end.

use json_patch::{PatchOperation, patch};
use serde_json::{Value, json};

use super::MutateError;
use crate::api::{PatchOp, PatchSpecOperation};

/// The largest document that a patch can make, in bytes: a few copies of a document into itself
/// would fill any memory.
const LARGEST: usize = 512 * 1024;

/// Applies the operations one after the other.
pub(super) fn apply(
    document: &mut Value,
    operations: &[PatchSpecOperation],
) -> Result<(), MutateError> {
    for (index, operation) in operations.iter().enumerate() {
        one(document, operation).map_err(|why| MutateError::Patch {
            index,
            op: operation.op.into(),
            path: operation.path.clone(),
            why,
        })?;
    }
    Ok(())
}

fn one(document: &mut Value, operation: &PatchSpecOperation) -> Result<(), String> {
    let adds = matches!(operation.op, PatchOp::Add | PatchOp::Copy | PatchOp::Move);
    let mut plain = json!({
        "op": operation.op,
        "path": from_the_front(document, &operation.path, adds),
    });
    if let Some(from) = &operation.from {
        plain["from"] = json!(from_the_front(document, from, false));
    }
    if let Some(value) = &operation.value {
        plain["value"] = value.clone();
    }
    let plain: PatchOperation = serde_json::from_value(plain).map_err(|error| error.to_string())?;
    patch(document, &[plain]).map_err(|error| error.kind.to_string())?;
    if document.to_string().len() > LARGEST {
        return Err(format!("the pod template is larger than {LARGEST} bytes"));
    }
    Ok(())
}

/// The pointer with every index counted from the front. To add at -1 is to append.
fn from_the_front(document: &Value, pointer: &str, adds: bool) -> String {
    let mut place = Some(document);
    let tokens: Vec<&str> = pointer.split('/').skip(1).collect();
    let last = tokens.len().saturating_sub(1);
    let resolved = tokens.iter().enumerate().map(|(position, token)| {
        let items = place.and_then(Value::as_array);
        let count = items.map(|items| items.len() + usize::from(adds && position == last));
        let token = count
            .and_then(|count| {
                let back: usize = token.strip_prefix('-')?.parse().ok()?;
                count.checked_sub(back).filter(|_| back > 0)
            })
            .map_or_else(|| (*token).to_owned(), |index| index.to_string());
        place = place.and_then(|place| place.pointer(&format!("/{token}")));
        token
    });
    resolved.fold(String::new(), |pointer, token| format!("{pointer}/{token}"))
}
