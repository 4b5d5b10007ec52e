//! The functions that are policies in Rego, run in process: one bundle for each listed namespace of
//! policies, from its ConfigMaps, as an OPA there would have it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use oz_composites::declared::{Declared, InProcess, Modules};
use oz_composites::supervise::PolicyFound;
use oz_composites::{AnswerError, Called, POLICY_FAILED, Refused, bundle};
use oz_core::controller::{Failure, FailureClass};
use oz_rego::{Dialect, Policy};
use oz_runtime::{Feeds, Kind, Selection, Store, Subscription};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

/// The maximum number of compiled policies that are no bundle. Further ones are compiled again.
const MOST_COMPILED: usize = 256;

/// The policies of an installation.
pub(crate) struct Policies {
    /// The bundles by namespace of policies.
    bundles: BTreeMap<String, Bundle>,
    /// The compiled policies that are not a whole bundle.
    others: Mutex<HashMap<Text, Result<Policy, Failure>>>,
}

/// A policy of one module, and its documents.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Text {
    /// The location, for messages.
    place: String,
    /// The name and the text of the module, and of each document.
    texts: Vec<(String, String)>,
    dialect: Dialect,
}

/// The modules and documents of one namespace.
struct Bundle {
    maps: Store<ConfigMap>,
    /// The number of changes of the ConfigMaps.
    version: Arc<AtomicU64>,
    compiled: Mutex<Option<Compiled>>,
    _subscription: Subscription,
}

/// The last compiled version of a bundle.
#[derive(Clone)]
struct Compiled {
    /// The version of the bundle, before it was read.
    version: u64,
    policy: Result<Policy, Failure>,
}

impl Policies {
    pub(crate) fn new(namespaces: &[String], feeds: &Feeds) -> Self {
        let kind = Kind::from_type::<ConfigMap>();
        let bundles = namespaces.iter().map(|namespace| {
            let maps = feeds.store_in::<ConfigMap>(&kind, namespace, Selection::default());
            let version = Arc::new(AtomicU64::new(0));
            let changed = Arc::clone(&version);
            let subscription = maps.subscribe(move |_| {
                changed.fetch_add(1, Ordering::AcqRel);
            });
            let bundle = Bundle {
                maps,
                version,
                compiled: Mutex::default(),
                _subscription: subscription,
            };
            (namespace.clone(), bundle)
        });
        Self {
            bundles: bundles.collect(),
            others: Mutex::default(),
        }
    }

