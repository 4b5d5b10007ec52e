//! The functions of a composite that are policies, evaluated here as the operator would; and the other objects that
//! they are shown, read with the rights of whoever asks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::ListParams;
use kube::core::{DynamicObject, ObjectMeta};
use oz_core::composite::declared::{Call, InProcess, Modules};
use oz_core::composite::related::{self, Related, Rule};
use oz_core::composite::{Called, POLICY_FAILED, bundle, compared, ends};
use oz_core::controller::Failure as CoreFailure;
use oz_rego::{Limits, Policy};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::composites::placed;
use crate::failure::Result;

/// A policy that was asked.
pub struct Asked {
    /// Its digest.
    pub digest: String,
    /// The language that it is written in.
    pub language: String,
}

/// The modules of a policy.
async fn texts(cluster: &Cluster, policy: &InProcess) -> Result<Vec<(String, String)>> {
    let place = policy.modules.to_string();
    let namespace = match &policy.modules {
        Modules::Inline(text) => return Ok(vec![(place, text.clone())]),
        Modules::Bundle(namespace) | Modules::Key { namespace, .. } => namespace,
    };
    let maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), namespace);
    let maps = cluster.answer(maps.list(&ListParams::default())).await;
    let maps = maps.map_err(|failure| {
        failure.during(&format!(
            "failed to read the policy in namespace {namespace}"
        ))
    })?;
    let Modules::Key { name, key, .. } = &policy.modules else {
        return Ok(bundle::modules(&maps.items));
    };
    let mut maps = maps.items.into_iter();
    let map = maps.find(|map| map.metadata.name.as_ref() == Some(name));
    let text = map.and_then(|map| map.data?.remove(key));
    Ok(text.map(|text| (place, text)).into_iter().collect())
}

/// A policy, compiled. What is wrong with it is the operator's obstacle as well.
async fn compiled(
    cluster: &Cluster,
    policy: &InProcess,
) -> Result<std::result::Result<Policy, CoreFailure>> {
    let (place, modules) = (policy.modules.to_string(), texts(cluster, policy).await?);
    let invalid = |message| CoreFailure::invalid("PolicyInvalid", message);
    if modules.is_empty() {
        return Ok(Err(invalid(bundle::missing(&place))));
    }
    let compiled = Policy::compile(&modules);
    Ok(compiled.map_err(|errors| invalid(bundle::broken(&place, &errors))))
}

/// What a policy says, evaluated here.
pub(super) async fn ask(
    cluster: &Cluster,
    policy: &InProcess,
    call: &Call,
    request: &Value,
    now: Timestamp,
) -> Result<(Option<Asked>, std::result::Result<Called, CoreFailure>)> {
    let compiled = match compiled(cluster, policy).await? {
        Ok(compiled) => compiled,
        Err(failure) => return Ok((None, Err(failure))),
    };
    let asked = Asked {
        digest: compiled.digest_text(),
        language: compiled.language().to_string(),
    };
    let (path, instants) = (&policy.path, ends::instants(&request["parent"], now));
    let limits = Limits::default();
    let preview = compiled.preview(path, request, &instants, now, &limits, |answer| {
        answer.document().map(compared)
    });
    let called = match &preview {
        Err(error) => {
            let message = format!("data.{path}: {error}");
            Err(CoreFailure::transient(POLICY_FAILED, message))
        }
        Ok(preview) => {
            let ahead = preview.changes.iter();
            let ahead = ahead.map(|change| (change.at, change.answer.document()));
            let said = preview.now.document();
            Called::of_policy(path, said, ahead, preview.tried_until, call.strict)
        }
    };
    Ok((Some(asked), called))
}

/// Which other objects a policy wants to see of a parent.
pub(super) async fn rules(
    cluster: &Cluster,
    policy: &InProcess,
    call: &Call,
    request: &Value,
    parent: &ObjectMeta,
    now: Timestamp,
) -> Result<std::result::Result<Vec<Rule>, CoreFailure>> {
    let compiled = match compiled(cluster, policy).await? {
        Ok(compiled) => compiled,
        Err(failure) => return Ok(Err(failure)),
    };
    let path = &policy.path;
    let failed = |error: &dyn std::fmt::Display| {
        CoreFailure::transient(POLICY_FAILED, format!("data.{path}: {error}"))
    };
    let answer = compiled.evaluate(path, request, now, &Limits::default());
    Ok(answer.map_err(|error| failed(&error)).and_then(|answer| {
        let document = answer.document();
        let document = document.ok_or_else(|| failed(&"is undefined for this parent"))?;
        related::rules(document, call.version, parent).map_err(|error| {
            let message = format!("data.{path}: its answer {error}");
            CoreFailure::invalid("AnswerInvalid", message)
        })
    }))
}

/// The objects that these rules select.
pub(super) async fn related(cluster: &Cluster, rules: &[Rule]) -> Result<Vec<Related>> {
    let mut namespaces: HashMap<String, BTreeMap<String, String>> = HashMap::new();
    if rules.iter().any(|rule| rule.namespaces.is_some()) {
        let all = Api::<Namespace>::all(cluster.client.clone());
        let all = cluster.answer(all.list(&ListParams::default())).await?;
        namespaces.extend(all.items.into_iter().map(|namespace| {
            let metadata = namespace.metadata;
            (
                metadata.name.unwrap_or_default(),
                metadata.labels.unwrap_or_default(),
            )
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
