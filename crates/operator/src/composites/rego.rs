//! Functions that are policies in Rego, run in process: a bundle for each namespace that is listed as one
//! of policies, from its ConfigMaps, as an OPA there would have it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use oz_core::composite::declared::{Declared, InProcess, Modules};
use oz_core::composite::supervise::PolicyFound;
use oz_core::composite::{Called, POLICY_FAILED, Refused, compared};
use oz_core::composite::{bundle, ends, rego};
use oz_core::controller::{Failure, FailureClass};
use oz_rego::{Dialect, Language, Limits, Policy};
use oz_runtime::{Feeds, Kind, Selection, Store, Subscription};
use serde_json::Value;

/// How many policies that are no bundle are kept compiled. More are compiled again.
const MOST_COMPILED: usize = 256;

/// The policies of an installation.
pub(crate) struct Policies {
    /// By namespace of policies.
    bundles: BTreeMap<String, Bundle>,
    /// Those that are not a whole bundle.
    others: Mutex<HashMap<Text, Result<Policy, Failure>>>,
}

/// A policy of one module.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Text {
    /// Where it is, for people.
    place: String,
    text: String,
    dialect: Dialect,
}

/// The modules of one namespace.
struct Bundle {
    maps: Store<ConfigMap>,
    /// How often the ConfigMaps have changed.
    version: Arc<AtomicU64>,
    compiled: Mutex<Option<Compiled>>,
    _subscription: Subscription,
}

/// A bundle as it was last compiled.
#[derive(Clone)]
struct Compiled {
    /// Of the bundle, before it was read.
    version: u64,
    policy: Result<Policy, Failure>,
}

impl Policies {
    pub(crate) fn new(namespaces: &[String], feeds: &Feeds) -> Self {
        let kind = Kind::of::<ConfigMap>();
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

    /// The namespaces of policies.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        self.bundles.keys().cloned().collect()
    }

