//! The reads of objects and responses during the removal of oz, and the deletion of objects.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use kube::{Api, Client};
use oz_api::{GROUP, Name, labels};
use serde_json::json;

/// The pause between two checks of the remaining objects.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// The timeout for pods of the webhook, and then for those of the operator, to end. With the
/// default of `timeout`, all steps end well within the five minutes that Helm gives a hook.
pub(super) const STOP: Duration = Duration::from_secs(60);
/// The time for which calls of a busy API server are retried.
const BUSY: Duration = Duration::from_secs(30);
/// The maximum number of attempts to change an object that others change at the same time.
const ATTEMPTS: usize = 10;

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

/// Returns the metadata of all objects of a kind; empty if it is not installed.
pub(super) async fn all_of(client: &Client, resource: &ApiResource) -> Result<Vec<ObjectMeta>> {
    let listed = list(&all(client, resource), &ListParams::default()).await;
    listed.with_context(|| format!("failed to list {}", resource.plural))
}

/// Returns the same for a kind of oz, also from an API server that is busy for a while, for example because it prepares
/// to serve the kind.
pub(super) async fn all_of_oz(client: &Client, resource: &ApiResource) -> Result<Vec<ObjectMeta>> {
    let (began, every) = (Instant::now(), all(client, resource));
    loop {
        match list(&every, &ListParams::default()).await {
            Err(error) if is_busy(&error) && began.elapsed() < BUSY => {
                tokio::time::sleep(PAUSE).await;
            }
            listed => {
                return listed.with_context(|| format!("failed to list {}", resource.plural));
            }
        }
    }
}

fn all(client: &Client, resource: &ApiResource) -> Api<DynamicObject> {
    Api::all_with(client.clone(), resource)
}

async fn list(api: &Api<DynamicObject>, parameters: &ListParams) -> kube::Result<Vec<ObjectMeta>> {
    let listed = unless_missing(api.list_metadata(parameters).await)?;
    Ok(listed.into_iter().flatten().map(|it| it.metadata).collect())
}

fn is_busy(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 429 || status.code >= 500)
}

/// Returns the metadata of the objects of one kind that oz created for objects of its kinds.
pub(super) async fn children(client: &Client, resource: &ApiResource) -> Result<Vec<ObjectMeta>> {
    let selector = format!(
        "{}={},{}",
        labels::MANAGED_BY,
        labels::OZ,
        labels::OWNER_UID
    );
    let listed = all(client, resource)
        .list_metadata(&ListParams::default().labels(&selector))
        .await
        .with_context(|| format!("failed to list {}", resource.plural))?;
    let metadata = listed.items.into_iter().map(|object| object.metadata);
    Ok(metadata.filter(is_grant).collect())
}

/// Deletes an object that was read; succeeds if it does not exist.
pub(super) async fn delete(
    client: &Client,
    resource: &ApiResource,
    object: &ObjectMeta,
    parameters: &DeleteParams,
) -> Result<()> {
    let name = Name::from_metadata(object)?;
    let api = api(client, resource, object.namespace.as_deref());
    unless_missing(api.delete(name.as_str(), parameters).await)
        .with_context(|| format!("failed to delete {} {name}", resource.kind))?;
    Ok(())
}

/// Removes a finalizer from an object. An object that was changed since it was read is read again: another component may
/// remove its own finalizer at the same time.
pub(super) async fn release(
    client: &Client,
    resource: &ApiResource,
    object: &ObjectMeta,
    finalizer: &str,
) -> Result<()> {
    let name = Name::from_metadata(object)?;
    let api = api(client, resource, object.namespace.as_deref());
    let released = try_release(&api, name.as_str(), object, finalizer).await;
    released.with_context(|| format!("failed to remove {finalizer} from {name}"))
}

async fn try_release(
    api: &Api<DynamicObject>,
    name: &str,
    object: &ObjectMeta,
    finalizer: &str,
) -> kube::Result<()> {
    // The account of the removal may list objects, and not get them.
    let by_name = ListParams::default().fields(&format!("metadata.name={name}"));
    let mut current = object.clone();
    for attempt in 1.. {
        let others: Vec<&str> = finalizers(&current)
            .filter(|one| *one != finalizer)
            .collect();
        let patch = Patch::Merge(json!({"metadata": {
            "finalizers": others, "resourceVersion": current.resource_version,
        }}));
        let patched = api
            .patch_metadata(name, &PatchParams::default(), &patch)
            .await;
        match unless_missing(patched) {
            Err(kube::Error::Api(status)) if status.is_conflict() && attempt < ATTEMPTS => {}
            patched => return patched.map(drop),
        }
        let listed = list(api, &by_name).await?.into_iter();
        let mut held = listed.filter(|found| {
            found.uid == object.uid && finalizers(found).any(|one| one == finalizer)
        });
        match held.next() {
            Some(changed) => current = changed,
            None => break,
        }
    }
    Ok(())
}

/// Returns the API for the objects of a kind in a namespace; `None` for cluster-scoped ones.
pub(super) fn api(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => all(client, resource),
    }
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
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Method, Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::Value;

    use super::*;

    fn workspace(version: u32, finalizers: &[&str]) -> Value {
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {
                "name": "demo", "namespace": "shop", "uid": "1",
                "resourceVersion": version.to_string(), "finalizers": finalizers,
            },
        })
    }

    /// Returns a client of an API server that stores a workspace with `finalizers` in version 2, and its later state.
    fn stored(finalizers: &[&str]) -> (Client, Arc<Mutex<Value>>) {
        let stored = Arc::new(Mutex::new(workspace(2, finalizers)));
        let server = Arc::clone(&stored);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move {
                let is_list = request.method() == Method::GET;
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut object = server.lock();
                let (code, answer) = if is_list {
                    let list = json!({
                        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                        "metadata": {}, "items": [*object],
                    });
                    (200, list)
                } else {
                    let patch: Value = serde_json::from_slice(&body).unwrap();
                    let version = &patch["metadata"]["resourceVersion"];
                    if *version == object["metadata"]["resourceVersion"] {
                        object["metadata"]["finalizers"] = patch["metadata"]["finalizers"].clone();
                        (200, object.clone())
                    } else {
                        let conflict = json!({
                            "kind": "Status", "apiVersion": "v1", "status": "Failure",
                            "reason": "Conflict", "message": "modified", "code": 409,
                        });
                        (409, conflict)
                    }
                };
                let answer = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        (Client::new(service, "default"), stored)
    }

    #[tokio::test]
    async fn a_finalizer_is_removed_from_an_object_that_changed_since_it_was_read() {
        let resource = ApiResource::erase::<oz_api::harness::Workspace>(&());
        let read: ObjectMeta =
            serde_json::from_value(workspace(1, &["a", "ours", "b"])["metadata"].clone()).unwrap();
        for (finalizers, left) in [(&["ours", "b"][..], json!(["b"])), (&["b"], json!(["b"]))] {
            let (client, stored) = stored(finalizers);
            release(&client, &resource, &read, "ours").await.unwrap();
            assert_eq!(
                stored.lock()["metadata"]["finalizers"],
                left,
                "{finalizers:?}"
            );
        }
    }

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
