//! The calls that change objects, each with a timeout, counted, and made only while this process
//! may write.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{
    Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::core::{ApiResource, DynamicObject, Request};
use kube::{Client, Resource};
use oz_api::{Name, labels};
use oz_core::controller::{Child, Failure, Key, Live, Reference, Sought, Which};
use oz_runtime::{Leadership, get, scan};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::children::Children;
use super::priority::WriteSlots;
use crate::failure::of_call;
use crate::metrics::Counts;
use crate::observe::{Belonging, within};

/// The maximum number of objects from one look; more would add no information.
const MOST_FOUND: usize = 8;

/// The writer of one controller.
pub(crate) struct Writer {
    pub(crate) client: Client,
    pub(crate) write_slots: WriteSlots,
    pub(crate) tenure: Leadership,
    pub(crate) counts: Arc<Counts>,
    /// The field manager.
    pub(crate) manager: String,
}

/// The result of a creation.
pub(crate) enum Created {
    /// The API server created the object.
    New(DynamicObject),
    /// An object of that name exists already.
    Exists(DynamicObject),
}

/// The result of a deletion.
pub(crate) enum Deleted {
    /// The object does not exist any more.
    Gone,
    /// The object is terminating: finalizers or a grace period keep it.
    /// See <https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/#how-finalizers-work>.
    Ending(Box<DynamicObject>),
}

impl Writer {
    fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    /// Checks whether this process may write at this moment.
    pub(crate) fn permitted(&self) -> Result<(), Failure> {
        if self.tenure.holds() {
            return Ok(());
        }
        Err(Failure::transient(
            "NotLeader",
            "this process does not hold the lease",
        ))
    }

    /// Checks the permission and counts the write; every write calls this first.
    fn allow(&self, verb: &'static str, kind: &str) -> Result<(), Failure> {
        self.permitted()?;
        self.counts.wrote(verb, kind);
        Ok(())
    }

    /// Creates a child; an existing object is read and left unchanged.
    pub(crate) async fn create(&self, child: &Child) -> Result<Created, Failure> {
        let key = child.key();
        self.allow("create", &key.kind)?;
        let api = self.api(&child.resource, key.namespace.as_deref());
        let parameters = PostParams {
            field_manager: Some(self.manager.clone()),
            dry_run: false,
        };
        let attempt = within(
            async {
                match api.create(&parameters, &child.object).await {
                    Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
                    answer => answer.map(Some),
                }
            },
            || format!("failed to create {key}"),
        );
        match attempt.await? {
            Some(object) => Ok(Created::New(stripped(object))),
            None => {
                let read = || format!("failed to read the {key} that exists already");
                let name = key.name()?;
                within(api.get(name.as_str()), read)
                    .await
                    .map(|object| Created::Exists(stripped(object)))
            }
        }
    }

    /// Returns the existing objects that a plan looks for, regardless of their labels.
    pub(crate) async fn look(
        &self,
        sought: &Sought,
        children: &Children,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let (resource, namespace) = (&sought.resource, sought.namespace.as_deref());
        match &sought.which {
            Which::Name(name) => {
                let found = get(&self.client, resource, namespace, name)
                    .await
                    .map_err(of_call)?;
                Ok(found.into_iter().collect())
            }
            Which::Having(field, value) => {
                let has = |object: &DynamicObject| object.data.get(field) == Some(value);
                let mut found = children.having(sought, field, value)?;
                found.retain(has);
                if sought.watched
                    && let Some(beside) = children.having_beside(sought, field, value)
                {
                    found.extend(beside.into_iter().filter(has).take(MOST_FOUND));
                    return Ok(found);
                }
                // The store contains the children of this controller, which are as many as its
                // grants: the scan for each grant need not read them.
                let others = match &children.belonging {
                    Belonging::Marked(mark) => Some(labels::others_than_children_of(&[mark])),
                    Belonging::Controlled => None,
                };
                let others = others.as_deref();
                scan(&self.client, resource, namespace, others, |object| {
                    if has(&object) && found.len() < MOST_FOUND {
                        found.push(object);
                    }
                })
                .await
                .map_err(of_call)?;
                Ok(found)
            }
        }
    }

