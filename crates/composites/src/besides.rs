//! What of a parent is not its status.

use kube::core::DynamicObject;
use oz_api::encode::digest;

/// Digest of what of a parent is not its status: another one when somebody has changed its spec, labels, annotations
/// or finalizers, or is deleting it.
#[must_use]
pub fn besides_status(parent: &DynamicObject) -> String {
    let metadata = &parent.metadata;
    let deleting = metadata.deletion_timestamp.is_some();
    let told = (
        &metadata.labels,
        &metadata.annotations,
        &metadata.finalizers,
    );
    match metadata.generation {
        Some(generation) => digest(&(generation, told, deleting)),
        // Not every kind counts its changes.
        None => {
            let mut content = parent.data.clone();
            if let Some(fields) = content.as_object_mut() {
                fields.remove("status");
            }
            digest(&(content, told, deleting))
        }
    }
}
