//! The check that name servers exist for the pods that may connect to name servers only.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use oz_api::{Egress, PodAccessTemplate};
use oz_core::confine::NameServer;

use super::finding::{Check, Finding};
use super::site::Site;
use crate::cluster::Cluster;
use crate::failure::Result;

const CHECK: Check = Check::NameServers;

/// Checks the name servers. Reports nothing if no template has `egress: Dns`; another check reports
/// kinds that cannot be listed.
pub(super) async fn name_servers(site: &Site<'_>) -> Option<Finding> {
    let templates = site.cluster.api::<PodAccessTemplate>();
    let everything = ListParams::default();
    let templates = site
        .cluster
        .answer(templates.list(&everything))
        .await
        .ok()?;
    let asks = |template: &&PodAccessTemplate| {
        let network = template.spec.network;
        network.is_some_and(|network| network.egress == Egress::Dns)
    };
    let names = templates.iter().filter(asks);
    let names: Vec<String> = names.map(|one| format!("pat/{}", one.name_any())).collect();
    if names.is_empty() {
        return None;
    }
    let servers = match &site.config {
        Ok(config) => config.settings(site.oz).name_servers,
        Err(_) => vec![NameServer::usual()],
    };
    Some(CHECK.concluded(judge(site.cluster, &servers, &names).await))
}

/// Judges the name servers of pods by these templates.
async fn judge(cluster: &Cluster, servers: &[NameServer], names: &[String]) -> Result<Finding> {
    let named: Vec<String> = servers.iter().map(NameServer::to_string).collect();
    let named = named.join(", ");
    for server in servers {
        if is_there(cluster, server).await? {
            return Ok(CHECK.good(format!("{named} may be asked")));
        }
    }
    Ok(CHECK.wrong(
        format!(
            "there is no pod of {named}, so pods by {} resolve no name",
            names.join(", ")
        ),
        "have access.nameServers in oz's values name the name servers of this cluster",
    ))
}

/// Checks whether a name server exists. A name server with an address cannot be searched for, and
/// is assumed to exist.
async fn is_there(cluster: &Cluster, server: &NameServer) -> Result<bool> {
    let Some((namespace, labels)) = server.pods() else {
        return Ok(true);
    };
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let first = ListParams::default().labels(&labels).limit(1);
    let list = cluster.answer(pods.list_metadata(&first)).await?;
    Ok(!list.items.is_empty())
}