    /// The ConfigMaps of all of them.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Store<ConfigMap>> {
        self.bundles.values().map(|bundle| &bundle.maps)
    }

    /// What there is of the policies of a composite; `None` if it asks none.
    pub(crate) async fn found(&self, declared: &Declared) -> Result<Option<PolicyFound>, Failure> {
        let mut found = Vec::new();
        for function in declared.policies() {
            let policy = self.policy(function).await?;
            found.push(PolicyFound {
                digest: digest(function, &policy),
                language: policy.language().to_string(),
            });
        }
        Ok(PolicyFound::together(&found))
    }

    /// What a function says to a request, now and at the instants that the parent names.
    pub(crate) async fn call(
        &self,
        function: &InProcess,
        request: Value,
        strict: bool,
        now: Timestamp,
    ) -> Result<Called, Refused> {
        let policy = self.policy(function).await?;
        let digest = digest(function, &policy);
        let path = function.path.clone();
        let mut limits = Limits::default();
        limits.time = function.evaluation.unwrap_or(limits.time);
        let ask = move || ask(&policy, &path, &request, strict, now, &limits);
        let asked = tokio::task::spawn_blocking(ask);
        let asked = asked.await.map_err(|error| {
            let message = format!("internal error: the policy's thread ended: {error}");
            Failure::transient(POLICY_FAILED, message)
        })?;
        Ok(Called {
            policy: Some(digest),
            ..asked?
        })
    }

    /// What a function says now, as `read` reads it.
    pub(crate) async fn document<T>(
        &self,
        function: &InProcess,
        request: Value,
        now: Timestamp,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Result<T, Refused> {
        let policy = self.policy(function).await?;
        let path = function.path.clone();
        let mut limits = Limits::default();
        limits.time = function.evaluation.unwrap_or(limits.time);
        let ask = move || policy.evaluate(&path, &request, now, &limits);
        let answer = tokio::task::spawn_blocking(ask).await;
        let failed = |error: &dyn std::fmt::Display| {
            let message = format!("data.{}: {error}", function.path);
            Refused::from(Failure::transient(POLICY_FAILED, message))
        };
        let answer = answer.map_err(|error| failed(&error))?;
        let answer = answer.map_err(|error| failed(&error))?;
        let document = answer.document();
        let document = document.ok_or_else(|| failed(&"is undefined for this parent"))?;
        read(document).map_err(|error| {
            let message = format!("data.{}: its answer {error}", function.path);
            Failure::invalid("AnswerInvalid", message).into()
        })
    }

    /// A policy, compiled if it has changed.
    async fn policy(&self, function: &InProcess) -> Result<Policy, Failure> {
        let language = function.language.map(|language| match language {
            rego::Language::V0 => Language::V0,
            rego::Language::V1 => Language::V1,
        });
        let strict = function.strict;
        let dialect = Dialect { language, strict };
        let place = function.modules.to_string();
        let text = match &function.modules {
            Modules::Bundle(namespace) => return self.bundled(namespace).await,
            Modules::Key {
                namespace,
                name,
                key,
            } => {
                let bundle = self.bundle(namespace)?;
                bundle.maps.ready().await;
                let text = bundle
                    .maps
                    .select(|map| map.metadata.name.as_ref() == Some(name));
                let text = text
                    .first()
                    .and_then(|map| map.data.as_ref()?.get(key).cloned());
                text.ok_or_else(|| {
                    let message = format!("there is no ConfigMap key {place}");
                    Failure::transient("PolicyMissing", message)
                })?
            }
            Modules::Inline(text) => text.clone(),
        };
        self.one(Text {
            place,
            text,
            dialect,
        })
        .await
    }

    /// A policy of one module.
    async fn one(&self, text: Text) -> Result<Policy, Failure> {
        if let Some(known) = self.others().get(&text) {
            return known.clone();
        }
        let modules = vec![(text.place.clone(), text.text.clone())];
        let policy = compile(&text.place, modules, text.dialect).await;
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
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bundle(&self, namespace: &str) -> Result<&Bundle, Failure> {
        self.bundles.get(namespace).ok_or_else(|| {
            let message = format!("{namespace} is no namespace of policies (--policy-namespaces)");
            Failure::invalid("PolicyMissing", message)
        })
    }

    /// The policy of a namespace.
    async fn bundled(&self, namespace: &str) -> Result<Policy, Failure> {
        let bundle = self.bundle(namespace)?;
        bundle.maps.ready().await;
        let version = bundle.version.load(Ordering::Acquire);
        let known = bundle.compiled().clone();
        if let Some(known) = known.filter(|known| known.version == version) {
            return known.policy;
        }
        let modules = bundle::modules(bundle.maps.objects().iter().map(AsRef::as_ref));
        let policy = compile(namespace, modules, Dialect::default()).await;
        if !policy.as_ref().is_err_and(is_passing) {
            let policy = policy.clone();
            *bundle.compiled() = Some(Compiled { version, policy });
        }
        policy
    }
}

impl Bundle {
    fn compiled(&self) -> MutexGuard<'_, Option<Compiled>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Digest of a policy, and of what it is asked: that decides as much as its text.
fn digest(function: &InProcess, policy: &Policy) -> String {
    if let Modules::Bundle(_) = &function.modules {
        return policy.digest_text();
    }
    let text = |name: &str, text: String| (name.to_owned(), text);
    let parts = [
        text("policy", policy.digest_text()),
        text("package", function.path.clone()),
        text("strict", function.strict.to_string()),
    ];
    oz_rego::digest_text(oz_rego::digest(&parts))
}

fn is_passing(failure: &Failure) -> bool {
    failure.class == FailureClass::Transient
}

/// Compiles modules where that may take its time.
async fn compile(
    place: &str,
    modules: Vec<(String, String)>,
    dialect: Dialect,
) -> Result<Policy, Failure> {
    if modules.is_empty() {
        return Err(Failure::transient("PolicyMissing", bundle::missing(place)));
    }
    let compiled = move || Policy::compile_as(&modules, dialect);
    let compiled = tokio::task::spawn_blocking(compiled).await;
    let compiled = compiled.map_err(|error| {
        let message = format!("internal error: compiling ended: {error}");
        Failure::transient(POLICY_FAILED, message)
    })?;
    compiled.map_err(|errors| Failure::invalid("PolicyInvalid", bundle::broken(place, &errors)))
}

fn ask(
    policy: &Policy,
    path: &str,
    request: &Value,
    strict: bool,
    now: Timestamp,
    limits: &Limits,
) -> Result<Called, Failure> {
    let instants = ends::instants(&request["parent"], now);
    let preview = policy.preview(path, request, &instants, now, limits, |answer| {
        answer.document().map(compared)
    });
    let preview = preview
        .map_err(|error| Failure::transient(POLICY_FAILED, format!("data.{path}: {error}")))?;
    let ahead = preview.changes.iter();
    let ahead = ahead.map(|change| (change.at, change.answer.document()));
    let now = preview.now.document();
    Called::of_policy(path, now, ahead, preview.tried_until, strict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_of_one_config_map_has_the_digest_that_its_records_name() {
        let map: ConfigMap = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "fleets"},
            "data": {"b.rego": "package b", "a.rego": "package a", "a_test.rego": "package tests"},
        }))
        .unwrap();
        let of_bundle = oz_rego::digest(&bundle::modules([&map]));
        assert_eq!(
            bundle::digest_of(&map),
            Some(oz_rego::digest_text(of_bundle))
        );
    }
}
