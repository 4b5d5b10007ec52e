//! The conversion webhooks of CustomResourceDefinitions: `spec.conversion` as declared, and no other field
//! of them. The manager waits for a definition that does not exist.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    core::{ApiResource, NotUsed, Object, PartialObjectMeta},
};
use oz_runtime::Selection;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::apply::{Change, Error, text};
use crate::{conversion::Conversion, endpoint::Endpoint};

const KIND: &str = "CustomResourceDefinition";

/// The part of a definition that is read: schemas may be large.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Spec {
    #[serde(default)]
    conversion: Value,
}

type Definition = Object<Spec, NotUsed>;

/// The registrar of the conversions of one product.
pub(crate) struct Conversions {
    client: Client,
    api: Api<Definition>,
    fingerprint: String,
    /// The paths by the name of the definition.
    paths: BTreeMap<String, String>,
    /// The UIDs of the definitions that are as declared; `None` for a definition that does not exist.
    registered: Mutex<BTreeMap<String, Option<String>>>,
}

impl Conversions {
    pub(crate) fn new(client: Client, fingerprint: &str, conversions: &[Conversion]) -> Self {
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        let paths = conversions
            .iter()
            .map(|it| (it.definition.clone(), it.served_path()));
        Self {
            api: Api::all_with(client.clone(), &resource),
            client,
            fingerprint: fingerprint.to_owned(),
            paths: paths.collect(),
            registered: Mutex::default(),
        }
    }

    /// Returns the number of registered conversions.
    pub(crate) fn count(&self) -> usize {
        let registered = self.registered();
        registered.values().filter(|uid| uid.is_some()).count()
    }

    fn registered(&self) -> MutexGuard<'_, BTreeMap<String, Option<String>>> {
        self.registered.lock()
    }

    /// Repairs the differences, and returns the changes of definitions that were as declared before.
    ///
    /// # Errors
    /// The first definition that cannot be read or written, after all others were handled.
    pub(crate) async fn ensure(
        &self,
        endpoint: &Endpoint,
        segment: Option<&str>,
        bundle: Option<&str>,
    ) -> Result<Vec<Change>, Error> {
        let (mut changes, mut outcome) = (Vec::new(), Ok(()));
        for (name, path) in &self.paths {
            let wanted = desired(endpoint, segment, path, bundle);
            match self.ensure_one(name, &wanted).await {
                Ok(change) => changes.extend(change),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome.map(|()| changes)
    }

    async fn ensure_one(&self, name: &str, wanted: &Value) -> Result<Option<Change>, Error> {
        let Some(live) = self.get(name).await? else {
            let before = self.registered().insert(name.to_owned(), None);
            if before != Some(None) {
                tracing::info!(
                    name,
                    "waiting for a CustomResourceDefinition to convert for"
                );
            }
            return Ok(None);
        };
        let uid = live.uid();
        let path = drift(wanted, &live.spec.conversion);
        if path.is_some() {
            let patch = Patch::Merge(json!({"spec": {"conversion": exchanged(wanted)}}));
            let parameters = PatchParams {
                field_manager: Some(self.fingerprint.clone()),
                ..PatchParams::default()
            };
            match self.api.patch(name, &parameters, &patch).await {
                Ok(_) => {}
                // The definition was deleted during the write.
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
                Err(source) => return Err(error("patch", name, source)),
            }
        }
        let before = self.registered().insert(name.to_owned(), uid.clone());
        // A definition that is new, or was created again, was not damaged.
        let known = before
            .flatten()
            .is_some_and(|before| uid.as_ref() == Some(&before));
        Ok(path.filter(|_| known).map(|path| Change {
            kind: KIND,
            name: name.to_owned(),
            path: Some(path),
            uid,
            replaced: false,
        }))
    }

    async fn get(&self, name: &str) -> Result<Option<Definition>, Error> {
        let found = self.api.get_opt(name).await;
        found.map_err(|source| error("read", name, source))
    }

    /// Returns the bundles that are registered now, of the definitions that convert by a webhook.
    pub(crate) async fn published(&self) -> Result<Vec<String>, Error> {
        let mut bundles = Vec::new();
        for name in self.paths.keys() {
            let live = self.get(name).await?.unwrap_or_else(nothing);
            let conversion = &live.spec.conversion;
            if conversion["strategy"] == "Webhook" {
                let bundle = conversion["webhook"]["clientConfig"]["caBundle"].clone();
                bundles.push(text(serde_json::from_value(bundle)?));
            }
        }
        Ok(bundles)
    }

    /// Yields after each possible change of one of the definitions.
    pub(crate) fn changes(&self) -> impl futures::Stream<Item = ()> + Send + use<> {
        type Metadata = PartialObjectMeta<CustomResourceDefinition>;
        let watches = self.paths.keys().map(|name| {
            let this = Selection::with_name(name).metadata_only();
            Box::pin(crate::watch::touched::<Metadata>(&self.client, None, this))
        });
        futures::stream::select_all(watches)
    }
}

fn nothing() -> Definition {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    Object::new("", &resource, Spec::default())
}

fn error(verb: &'static str, name: &str, source: kube::Error) -> Error {
    Error::Api {
        verb,
        kind: KIND,
        name: name.to_owned(),
        source: Box::new(source),
    }
}

/// Returns the desired `spec.conversion`. Without a bundle, an existing `caBundle` stays unchanged.
fn desired(endpoint: &Endpoint, segment: Option<&str>, path: &str, bundle: Option<&str>) -> Value {
    json!({
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": endpoint.client_config(segment, path, bundle),
            "conversionReviewVersions": ["v1"],
        },
    })
}

