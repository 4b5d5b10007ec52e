//! What is read off objects and answers that uninstalling meets.

use kube::core::ObjectMeta;

/// Who keeps an object.
pub(super) fn finalizers(object: &ObjectMeta) -> impl Iterator<Item = &str> {
    object.finalizers.iter().flatten().map(String::as_str)
}

/// Whether there is no such object, or no such kind.
pub(super) fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
