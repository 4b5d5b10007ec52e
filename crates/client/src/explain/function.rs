//! The functions of a composite that are Rego policies, evaluated here as the operator would; and the related objects
//! that they get, read with the rights of the user.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::ListParams;
use kube::core::{DynamicObject, ObjectMeta};
use oz_composites::declared::{Call, InProcess, Modules};
use oz_composites::related::{self, Related, Rule};
use oz_composites::supervise::PolicyFound;
use oz_composites::{Called, bundle};
use oz_core::controller::Failure as CoreFailure;
use oz_rego::Policy;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::composites::placed;
use crate::failure::{Failure, Result};

/// Returns the modules of a Rego policy; none if there is no text.
async fn texts(cluster: &Cluster, policy: &InProcess) -> Result<Vec<(String, String)>> {
    let place = policy.modules.to_string();
    let maps = |namespace| Api::<ConfigMap>::namespaced(cluster.client.clone(), namespace);
    let during = |failure: Failure| failure.during(&format!("failed to read the policy {place}"));
    match &policy.modules {
        Modules::Inline(text) => Ok(vec![(place, text.clone())]),
        Modules::Bundle(namespace) => {
            let maps = maps(namespace);
            let all = cluster.answer(maps.list(&ListParams::default())).await;
            Ok(bundle::modules(&all.map_err(during)?.items))
        }
        Modules::Key {
            namespace,
            name,
            key,
        } => {
            let map = cluster.find(&maps(namespace), name).await.map_err(during)?;
            let text = map.and_then(|map| map.data?.remove(key));
            Ok(text.map(|text| (place, text)).into_iter().collect())
        }
    }
}

/// Compiles a Rego policy. An error in it is an obstacle for the operator as well.
async fn compiled(
    cluster: &Cluster,
    function: &InProcess,
) -> Result<std::result::Result<Policy, CoreFailure>> {
    let modules = texts(cluster, function).await?;
    if modules.is_empty() {
        return Ok(Err(oz_function::missing(&function.modules)));
    }
    let (place, dialect) = (function.modules.to_string(), oz_function::dialect(function));
    Ok(oz_function::compile(&place, &modules, dialect))
}

/// Evaluates a Rego policy here; also returns which policy it is, if it compiles.
pub(super) async fn ask(
    cluster: &Cluster,
    function: &InProcess,
    call: &Call,
    request: &Value,
    now: Timestamp,
) -> Result<(
    Option<PolicyFound>,
    std::result::Result<Called, CoreFailure>,
)> {
    let policy = match compiled(cluster, function).await? {
        Ok(policy) => policy,
        Err(failure) => return Ok((None, Err(failure))),
    };
    let called = oz_function::call(function, &policy, request, call.strict, now);
    Ok((Some(oz_function::found(function, &policy)), called))
}

/// Returns the rules for the related objects that a Rego policy requires for a parent.
pub(super) async fn rules(
    cluster: &Cluster,
    function: &InProcess,
    call: &Call,
    request: &Value,
    parent: &ObjectMeta,
    now: Timestamp,
) -> Result<std::result::Result<Vec<Rule>, CoreFailure>> {
    let policy = match compiled(cluster, function).await? {
        Ok(policy) => policy,
        Err(failure) => return Ok(Err(failure)),
    };
    let document = oz_function::document(function, &policy, request, now);
    Ok(document.and_then(|document| {
        let rules = related::rules(&document, call.version, parent);
        rules.map_err(|error| oz_function::misread(function, &error))
    }))
}

/// Lists the objects that these rules select.
pub(super) async fn related(cluster: &Cluster, rules: &[Rule]) -> Result<Vec<Related>> {
    let mut namespaces: HashMap<String, BTreeMap<String, String>> = HashMap::new();
    if rules.iter().any(|rule| rule.namespaces.is_some()) {
        let all = Api::<Namespace>::all(cluster.client.clone());
        let all = cluster.answer(all.list(&ListParams::default())).await?;
        namespaces.extend(all.items.into_iter().filter_map(|namespace| {
            let metadata = namespace.metadata;
            let labels = metadata.labels.into_iter().flatten();
            Some((metadata.name?, labels.collect()))
        }));
    }
    let mut found = Vec::new();
    for rule in rules {
        let kind = placed(cluster, &rule.kind).await?;
        let client = cluster.client.clone();
        let api: Api<DynamicObject> = match &rule.namespace {
            Some(namespace) if !kind.cluster_scoped => {
                Api::namespaced_with(client, namespace, &kind.resource)
            }
            _ => Api::all_with(client, &kind.resource),
        };
        let list = cluster.answer(api.list(&ListParams::default())).await?;
        let labels = |namespace: &str| namespaces.get(namespace);
        let objects = list.items.into_iter();
        let objects = objects.filter(|object| rule.selects(&object.metadata, labels));
        let objects = objects.map(Arc::new).collect();
        found.push(Related { kind, objects });
    }
    Ok(found)
}
