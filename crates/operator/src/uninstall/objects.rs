//! The reads of objects and responses during the removal of oz, and the deletion of objects.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource};
use oz_api::{GROUP, labels};
use serde::de::DeserializeOwned;
use serde_json::json;

/// The pause between two checks of the remaining objects.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// The timeout for pods of the webhook, and then for those of the operator, to end. With the
/// default of `patience`, all steps end well within the five minutes that Helm gives a hook.
pub(super) const STOP: Duration = Duration::from_secs(60);

/// Returns the finalizers of an object.
pub(super) fn finalizers(object: &ObjectMeta) -> impl Iterator<Item = &str> {
    object.finalizers.iter().flatten().map(String::as_str)
}

/// Returns the result; `None` if the object, or the kind, does not exist.
pub(super) fn unless_missing<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns the metadata of the objects of one kind that oz created.
pub(super) async fn grants<K>(client: &Client) -> Result<Vec<ObjectMeta>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let selector = format!(
        "{}={},{}",
        labels::MANAGED_BY,
        labels::OZ,
        labels::OWNER_UID
    );
    let listed = Api::<K>::all(client.clone())
        .list_metadata(&ListParams::default().labels(&selector))
        .await
        .with_context(|| format!("failed to list {}", K::plural(&())))?;
    let metadata = listed.items.into_iter().map(|object| object.metadata);
    Ok(metadata.filter(is_grant).collect())
}

/// Deletes an object; succeeds if it does not exist.
pub(super) async fn delete<K>(api: Api<K>, name: &str) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    unless_missing(api.delete(name, &DeleteParams::default()).await)
        .with_context(|| format!("failed to delete {} {name}", K::kind(&())))?;
    Ok(())
}

/// Removes a finalizer from an object, if the object is unchanged since it was read.
pub(super) async fn release<K>(api: &Api<K>, object: &ObjectMeta, finalizer: &str) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let name = object.name.as_deref().unwrap_or_default();
    let others: Vec<&str> = finalizers(object).filter(|one| *one != finalizer).collect();
    let patch = Patch::Merge(json!({"metadata": {
        "finalizers": others, "resourceVersion": object.resource_version,
    }}));
    let patched = api
        .patch_metadata(name, &PatchParams::default(), &patch)
        .await;
    unless_missing(patched).with_context(|| format!("failed to take {finalizer} off {name}"))?;
    Ok(())
}

/// Checks whether oz created an object for a user's access: its labels alone prove nothing, as any
/// user can write them.
fn is_grant(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.iter().flatten();
    let mut owners = metadata.owner_references.iter().flatten();
    let ours = format!("{GROUP}/");
    annotations
        .map(|(key, _)| key)
        .any(|key| key == labels::GRANT)
        || owners.any(|owner| owner.api_version.starts_with(&ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(value: serde_json::Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn labels_alone_do_not_make_an_object_ours_to_remove() {
        let labelled = json!({"labels": {labels::MANAGED_BY: labels::OZ, labels::OWNER_UID: "1"}});
        let sealed = json!({"annotations": {labels::GRANT: "{}"}});
        let owner = |api_version: &str| {
            json!({"ownerReferences": [{"apiVersion": api_version, "kind": "ExecAccessRequest",
                                        "name": "a", "uid": "1"}]})
        };
        assert!(!is_grant(&metadata(labelled)));
        assert!(is_grant(&metadata(sealed)));
        assert!(is_grant(&metadata(owner("crds.wizardofoz.co/v1alpha1"))));
        assert!(!is_grant(&metadata(owner("crds.wizardofoz.company/v1"))));
    }
}
