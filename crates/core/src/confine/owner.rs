//! The owner of a created object, as labels and owner references name it. The labels connect an object to its owner
//! while oz runs; the owner reference ends the object with its owner even while oz is down.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use oz_api::{GROUP, VERSION, labels};
use oz_trail::RequestRef;
use serde_json::{Value, json};

/// An object of a kind of oz, for which oz creates other objects in the same namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// API group of its kind; all have the version [`VERSION`].
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
}

impl<'a> Owner<'a> {
    /// Returns the owner of the objects of a grant: the request.
    #[must_use]
    pub fn from_request(request: &'a RequestRef) -> Self {
        Self {
            group: GROUP,
            kind: &request.kind,
            namespace: &request.namespace,
            name: &request.name,
            uid: &request.uid,
        }
    }

    /// Returns the reference by which the garbage collector deletes an object with its owner.
    /// See <https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents>.
    #[must_use]
    pub fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: format!("{}/{VERSION}", self.group),
            kind: self.kind.to_owned(),
            name: self.name.to_owned(),
            uid: self.uid.to_owned(),
            controller: Some(true),
            // oz must never block the deletion of an owner.
            block_owner_deletion: None,
        }
    }

    /// Returns the metadata of an object that may exist longer than its owner.
    #[must_use]
    pub fn metadata(&self, name: impl Into<String>) -> ObjectMeta {
        let mut metadata = ObjectMeta {
            name: Some(name.into()),
            namespace: Some(self.namespace.to_owned()),
            ..ObjectMeta::default()
        };
        self.mark(&mut metadata);
        metadata
    }

    /// Returns the metadata of an object that the garbage collector deletes with its owner.
    #[must_use]
    pub fn owned(&self, name: impl Into<String>) -> ObjectMeta {
        ObjectMeta {
            owner_references: Some(vec![self.reference()]),
            ..self.metadata(name)
        }
    }

    /// Adds the labels of the owner's objects to metadata, and replaces those that a template set.
    pub fn mark(&self, metadata: &mut ObjectMeta) {
        labels::mark(metadata, self.kind, self.name, self.uid);
    }

    /// Adds the same labels to the metadata of a pod template as JSON. Values of another type are replaced.
    pub fn mark_template(&self, metadata: &mut Value) {
        let mut marks = ObjectMeta::default();
        self.mark(&mut marks);
        for (field, entries) in [("labels", marks.labels), ("annotations", marks.annotations)] {
            if !metadata[field].is_object() {
                metadata[field] = json!({});
            }
            for (key, value) in entries.into_iter().flatten() {
                metadata[field][key] = json!(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWNER: Owner<'static> = Owner {
        group: "paddock.dev",
        kind: "HarnessRun",
        namespace: "birds",
        name: "squawk",
        uid: "u-1",
    };

    #[test]
    fn owned_object_names_its_owner_and_never_blocks_its_deletion() {
        let metadata = OWNER.owned("squawk-seed");
        assert_eq!(
            json!(metadata),
            json!({
                "name": "squawk-seed",
                "namespace": "birds",
                "labels": {
                    "app.kubernetes.io/managed-by": "oz",
                    "oz.wizardofoz.co/owner-kind": "HarnessRun",
                    "oz.wizardofoz.co/owner-uid": "u-1",
                },
                "annotations": {"oz.wizardofoz.co/owner-name": "squawk"},
                "ownerReferences": [{
                    "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessRun", "name": "squawk",
                    "uid": "u-1", "controller": true,
                }],
            })
        );
        // No template sets them: the labels of oz are reserved, and the last one is replaced.
        let marks = metadata
            .labels
            .iter()
            .chain(&metadata.annotations)
            .flatten();
        let mut unprotected = marks.filter(|(key, _)| !labels::is_of_child(key));
        assert_eq!(unprotected.next().unwrap().0, labels::MANAGED_BY);
        assert_eq!(unprotected.next(), None);
        let longer = OWNER.metadata("squawk-seed");
        assert_eq!(longer.owner_references, None);
        assert_eq!(longer.labels, metadata.labels);
    }

    #[test]
    fn owner_of_grant_is_its_request() {
        let request = RequestRef {
            kind: "PodAccessRequest".to_owned(),
            namespace: "shop".to_owned(),
            name: "debug".to_owned(),
            uid: "u-2".to_owned(),
        };
        let reference = Owner::from_request(&request).reference();
        let expected = OwnerReference {
            api_version: "crds.wizardofoz.co/v1alpha1".to_owned(),
            kind: "PodAccessRequest".to_owned(),
            name: "debug".to_owned(),
            uid: "u-2".to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        assert_eq!(reference, expected);
    }

    proptest! {
        /// Checks for labels of any template, its own marks included, that typed metadata and JSON get the same.
        #[test]
        fn labels_of_owner_replace_those_of_a_template_in_both_forms(
            given in proptest::collection::btree_map(
                prop_oneof![
                    Just(labels::MANAGED_BY.to_owned()),
                    Just(labels::OWNER_UID.to_owned()),
                    Just(labels::OWNER_KIND.to_owned()),
                    "[a-z]{1,3}",
                ],
                "[a-z]{0,3}",
                0..5,
            ),
        ) {
            let mut typed = ObjectMeta { labels: Some(given.clone()), ..ObjectMeta::default() };
            OWNER.mark(&mut typed);
            let mut template = json!({"labels": given});
            OWNER.mark_template(&mut template);
            prop_assert_eq!(json!(typed), template);
            prop_assert_eq!(labels::owner_uid(&typed), Some("u-1"));
            prop_assert_eq!(labels::owner_kind(&typed), Some("HarnessRun"));
        }
    }
}
