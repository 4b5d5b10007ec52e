//! The writes of webhook configurations: server-side apply, never deletion and creation, so that the
//! configurations exist at every moment.
//! See <https://kubernetes.io/docs/reference/using-api/server-side-apply/>.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    time::{Duration, Instant},
};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use oz_runtime::Selection;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    FINGERPRINT_LABEL,
    desired::Configurations,
    drift::{drift, enforced},
    eirinix, followed,
    origin::{self, Precedence, Writer},
};

/// Returns the text of a registered bundle. One that is absent or no text contains no certificate.
pub(super) fn text(bundle: Option<ByteString>) -> String {
    let text = bundle.and_then(|bytes| String::from_utf8(bytes.0).ok());
    text.unwrap_or_default()
}

/// The reason for which the registration could not be repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server did not carry out the call.
    #[error("failed to {verb} {kind} {name}")]
    Api {
        /// The attempted operation.
        verb: &'static str,
        /// The kind of the object.
        kind: &'static str,
        /// The name of the object.
        name: String,
        /// The error of the call.
        source: Box<kube::Error>,
    },
    /// A namespace of a hook does not exist, and is not declared optional.
    #[error("failed to label namespace {0}: it does not exist; create it, or declare it optional")]
    NamespaceMissing(String),
    /// A configuration could not be serialised; this cannot happen.
    #[error("failed to serialise a webhook configuration")]
    Serialise(#[from] serde_json::Error),
}

/// A configuration that differed from the desired one and was repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// The differing field, for the event; `None` if the object did not exist.
    pub(crate) path: Option<String>,
    pub(crate) uid: Option<String>,
    /// True if another replica wrote it: one of another version, or with other settings.
    pub(crate) replaced: bool,
}

/// The configurations to register.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) desired: &'a Configurations,
    /// The key that only replicas have, and all of them; without it, no replica can identify the writes of
    /// another.
    pub(crate) key: Option<&'a [u8]>,
    /// True if changing rules differ from those of the last registration.
    pub(crate) rules_changed: bool,
}

/// The result of the check of a configuration.
enum Ensured {
    /// The configuration was as desired.
    Same,
    Changed(Change),
    /// The configuration is that of a replica with precedence.
    Left,
    /// The same, except for changing rules: that replica may already know of other rules.
    LeftRules,
}

/// The result for all configurations.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pub(crate) changes: Vec<Change>,
    /// True if a configuration was left as another replica wants it.
    pub(crate) left: bool,
    /// The pause before the next check, if a configuration was left because of changing rules.
    pub(crate) again: Option<Duration>,
}

/// The registrar of the configurations of one product.
pub(crate) struct Registrar {
    client: kube::Client,
    fingerprint: String,
    /// The names of the webhooks of the product; other writers may have added theirs.
    names: BTreeSet<String>,
    precedence: Precedence,
}

/// A configuration: mutating and validating configurations are two types of one shape.
pub(crate) trait Configuration:
    Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
    const KIND: &'static str;
}

impl Configuration for MutatingWebhookConfiguration {
    const KIND: &'static str = "MutatingWebhookConfiguration";
}

impl Configuration for ValidatingWebhookConfiguration {
    const KIND: &'static str = "ValidatingWebhookConfiguration";
}

impl Registrar {
    pub(crate) fn new(
        client: kube::Client,
        fingerprint: &str,
        names: BTreeSet<String>,
        precedence: Precedence,
    ) -> Self {
        Self {
            client,
            fingerprint: fingerprint.to_owned(),
            names,
            precedence,
        }
    }

    /// Repairs the configurations and returns the changes.
    pub(crate) async fn ensure(&self, wanted: Wanted<'_>) -> Result<Order, Error> {
        let (mutating, validating) = futures::future::try_join(
            self.ensure_one(wanted.desired.mutating.as_ref(), wanted),
            self.ensure_one(wanted.desired.validating.as_ref(), wanted),
        )
        .await?;
        let mut order = Order::default();
        for ensured in [mutating, validating] {
            match ensured {
                Ensured::Same => {}
                Ensured::Changed(change) => order.changes.push(change),
                Ensured::Left => order.left = true,
                Ensured::LeftRules => {
                    order.left = true;
                    order.again = Some(origin::RULES_TIMEOUT);
                }
            }
        }
        Ok(order)
    }

    async fn ensure_one<K: Configuration>(
        &self,
        desired: Option<&K>,
        Wanted {
            desired: Configurations {
                absent, following, ..
            },
            key,
            rules_changed,
        }: Wanted<'_>,
    ) -> Result<Ensured, Error> {
        let Some(desired) = desired else {
            return Ok(Ensured::Same);
        };
        let api = Api::<K>::all(self.client.clone());
        let failed = |verb| move |source| api_error::<K>(verb, &self.fingerprint, source);
        let mut wanted = with_type(desired)?;
        let drift = |wanted: &Value, live: &Value| {
            drift(wanted, live).or_else(|| followed::surplus(absent, live))
        };

        let live = api
            .get_opt(&self.fingerprint)
            .await
            .map_err(failed("read"))?;
        let live = live.as_ref().map(with_type).transpose()?;
        followed::adopt(&mut wanted, live.as_ref());
        let path = match &live {
            Some(live) => match drift(&wanted, live) {
                Some(path) => Some(path),
                None => return Ok(Ensured::Same),
            },
            None => None,
        };
        let other = live
            .as_ref()
            .zip(key)
            .and_then(|(live, key)| origin::writer(live, key));
        if let Some((live, other)) = live.as_ref().zip(other.as_ref())
            && let Some(left) = self.left::<K>(&wanted, live, other, following, rules_changed)
        {
            return Ok(left);
        }
        if let Some(key) = key {
            origin::mark(&mut wanted, &self.precedence.me, key)?;
        }
        let parameters = PatchParams::apply(&self.fingerprint).force();
        let mut applied = api
            .patch(&self.fingerprint, &parameters, &Patch::Apply(&wanted))
            .await
            .map_err(failed("apply"))?;
        let result = serde_json::to_value(&applied)?;
        if drift(&wanted, &result).is_some() {
            // The resourceVersion is part of the write: it overwrites no foreign change.
            let enforced = followed::without(absent, enforced(&wanted, &result));
            let enforced = serde_json::from_value::<K>(enforced)?;
            let parameters = PostParams {
                field_manager: Some(self.fingerprint.clone()),
                ..PostParams::default()
            };
            applied = api
                .replace(&self.fingerprint, &parameters, &enforced)
                .await
                .map_err(failed("repair"))?;
        }
        Ok(Ensured::Changed(Change {
            kind: K::KIND,
            name: self.fingerprint.clone(),
            path,
            uid: applied.uid(),
            replaced: other.is_some_and(|other| self.precedence.is_rollout(&other, Instant::now())),
        }))
    }

