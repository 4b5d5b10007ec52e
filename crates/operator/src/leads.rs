//! Who leads, for what runs beside the engine: the lease says.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use oz_core::names;

/// Whether `replica` leads; always, if replicas do not compete for a lease.
pub(crate) async fn leads(
    client: &Client,
    namespace: &str,
    replica: Option<&str>,
) -> kube::Result<bool> {
    let Some(replica) = replica else {
        return Ok(true);
    };
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = leases.get_opt(names::LEASE).await?;
    let holder = lease.and_then(|lease| lease.spec?.holder_identity);
    Ok(holder.as_deref() == Some(replica))
}