/// Returns the path of the first difference, if there is one.
fn drift(wanted: &Value, live: &Value) -> Option<String> {
    let client_config = |conversion: &Value| {
        let mut config = conversion["webhook"]["clientConfig"].clone();
        let bundle = wanted["webhook"]["clientConfig"].get("caBundle");
        if bundle.is_none()
            && let Some(config) = config.as_object_mut()
        {
            config.remove("caBundle");
        }
        config
    };
    let versions = |conversion: &Value| conversion["webhook"]["conversionReviewVersions"].clone();
    let path = if wanted["strategy"] != live["strategy"] {
        "strategy"
    } else if client_config(wanted) != client_config(live) {
        "webhook.clientConfig"
    } else if versions(wanted) != versions(live) {
        "webhook.conversionReviewVersions"
    } else {
        return None;
    };
    Some(format!("spec.conversion.{path}"))
}

/// Returns a merge patch, which removes the other of the two forms of the webhook's address.
fn exchanged(wanted: &Value) -> Value {
    let mut patch = wanted.clone();
    if let Some(config) = patch["webhook"]["clientConfig"].as_object_mut() {
        let other = if config.contains_key("url") {
            "service"
        } else {
            "url"
        };
        config.insert(other.to_owned(), Value::Null);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Endpoint {
        Endpoint::Service {
            name: "hooks".to_owned(),
            namespace: "acme".to_owned(),
            port: 443,
        }
    }

    /// Returns the conversion as the API server would show it.
    fn live() -> Value {
        desired(
            &service(),
            Some("key"),
            "/convert/widgets.example.com",
            Some("PEM"),
        )
    }

    #[test]
    fn conversion_that_matches_registration_has_no_drift() {
        let wanted = live();
        let config = &wanted["webhook"]["clientConfig"];
        assert_eq!(
            config["service"]["path"],
            "/key/convert/widgets.example.com"
        );
        assert_eq!(drift(&wanted, &live()), None);
    }

    #[test]
    fn each_kind_of_damage_is_found_named_and_undone_by_the_patch() {
        type Damage = fn(&mut Value);
        let damages: [(&str, Damage); 5] = [
            ("strategy", |it| *it = json!({"strategy": "None"})),
            ("webhook.clientConfig", |it| {
                it["webhook"]["clientConfig"]["caBundle"] = json!("QUJD");
            }),
            ("webhook.clientConfig", |it| {
                it["webhook"]["clientConfig"] = json!({"url": "https://elsewhere"});
            }),
            ("webhook.clientConfig", |it| {
                it["webhook"]["clientConfig"]["service"]["port"] = json!(1);
            }),
            ("webhook.conversionReviewVersions", |it| {
                it["webhook"]["conversionReviewVersions"] = json!(["v1beta1"]);
            }),
        ];
        for (path, damage) in damages {
            let mut damaged = live();
            damage(&mut damaged);
            let found = drift(&live(), &damaged);
            assert_eq!(found, Some(format!("spec.conversion.{path}")));
            json_patch::merge(&mut damaged, &exchanged(&live()));
            assert_eq!(damaged, live());
        }
    }

    #[test]
    fn injected_conversion_bundle_is_kept_and_is_no_drift() {
        let wanted = desired(
            &service(),
            Some("key"),
            "/convert/widgets.example.com",
            None,
        );
        assert_eq!(drift(&wanted, &live()), None);
        let mut damaged = live();
        damaged["strategy"] = json!("None");
        json_patch::merge(&mut damaged, &exchanged(&wanted));
        assert_eq!(damaged, live());
    }
}