    /// Checks whether the configuration of `other` is left unchanged.
    fn left<K: Configuration>(
        &self,
        wanted: &Value,
        live: &Value,
        other: &Writer,
        following: &BTreeSet<String>,
        rules_changed: bool,
    ) -> Option<Ensured> {
        let now = Instant::now();
        let in_rules_only = followed::differs_in_rules_only(wanted, live, following);
        // New rules of this replica are registered, regardless of precedence.
        if in_rules_only && rules_changed {
            return None;
        }
        if self.precedence.yields(other, now) {
            tracing::info!(
                kind = K::KIND,
                replica = other.identity,
                "left the registration to a replica that started later"
            );
            return Some(Ensured::Left);
        }
        let version = live["metadata"]["resourceVersion"].as_str()?;
        let version = (K::KIND, version);
        (in_rules_only && self.precedence.may_know_more(other, version, now))
            .then_some(Ensured::LeftRules)
    }

    /// Removes configurations that an earlier version of the same product registered and this one does not.
    pub(crate) async fn prune(&self, desired: &Configurations) -> Result<(), Error> {
        self.prune_one::<MutatingWebhookConfiguration>(desired.mutating.is_some())
            .await?;
        self.prune_one::<ValidatingWebhookConfiguration>(desired.validating.is_some())
            .await
    }

    async fn prune_one<K: Configuration>(&self, keep_own: bool) -> Result<(), Error> {
        let api = Api::<K>::all(self.client.clone());
        let selector = format!("{FINGERPRINT_LABEL}={}", self.fingerprint);
        let list = api
            .list(&ListParams::default().labels(&selector))
            .await
            .map_err(|source| api_error::<K>("list", &self.fingerprint, source))?;
        for left_behind in list {
            let name = left_behind.name_any();
            if keep_own && name == self.fingerprint {
                continue;
            }
            let parameters = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: left_behind.uid(),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            match api.delete(&name, &parameters).await {
                Ok(_) => tracing::info!(kind = K::KIND, name, "removed what an older version left"),
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(source) => return Err(api_error::<K>("delete", &name, source)),
            }
        }
        Ok(())
    }

    /// Removes the configuration of an EiriniX installation of this fingerprint.
    pub(crate) async fn remove_eirinix(&self) -> Result<(), Error> {
        let removed = eirinix::remove(self.client.clone(), &self.fingerprint).await;
        removed.map_err(|source| {
            let name = eirinix::configuration_name(&self.fingerprint);
            api_error::<MutatingWebhookConfiguration>("remove", &name, source)
        })
    }

    /// Returns the bundles that are registered now, one for each webhook of the product.
    pub(crate) async fn published(&self) -> Result<Vec<String>, Error> {
        let mutating = self.live::<MutatingWebhookConfiguration>().await?;
        let validating = self.live::<ValidatingWebhookConfiguration>().await?;
        let mutating = mutating.and_then(|it| it.webhooks).into_iter().flatten();
        let validating = validating.and_then(|it| it.webhooks).into_iter().flatten();
        let bundles = mutating
            .map(|it| (it.name, it.client_config.ca_bundle))
            .chain(validating.map(|it| (it.name, it.client_config.ca_bundle)))
            .filter(|(name, _)| self.names.contains(name))
            .map(|(_, bundle)| text(bundle));
        Ok(bundles.collect())
    }

    async fn live<K: Configuration>(&self) -> Result<Option<K>, Error> {
        Api::<K>::all(self.client.clone())
            .get_opt(&self.fingerprint)
            .await
            .map_err(|source| api_error::<K>("read", &self.fingerprint, source))
    }

    /// Yields after each possible change of one of the two configurations.
    pub(crate) fn changes(&self) -> impl futures::Stream<Item = ()> + Send + use<> {
        let mutating = self.touched::<MutatingWebhookConfiguration>();
        let validating = self.touched::<ValidatingWebhookConfiguration>();
        futures::stream::select(mutating, validating)
    }

    fn touched<K>(&self) -> impl futures::Stream<Item = ()> + Send + use<K>
    where
        K: Configuration + Send + 'static,
    {
        let ours = Selection::with_name(&self.fingerprint);
        crate::watch::touched::<K>(&self.client, None, ours)
    }
}

fn api_error<K: Configuration>(verb: &'static str, name: &str, source: kube::Error) -> Error {
    Error::Api {
        verb,
        kind: K::KIND,
        name: name.to_owned(),
        source: Box::new(source),
    }
}

/// Adds `apiVersion` and `kind`, which an apply requires in the body.
fn with_type<K: Configuration>(object: &K) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::KIND);
    Ok(value)
}