    /// Returns the namespaces of policies.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        self.bundles.keys().cloned().collect()
    }

    /// Returns the stores of the ConfigMaps of all bundles.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Store<ConfigMap>> {
        self.bundles.values().map(|bundle| &bundle.maps)
    }

    /// Returns the state of the policies of a composite; `None` if it calls none.
    pub(crate) async fn found(&self, declared: &Declared) -> Result<Option<PolicyFound>, Failure> {
        let mut found = Vec::new();
        for function in declared.policies() {
            let policy = self.policy(function).await?;
            found.push(oz_function::found(function, &policy));
        }
        Ok(PolicyFound::together(&found))
    }

    /// Calls a function for a request, for now and for the instants that the parent names.
    pub(crate) async fn call(
        &self,
        function: &InProcess,
        request: Value,
        strict: bool,
        now: Timestamp,
    ) -> Result<Called, Refused> {
        let policy = self.policy(function).await?;
        let asked = function.clone();
        let ask = move || oz_function::call(&asked, &policy, &request, strict, now);
        Ok(on_own_thread(function, ask).await?)
    }

    /// Calls a function for now, and decodes the result with `read`.
    pub(crate) async fn document<T>(
        &self,
        function: &InProcess,
        request: Value,
        now: Timestamp,
        read: impl FnOnce(&Value) -> Result<T, AnswerError>,
    ) -> Result<T, Refused> {
        let policy = self.policy(function).await?;
        let asked = function.clone();
        let ask = move || oz_function::document(&asked, &policy, &request, now);
        let document = on_own_thread(function, ask).await?;
        let misread = |error: AnswerError| oz_function::misread(function, &error);
        read(&document).map_err(|error| misread(error).into())
    }

    /// Returns the digest of the policies of a composite, whether or not they compile; `None` if it calls none, or if
    /// one of them does not exist.
    pub(crate) async fn digest(&self, declared: &Declared) -> Option<String> {
        let mut digests = Vec::new();
        for function in declared.policies() {
            let texts = self.texts(function).await.ok()?;
            digests.push(oz_function::digest_of_texts(function, &texts));
        }
        let digests: Vec<&str> = digests.iter().map(String::as_str).collect();
        PolicyFound::digest_of(&digests)
    }

    /// Returns a policy, compiled if it has changed.
    async fn policy(&self, function: &InProcess) -> Result<Policy, Failure> {
        if let Modules::Bundle(namespace) = &function.modules {
            return self.bundled(namespace).await;
        }
        let texts = self.texts(function).await?;
        self.one(Text {
            place: function.modules.to_string(),
            texts,
            dialect: oz_function::dialect(function),
        })
        .await
    }

    /// Returns the modules and documents of a policy, each with its name and its text.
    async fn texts(&self, function: &InProcess) -> Result<Vec<(String, String)>, Failure> {
        let place = function.modules.to_string();
        let missing = || oz_function::missing(&function.modules);
        match &function.modules {
            Modules::Bundle(namespace) => {
                let bundle = self.bundle(namespace)?;
                bundle.maps.ready().await;
                let texts = bundle::texts(bundle.maps.objects().iter().map(AsRef::as_ref));
                match texts.is_empty() {
                    true => Err(missing()),
                    false => Ok(texts),
                }
            }
            Modules::Key {
                namespace,
                name,
                key,
            } => {
                let bundle = self.bundle(namespace)?;
                bundle.maps.ready().await;
                let map = bundle
                    .maps
                    .select(|map| map.metadata.name.as_ref() == Some(name));
                let texts = map
                    .first()
                    .and_then(|map| bundle::with_documents(map, key, &place));
                texts.ok_or_else(missing)
            }
            Modules::Inline(text) => Ok(vec![(place, text.clone())]),
        }
    }

    /// Returns a policy of one module.
    async fn one(&self, text: Text) -> Result<Policy, Failure> {
        if let Some(known) = self.others().get(&text) {
            return known.clone();
        }
        let policy = compile(&text.place, text.texts.clone(), text.dialect).await;
        if !policy.as_ref().is_err_and(is_passing) {
            let mut others = self.others();
            if others.len() >= MOST_COMPILED {
                others.clear();
            }
            others.insert(text, policy.clone());
        }
        policy
    }

    fn others(&self) -> MutexGuard<'_, HashMap<Text, Result<Policy, Failure>>> {
        self.others.lock()
    }

    fn bundle(&self, namespace: &str) -> Result<&Bundle, Failure> {
        self.bundles.get(namespace).ok_or_else(|| {
            let message =
                format!("{namespace} is not a namespace of policies (composites.policyNamespaces)");
            Failure::invalid("PolicyMissing", message)
        })
    }

    /// Returns the policy of a namespace.
    async fn bundled(&self, namespace: &str) -> Result<Policy, Failure> {
        let bundle = self.bundle(namespace)?;
        bundle.maps.ready().await;
        let version = bundle.version.load(Ordering::Acquire);
        let known = bundle.compiled().clone();
        if let Some(known) = known.filter(|known| known.version == version) {
            return known.policy;
        }
        let texts = bundle::texts(bundle.maps.objects().iter().map(AsRef::as_ref));
        if texts.is_empty() {
            return Err(oz_function::missing(&Modules::Bundle(namespace.to_owned())));
        }
        let policy = compile(namespace, texts, Dialect::default()).await;
        if !policy.as_ref().is_err_and(is_passing) {
            let policy = policy.clone();
            *bundle.compiled() = Some(Compiled { version, policy });
        }
        policy
    }
}

impl Bundle {
    fn compiled(&self) -> MutexGuard<'_, Option<Compiled>> {
        self.compiled.lock()
    }
}

fn is_passing(failure: &Failure) -> bool {
    failure.class == FailureClass::Transient
}

/// Calls a function on a thread that may block.
async fn on_own_thread<T: Send + 'static>(
    function: &InProcess,
    ask: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let asked = tokio::task::spawn_blocking(ask).await;
    asked.unwrap_or_else(|error| {
        let message = format!("internal error: the policy's thread ended: {error}");
        Err(oz_function::failed(function, &message))
    })
}

/// Compiles modules and documents on a thread that may block.
async fn compile(
    place: &str,
    texts: Vec<(String, String)>,
    dialect: Dialect,
) -> Result<Policy, Failure> {
    let named = place.to_owned();
    let compiled = move || oz_function::compile(&named, &texts, dialect);
    let compiled = tokio::task::spawn_blocking(compiled).await;
    compiled.unwrap_or_else(|error| {
        let message = format!("internal error: compiling ended: {error}");
        Err(Failure::transient(POLICY_FAILED, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_of_one_config_map_has_the_digest_that_its_records_name() {
        let map: ConfigMap = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "fleets"},
            "data": {
                "b.rego": "package b", "a.rego": "package a", "a_test.rego": "package tests",
                "limits.yaml": "limits: {hours: 4}",
            },
        }))
        .unwrap();
        let of_bundle = oz_rego::digest(&bundle::texts([&map]));
        assert_eq!(
            bundle::digest_of(&map),
            Some(oz_rego::digest_text(of_bundle))
        );
    }
}
