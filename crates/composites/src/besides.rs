//! The content of a parent without its status.

use kube::core::DynamicObject;
use oz_api::encode::digest;

/// Returns the digest of a parent without its status. The digest changes if a user changes its spec, labels,
/// annotations or finalizers, or deletes the parent.
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
        // Not every kind has a generation.
        None => {
            let mut content = parent.data.clone();
            if let Some(fields) = content.as_object_mut() {
                fields.remove("status");
            }
            digest(&(content, told, deleting))
        }
    }
}
