//! Reading from a cluster the content of a bundle other than the audit records.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, Resource as _};
use oz_api::names::AUDIT_CHECKPOINTS;
use oz_api::{Identity, encode};
use oz_compliance::evidence::{FORMAT, Manifest, ObjectDigest, Sample};
use oz_core::for_each_kind;
use oz_core::kinds::{self, Kind as _, Role};

use super::Gathered;
use crate::cluster::Cluster;
use crate::entitlements::{Reading, entitlements};
use crate::failure::{Failure, Result};
use crate::trail;

/// The parameters of a bundle.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The first instant.
    pub from: Timestamp,
    /// The first instant after the period.
    pub to: Timestamp,
    /// The requests to sample.
    pub sample: Option<Sample>,
    /// The namespace of oz.
    pub oz: String,
}

/// Reads the content of a bundle except the audit records, which the caller reads afterwards: the signed data comes
/// first, and audit records that arrive in between are only additional ones.
///
/// # Errors
/// The cluster cannot be read, or keys and checkpoints cannot be read: without them the bundle proves nothing.
pub async fn gather(cluster: &Cluster, wanted: &Wanted) -> Result<Gathered> {
    let keys = trail::keys(cluster, &wanted.oz).await?.published;
    let checkpoints = trail::map(cluster, &wanted.oz, AUDIT_CHECKPOINTS).await?;
    let entitlements = entitlements(cluster, &wanted.oz).await?;
    let mut reading = Reading {
        cluster,
        gaps: BTreeSet::new(),
    };
    let objects = objects(&mut reading).await?;
    let manifest = Manifest {
        format: FORMAT.to_owned(),
        from: wanted.from,
        to: wanted.to,
        sample: wanted.sample,
        gaps: reading
            .gaps
            .difference(&entitlements.gaps)
            .cloned()
            .collect(),
    };
    Ok(Gathered {
        manifest,
        keys,
        checkpoints: checkpoints.into_iter().collect(),
        objects,
        entitlements,
    })
}

/// Returns the digests of templates and access policies. It omits their content: a spec may contain private data.
async fn objects(reading: &mut Reading<'_>) -> Result<Vec<ObjectDigest>> {
    let mut found = BTreeSet::new();
    for_each_kind!(templates T => {
        for template in reading.all::<T>(T::title()).await? {
            found.insert(digest_of(T::title(), template.meta(), template.spec_digest())?);
        }
    });
    // The other kinds that define permissions; users request access neither with them nor by them.
    for kind in kinds::all() {
        if !matches!(kind.role, Role::Lock | Role::Policy) {
            continue;
        }
        let (client, title) = (reading.cluster.client.clone(), kind.resource.kind.clone());
        let api: Api<DynamicObject> = Api::all_with(client, &kind.resource);
        for object in reading.listed(&api, &title, ListParams::default()).await? {
            let digest = encode::digest(&object.data["spec"]);
            found.insert(digest_of(&title, &object.metadata, digest)?);
        }
    }
    let client = reading.cluster.client.clone();
    let ours = ListParams::default().labels("app.kubernetes.io/name=oz");
    let api: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let title = "ValidatingAdmissionPolicy";
    for policy in reading.listed(&api, title, ours.clone()).await? {
        let digest = encode::digest(&policy.spec);
        found.insert(digest_of(title, &policy.metadata, digest)?);
    }
    let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
    let title = "ValidatingAdmissionPolicyBinding";
    for binding in reading.listed(&api, title, ours).await? {
        let digest = encode::digest(&binding.spec);
        found.insert(digest_of(title, &binding.metadata, digest)?);
    }
    Ok(found.into_iter().collect())
}

fn digest_of(kind: &str, metadata: &ObjectMeta, digest: String) -> Result<ObjectDigest> {
    let identity = Identity::try_from(metadata);
    let identity = identity.map_err(|error| Failure::new(format!("{kind}: {error}")))?;
    let namespace = identity.namespace.map(|namespace| namespace.to_string());
    Ok(ObjectDigest {
        kind: kind.to_owned(),
        namespace: namespace.unwrap_or_default(),
        name: identity.name.to_string(),
        uid: identity.uid.to_string(),
        digest,
    })
}