    /// Sets the fields of an existing child to the desired values. The UID in the body makes the
    /// API server reject the request when the name belongs to another object by now.
    pub(crate) async fn apply(&self, child: &Child, live: &Live) -> Result<DynamicObject, Failure> {
        let key = child.key();
        self.allow("apply", &key.kind)?;
        let mut desired = child.object.clone();
        desired.metadata.uid.clone_from(&live.object.metadata.uid);
        desired.metadata.resource_version = None;
        desired.metadata.managed_fields = None;
        let name = key.name()?;
        let api = self.api(&child.resource, key.namespace.as_deref());
        let parameters = PatchParams::apply(&self.manager).force();
        within(
            api.patch(name.as_str(), &parameters, &Patch::Apply(&desired)),
            || format!("failed to apply {key}"),
        )
        .await
        .map(stripped)
    }

    /// Deletes one object and no other of its name.
    pub(crate) async fn delete(
        &self,
        target: &Reference,
        grace_seconds: Option<u32>,
    ) -> Result<Deleted, Failure> {
        let kind = &target.resource.kind;
        self.allow("delete", kind)?;
        let identified = target.identified();
        let (name, uid) = identified?;
        let api = self.api(&target.resource, target.namespace.as_deref());
        let parameters = DeleteParams {
            grace_period_seconds: grace_seconds,
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_string()),
                resource_version: None,
            }),
            dry_run: false,
        };
        let key = Key {
            group: target.resource.group.clone(),
            kind: kind.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
        };
        let what = || format!("failed to delete {key}");
        let attempt = within(
            async {
                match api.delete(name.as_str(), &parameters).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {
                        Ok(Some(Deleted::Gone))
                    }
                    // Most likely the name belongs to another object by now.
                    Err(kube::Error::Api(status)) if status.is_conflict() => Ok(None),
                    Err(error) => Err(error),
                    Ok(answer) => {
                        Ok(Some(answer.left().map_or(Deleted::Gone, |object| {
                            deleted(object, uid.as_str())
                        })))
                    }
                }
            },
            what,
        );
        if let Some(outcome) = attempt.await? {
            return Ok(outcome);
        }
        // Not every conflict means that the object is deleted: to assume so could leave access in
        // place.
        match within(api.get_metadata_opt(name.as_str()), what).await? {
            Some(object) if object.metadata.uid == target.uid => Err(Failure::transient(
                "Changed",
                format!("{}: the object changed in the meantime", what()),
            )),
            _ => Ok(Deleted::Gone),
        }
    }

    /// Merges `patch` into the status of an object, if it still is the one with this UID.
    pub(crate) async fn patch_status<K>(
        &self,
        object: &K,
        kind: &K::DynamicType,
        patch: &Value,
    ) -> Result<K, Failure>
    where
        K: Resource + Clone + Debug + DeserializeOwned,
    {
        self.allow("patch_status", &K::kind(kind))?;
        let body = Patch::Merge(json!({
            "metadata": { "uid": object.meta().uid },
            "status": patch,
        }));
        let parameters = PatchParams {
            field_manager: Some(self.manager.clone()),
            ..PatchParams::default()
        };
        let (namespace, name) = place(object)?;
        let request = Request::new(K::url_path(kind, namespace)).patch_subresource(
            "status",
            name,
            &parameters,
            &body,
        );
        self.send(request, || {
            format!("failed to write the status of {}", title(object, kind))
        })
        .await
    }

    /// Adds `owner` to the owners of an object, by server-side apply.
    /// See <https://kubernetes.io/docs/reference/using-api/server-side-apply/>.
    pub(crate) async fn own<K>(
        &self,
        object: &K,
        kind: &K::DynamicType,
        owner: &OwnerReference,
    ) -> Result<K, Failure>
    where
        K: Resource + Clone + Debug + DeserializeOwned,
    {
        self.allow("own", &K::kind(kind))?;
        let (namespace, name) = place(object)?;
        // Owner references merge by UID: those of other managers remain.
        let body = Patch::Apply(json!({
            "apiVersion": K::api_version(kind),
            "kind": K::kind(kind),
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": object.meta().uid,
                "ownerReferences": [owner],
            },
        }));
        let parameters = PatchParams::apply(&self.manager).force();
        let request = Request::new(K::url_path(kind, namespace)).patch(name, &parameters, &body);
        self.send(request, || {
            format!("failed to set the owner of {}", title(object, kind))
        })
        .await
    }

    /// Adds a finalizer to an object.
    pub(crate) async fn hold<K>(
        &self,
        object: &K,
        kind: &K::DynamicType,
        finalizer: &str,
    ) -> Result<K, Failure>
    where
        K: Resource + Clone + Debug + DeserializeOwned,
    {
        self.allow("hold", &K::kind(kind))?;
        let place = place(object)?;
        let known = object.meta().finalizers.iter().flatten();
        let finalizers: Vec<_> = known.map(String::as_str).chain([finalizer]).collect();
        let request = self.finalizers(object, place, kind, &finalizers);
        self.send(request, || {
            format!("failed to hold {}", title(object, kind))
        })
        .await
    }

    /// Removes a finalizer from an object. Returns `None` if the object was deleted with it.
    pub(crate) async fn release<K>(
        &self,
        object: &K,
        kind: &K::DynamicType,
        finalizer: &str,
    ) -> Result<Option<K>, Failure>
    where
        K: Resource + Clone + Debug + DeserializeOwned,
    {
        self.allow("release", &K::kind(kind))?;
        let place = place(object)?;
        let known = object.meta().finalizers.iter().flatten();
        let left: Vec<_> = known
            .map(String::as_str)
            .filter(|known| *known != finalizer)
            .collect();
        let what = || format!("failed to release {}", title(object, kind));
        let released = within(
            async {
                let request = self.finalizers(object, place, kind, &left);
                let request = request.map_err(kube::Error::BuildRequest)?;
                match self.client.request::<K>(request).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                    answer => answer.map(Some),
                }
            },
            what,
        )
        .await?;
        let held = |object: &K| {
            let finalizers = object.meta().finalizers.as_ref();
            finalizers.is_some_and(|finalizers| !finalizers.is_empty())
        };
        let stays = released.filter(|now| now.meta().deletion_timestamp.is_none() || held(now));
        Ok(stays.map(stripped))
    }

    /// Returns the request that sets the finalizers of an object. A list of finalizers is replaced as
    /// a whole: only if the object still is the known version.
    fn finalizers<K: Resource>(
        &self,
        object: &K,
        (namespace, name): (Option<&str>, &str),
        kind: &K::DynamicType,
        finalizers: &[&str],
    ) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
        let metadata = object.meta();
        let body = Patch::Merge(json!({
            "metadata": {
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
                "finalizers": finalizers,
            },
        }));
        let parameters = PatchParams {
            field_manager: Some(self.manager.clone()),
            ..PatchParams::default()
        };
        Request::new(K::url_path(kind, namespace)).patch(name, &parameters, &body)
    }

    /// Sets the owners of a child, if it still is the known version. Returns `None` if it is deleted, or
    /// another object has its name by now.
    pub(crate) async fn set_owners(
        &self,
        child: &Live,
        verb: &'static str,
        owners: &[OwnerReference],
    ) -> Result<Option<DynamicObject>, Failure> {
        let key = child.key();
        self.allow(verb, &key.kind)?;
        let metadata = &child.object.metadata;
        let body = Patch::Merge(json!({
            "metadata": {
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
                "ownerReferences": owners,
            },
        }));
        let parameters = PatchParams {
            field_manager: Some(self.manager.clone()),
            ..PatchParams::default()
        };
        let name = key.name()?;
        let api = self.api(&child.resource, key.namespace.as_deref());
        let patched = within(
            async {
                match api.patch(name.as_str(), &parameters, &body).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                    answer => answer.map(Some),
                }
            },
            || format!("failed to {verb} {key}"),
        )
        .await?;
        Ok(patched.map(stripped))
    }

    async fn send<K: Resource + DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        what: impl Fn() -> String,
    ) -> Result<K, Failure> {
        within(
            async {
                let request = request.map_err(kube::Error::BuildRequest)?;
                self.client.request::<K>(request).await
            },
            what,
        )
        .await
        .map(stripped)
    }
}

/// Interprets the response to a deletion, which contains the object as it was, when it is deleted,
/// or as it now is.
fn deleted(object: DynamicObject, uid: &str) -> Deleted {
    let ending = object.metadata.deletion_timestamp.is_some()
        && object.metadata.uid.as_deref() == Some(uid)
        && object.metadata.deletion_grace_period_seconds != Some(0);
    let kept = object
        .metadata
        .finalizers
        .as_ref()
        .is_some_and(|finalizers| !finalizers.is_empty());
    if ending || kept {
        Deleted::Ending(Box::new(stripped(object)))
    } else {
        Deleted::Gone
    }
}

fn stripped<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

fn place<K: Resource>(object: &K) -> Result<(Option<&str>, &str), Failure> {
    let metadata = object.meta();
    let name = Name::from_metadata(metadata)?.as_str();
    Ok((metadata.namespace.as_deref(), name))
}

/// Returns kind, namespace and name, for users.
pub(crate) fn title<K: Resource>(object: &K, kind: &K::DynamicType) -> String {
    let (kind, metadata) = (K::kind(kind), object.meta());
    match (&metadata.namespace, &metadata.name) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => kind.into_owned(),
    }
}
