//! Names that a user may type next. A name that cannot be read is no candidate.

use std::fmt::Debug;

use futures::FutureExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::ListParams;
use kube::{Api, Resource};
use oz_api::composite::CompositeController;
use oz_api::harness::{ClusterHarnessTemplate, HarnessTemplate};
use oz_api::rego::RegoController;
use oz_api::{CrossVersionObjectReference, TargetKind};
use oz_core::for_each_kind;
use oz_core::kinds::AccessTemplate;
use serde::de::DeserializeOwned;

use crate::cluster::Cluster;
use crate::objects::{self, Kind};
use crate::{composites, names};

/// Returns the names of objects of a kind in the chosen namespace.
pub async fn of_kind<K>(cluster: &Cluster) -> Vec<String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    listed(&cluster.api::<K>()).await
}

/// Returns the names of objects of a kind that is in no namespace.
pub async fn of_cluster_kind<K>(cluster: &Cluster) -> Vec<String>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + DeserializeOwned + Debug,
{
    listed(&Api::<K>::all(cluster.client.clone())).await
}

/// Returns the names of objects of a kind, in the chosen namespace if the kind is namespaced.
pub async fn objects(cluster: &Cluster, kind: &Kind) -> Vec<String> {
    listed(&objects::api(cluster, kind, false)).await
}

/// Returns the names of templates of every kind.
pub async fn templates(cluster: &Cluster) -> Vec<String> {
    let mut lists = Vec::new();
    for_each_kind!(templates T => { lists.push(of_kind::<T>(cluster).boxed_local()) });
    join_all(lists).await.concat()
}

/// Returns the names of requests of every kind.
pub async fn requests(cluster: &Cluster) -> Vec<String> {
    let mut lists = Vec::new();
    for_each_kind!(requests R => { lists.push(of_kind::<R>(cluster).boxed_local()) });
    join_all(lists).await.concat()
}

/// Returns the names of templates for harness runs, of the namespace and of the cluster.
pub async fn harness_templates(cluster: &Cluster) -> Vec<String> {
    let (names, shared) = futures::join!(
        of_kind::<HarnessTemplate>(cluster),
        of_cluster_kind::<ClusterHarnessTemplate>(cluster),
    );
    distinct(names.into_iter().chain(shared))
}

/// Returns the names of composites.
pub async fn composites(cluster: &Cluster) -> Vec<String> {
    let (mut names, regos) = futures::join!(
        of_cluster_kind::<CompositeController>(cluster),
        of_cluster_kind::<RegoController>(cluster),
    );
    names.extend(regos);
    names
}

/// Returns the names of namespaces.
pub async fn namespaces(cluster: &Cluster) -> Vec<String> {
    of_cluster_kind::<Namespace>(cluster).await
}

/// Returns the kinds of composites' parents, and the names of parents after a kind.
pub async fn parents(cluster: &Cluster, typed: &str) -> Vec<String> {
    let found = composites::read(cluster, &[]).await;
    let mut words = Vec::new();
    for composite in found.into_iter().flat_map(|found| found.composites) {
        let (parent, _) = composites::parent(&composite);
        let plural = &parent.resource;
        if typed.split_once('/').is_none_or(|(word, _)| word != plural) {
            words.push(format!("{plural}/"));
            continue;
        }
        let Ok(kind) = composites::placed(cluster, &parent).await else {
            continue;
        };
        let names = listed(&composites::objects(cluster, &kind)).await;
        words.extend(names.iter().map(|name| format!("{plural}/{name}")));
    }
    distinct(words)
}

/// Returns the workloads of templates of a kind, with the word for the kind that the user began, or by name alone.
pub async fn targets<T: AccessTemplate>(cluster: &Cluster, typed: &str) -> Vec<String> {
    let templates = cluster.api::<T>();
    let found = templates.list(&ListParams::default()).await;
    let names = found
        .into_iter()
        .flatten()
        .flat_map(|template| ways_to(&template, typed))
        .filter(|name| name.starts_with(typed));
    distinct(names)
}

fn distinct(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the spellings of a template's target that fit the beginning `typed`.
fn ways_to<T: AccessTemplate>(template: &T, typed: &str) -> Vec<String> {
    let workload = template.workload();
    let Some((word, _)) = typed.split_once('/') else {
        let kind = |kind: TargetKind| kind.to_string().to_lowercase();
        let workload = workload.map(|target| {
            let longer = format!("{}/{}", kind(target.kind), target.name);
            [target.name.clone(), longer]
        });
        let own = workload.is_none().then(|| template.name().to_owned());
        return workload.into_iter().flatten().chain(own).collect();
    };
    let is_workload = |target: &&CrossVersionObjectReference| {
        names::workload(word).is_some_and(|kind| kind == target.kind)
    };
    match word {
        "template" | "templates" => vec![format!("{word}/{}", template.name())],
        _ => workload
            .filter(is_workload)
            .map(|target| format!("{word}/{}", target.name))
            .into_iter()
            .collect(),
    }
}

async fn listed<K>(api: &Api<K>) -> Vec<String>
where
    K: Clone + DeserializeOwned + Debug,
{
    let found = api.list_metadata(&ListParams::default()).await;
    let found = found.into_iter().flatten();
    found.filter_map(|object| object.metadata.name).collect()
}
