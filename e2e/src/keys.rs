//! The private keys of components, as an administrator reads them.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use oz_core::access::seal::{Keys, Owner};

use crate::NAMESPACE;

/// Returns the private key of a component.
///
/// # Errors
/// When the component has not created it, or the Secret cannot be read.
pub async fn private_key(admin: &Client, owner: Owner) -> Result<[u8; Keys::BYTES]> {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), NAMESPACE);
    let data = secrets.get(owner.private_keys()).await?.data;
    let key = data.and_then(|mut data| data.remove("key"));
    let key = key.with_context(|| format!("{owner} has no private key"))?;
    Ok(key.0.as_slice().try_into()?)
}
