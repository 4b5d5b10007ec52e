//! The functions of composites that are Rego policies, evaluated here as the operator would; and the related objects
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
use oz_rego::{Dialect, Policy};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::composites::placed;
use crate::failure::{Failure, Result};

/// The Rego policies of composites: each is read and compiled once, from ConfigMaps that a file has, or else from those
/// of the cluster.
#[derive(Default)]
pub(crate) struct Policies<'a> {
    cluster: Option<&'a Cluster>,
    given: &'a [ConfigMap],
    compiled: HashMap<Text, std::result::Result<Policy, CoreFailure>>,
}

/// The texts of a policy, and their dialect.
type Text = (String, Dialect);

impl<'a> Policies<'a> {
    /// Creates the policies of a cluster, if there is one, in which these ConfigMaps are given.
    pub(crate) fn new(cluster: Option<&'a Cluster>, given: &'a [ConfigMap]) -> Self {
        Self {
            cluster,
            given,
            compiled: HashMap::new(),
        }
    }

    /// Evaluates a Rego policy here; also returns which policy it is, if it compiles.
    pub(crate) async fn ask(
        &mut self,
        function: &InProcess,
        call: &Call,
        request: &Value,
        now: Timestamp,
    ) -> Result<(
        Option<PolicyFound>,
        std::result::Result<Called, CoreFailure>,
    )> {
        let policy = match self.compiled(function).await? {
            Ok(policy) => policy,
            Err(failure) => return Ok((None, Err(failure))),
        };
        let called = oz_function::call(function, &policy, request, call.strict, now);
        Ok((Some(oz_function::found(function, &policy)), called))
    }

    /// Returns the rules for the related objects that a Rego policy requires for a parent.
    pub(crate) async fn rules(
        &mut self,
        function: &InProcess,
        call: &Call,
        request: &Value,
        parent: &ObjectMeta,
        now: Timestamp,
    ) -> Result<std::result::Result<Vec<Rule>, CoreFailure>> {
        let policy = match self.compiled(function).await? {
            Ok(policy) => policy,
            Err(failure) => return Ok(Err(failure)),
        };
        let document = oz_function::document(function, &policy, request, now);
        Ok(document.and_then(|document| {
            let rules = related::rules(&document, call.version, parent);
            rules.map_err(|error| oz_function::misread(function, &error))
        }))
    }

    /// Compiles a Rego policy. An error in it is an obstacle for the operator as well.
    async fn compiled(
        &mut self,
        function: &InProcess,
    ) -> Result<std::result::Result<Policy, CoreFailure>> {
        let (place, dialect) = (function.modules.to_string(), oz_function::dialect(function));
        let key = (place, dialect);
        if let Some(known) = self.compiled.get(&key) {
            return Ok(known.clone());
        }
        let texts = self.texts(function).await?;
        let compiled = match texts.is_empty() {
            true => Err(oz_function::missing(&function.modules)),
            false => oz_function::compile(&key.0, &texts, dialect),
        };
        self.compiled.insert(key, compiled.clone());
        Ok(compiled)
    }

    /// Returns the modules and documents of a Rego policy; none if there is no module.
    async fn texts(&self, policy: &InProcess) -> Result<Vec<(String, String)>> {
        let place = policy.modules.to_string();
        let during =
            |failure: Failure| failure.during(&format!("failed to read the policy {place}"));
        match &policy.modules {
            Modules::Inline(text) => Ok(vec![(place, text.clone())]),
            Modules::Bundle(namespace) => {
                let mut maps = self.given_in(namespace);
                if let Some(cluster) = self.cluster {
                    let api = in_namespace(cluster, namespace);
                    let listed = cluster.answer(api.list(&ListParams::default())).await;
                    let is_given = |map: &ConfigMap| {
                        let name = &map.metadata.name;
                        maps.iter().any(|given| given.metadata.name == *name)
                    };
                    let mut others = listed.map_err(during)?.items;
                    others.retain(|map| !is_given(map));
                    maps.extend(others);
                }
                Ok(bundle::texts(&maps))
            }
            Modules::Key {
                namespace,
                name,
                key,
            } => {
                let mut given = self.given_in(namespace).into_iter();
                let mut map = given.find(|map| map.metadata.name.as_ref() == Some(name));
                if let (None, Some(cluster)) = (&map, self.cluster) {
                    let api = in_namespace(cluster, namespace);
                    map = cluster.find(&api, name).await.map_err(during)?;
                }
                let texts = map.and_then(|map| bundle::with_documents(&map, key, &place));
                Ok(texts.unwrap_or_default())
            }
        }
    }

    /// Returns the given ConfigMaps of a namespace.
    fn given_in(&self, namespace: &str) -> Vec<ConfigMap> {
        let given = self.given.iter();
        let given = given.filter(|map| map.metadata.namespace.as_deref() == Some(namespace));
        given.cloned().collect()
    }
}

fn in_namespace(cluster: &Cluster, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(cluster.client.clone(), namespace)
}

/// Lists the objects that these rules select.
pub(crate) async fn related(cluster: &Cluster, rules: &[Rule]) -> Result<Vec<Related>> {
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
