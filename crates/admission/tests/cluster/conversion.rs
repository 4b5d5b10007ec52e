//! Conversion webhooks: a resource of two versions that is read and written in both, a registration that is
//! repaired, and no lost call during the repair.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    ByteString,
    api::{core::v1::Secret, events::v1::Event},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use oz_admission::{
    CancellationToken, Conversion, Convert, ConvertError, Cx, ManagerBuilder, ROTATE_ANNOTATION,
};
use oz_testkit::eventually;
use serde_json::{Value, json};

use crate::fixture::{Fixture, LONG, Running};

/// A conversion of `spec.size` of v1 to `spec.replicas` of v2.
struct Versions;

impl Convert for Versions {
    async fn convert(&self, _: &Cx, mut widget: Value, to: &str) -> Result<Value, ConvertError> {
        let names = ["size", "replicas"];
        let [new, old] = if to.ends_with("/v1") {
            names
        } else {
            [names[1], names[0]]
        };
        let count = widget["spec"][old].take();
        if !count.is_u64() {
            return Err(format!("spec.{old} is no number: {count}").into());
        }
        widget["spec"] = json!({new: count});
        Ok(widget)
    }
}

/// The definition of Widgets, in a group that is named after the namespace; stored as v1.
pub struct Widgets<'a> {
    fixture: &'a Fixture,
    group: String,
    definitions: Api<CustomResourceDefinition>,
}

impl<'a> Widgets<'a> {
    pub fn new(fixture: &'a Fixture) -> Self {
        Self {
            group: format!("{}.example.com", fixture.name()),
            definitions: Api::all(fixture.client.clone()),
            fixture,
        }
    }

    pub fn name(&self) -> String {
        format!("widgets.{}", self.group)
    }

    pub fn conversion(&self) -> Conversion {
        Conversion::new(&self.name(), Versions)
    }

    /// Creates the definition as a user would who does not know about conversion.
    pub async fn define(&self) -> Result<()> {
        let version = |name: &str| {
            json!({"name": name, "served": true, "storage": name == "v1",
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
        };
        let definition = serde_json::from_value(json!({
            "metadata": {"name": self.name()},
            "spec": {"group": self.group, "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [version("v1"), version("v2")]},
        }))?;
        let parameters = PostParams::default();
        self.definitions.create(&parameters, &definition).await?;
        Ok(())
    }

    async fn spec(&self) -> Result<Value> {
        let found = self.definitions.get(&self.name()).await?;
        Ok(serde_json::to_value(found.spec)?)
    }

    pub async fn until_registered(&self) -> Result<()> {
        eventually("the conversion to be registered", LONG, async || {
            let conversion = self.spec().await?["conversion"].clone();
            Ok((conversion["strategy"] == "Webhook").then_some(()))
        })
        .await
    }

    async fn harm(&self, harm: Value) -> Result<()> {
        let parameters = PatchParams::default();
        let patch = Patch::Merge(json!({"spec": {"conversion": harm}}));
        self.definitions
            .patch(&self.name(), &parameters, &patch)
            .await?;
        Ok(())
    }

    fn api(&self, version: &str) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: self.group.clone(),
            version: version.to_owned(),
            api_version: format!("{}/{version}", self.group),
            kind: "Widget".to_owned(),
            plural: "widgets".to_owned(),
        };
        Api::namespaced_with(self.fixture.client.clone(), self.fixture.name(), &resource)
    }

    pub async fn create(&self, version: &str, name: &str, spec: Value) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": format!("{}/{version}", self.group), "kind": "Widget",
            "metadata": {"name": name, "annotations": {"example.com/note": "kept"}}, "spec": spec,
        }))?;
        let (api, parameters) = (self.api(version), PostParams::default());
        eventually("the kind to be served", LONG, async || {
            match api.create(&parameters, &object).await {
                Ok(_) => Ok(Some(())),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(Some(())),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    pub async fn until_shown(&self, version: &str, name: &str, spec: &Value) -> Result<()> {
        let api = self.api(version);
        eventually("the object in another version", LONG, async || {
            let found = api.get(name).await?;
            ensure!(found.data["spec"] == *spec, "{}", found.data);
            ensure!(found.annotations()["example.com/note"] == "kept");
            ensure!(!found.managed_fields().is_empty());
            Ok(Some(()))
        })
        .await
    }

    pub async fn remove(&self) -> Result<()> {
        let parameters = DeleteParams::default();
        self.definitions.delete(&self.name(), &parameters).await?;
        Ok(())
    }
}

fn manager(fixture: &Fixture, widgets: &Widgets<'_>) -> Result<ManagerBuilder> {
    Ok(fixture.manager()?.conversion(widgets.conversion()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_of_two_versions_is_read_and_written_in_both() -> Result<()> {
    let fixture = Fixture::new("convert").await?;
    let widgets = Widgets::new(&fixture);
    // A definition that does not exist yet does not affect readiness.
    let running = Running::start(manager(&fixture, &widgets)?).await?;
    widgets.define().await?;
    widgets.until_registered().await?;

    widgets.create("v1", "a", json!({"size": 3})).await?;
    widgets
        .until_shown("v2", "a", &json!({"replicas": 3}))
        .await?;
    widgets.create("v2", "b", json!({"replicas": 5})).await?;
    widgets.until_shown("v1", "b", &json!({"size": 5})).await?;

    widgets.create("v1", "bad", json!({"size": "many"})).await?;
    let error = widgets.api("v2").get("bad").await.unwrap_err().to_string();
    let (name, group) = (fixture.name(), &widgets.group);
    let wanted = format!(
        "failed to convert Widget {name}/bad from {group}/v1 to {group}/v2: \
         spec.size is no number: \"many\""
    );
    assert!(error.contains(&wanted), "{error}");
    let good = widgets.api("v2").get("a").await;
    assert!(good.is_ok(), "{good:?}");
    let count = running.metric("admission_conversions_total").await?;
    assert!(count >= 4.0, "{count}");
    widgets.remove().await?;
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversion_that_is_vandalised_is_put_right_and_nothing_else_is_written() -> Result<()> {
    let fixture = Fixture::new("convert-heal").await?;
    let widgets = Widgets::new(&fixture);
    widgets.define().await?;
    let without = widgets.spec().await?;
    let running = Running::start(manager(&fixture, &widgets)?).await?;
    widgets.until_registered().await?;
    let good = widgets.spec().await?;
    for field in ["group", "names", "scope", "versions"] {
        assert_eq!(good[field], without[field], "{field}");
    }
    // The API server accepts no bundle without a certificate.
    let another = rcgen::generate_simple_self_signed(["another".to_owned()])?
        .cert
        .pem();
    let damages = [
        json!({"webhook": {"clientConfig": {"caBundle": ByteString(another.into_bytes())}}}),
        json!({"webhook": {"clientConfig": {"url": "https://127.0.0.1:1/never"}}}),
        json!({"strategy": "None", "webhook": null}),
    ];
    let total = u8::try_from(damages.len())?;
    for damage in damages {
        let what = damage.to_string();
        widgets.harm(damage).await?;
        eventually(&format!("{what} to be put right"), LONG, async || {
            Ok((widgets.spec().await? == good).then_some(()))
        })
        .await?;
    }
    // A definition that is created again was not damaged.
    widgets.remove().await?;
    eventually("the definition to be gone", LONG, async || {
        let found = widgets.definitions.get_opt(&widgets.name()).await?;
        Ok(found.is_none().then_some(()))
    })
    .await?;
    widgets.define().await?;
    widgets.until_registered().await?;
    let metric = "admission_registration_repairs_total{name=\"CustomResourceDefinition\"}";
    eventually(
        "every repair to be counted, and no more",
        LONG,
        async || {
            let repairs = running.metric(metric).await?;
            ensure!(
                repairs <= f64::from(total),
                "{repairs} repairs of {total} damages"
            );
            Ok((repairs >= f64::from(total)).then_some(()))
        },
    )
    .await?;
    let events = Api::<Event>::all(fixture.client.clone());
    eventually("an event about the definition", LONG, async || {
        let list = events.list(&ListParams::default()).await?;
        let about = |event: &Event| event.regarding.as_ref().and_then(|it| it.name.clone());
        let found = list
            .iter()
            .find(|event| about(event) == Some(widgets.name()));
        Ok(found.and_then(|event| event.reason.clone()))
    })
    .await
    .map(|reason| assert_eq!(reason, "RegistrationRepaired"))?;
    widgets.remove().await?;
    running.stop().await
}

/// Reads objects in the version that is not stored, one after the other on each of a few connections.
async fn reads(api: Api<DynamicObject>, stop: CancellationToken) -> (usize, Vec<String>) {
    let (mut answered, mut failed) = (0, Vec::new());
    while !stop.is_cancelled() {
        match api.get("a").await {
            Ok(found) if found.data["spec"]["replicas"] == 3 => answered += 1,
            Ok(found) => failed.push(found.data.to_string()),
            Err(error) => failed.push(error.to_string()),
        }
    }
    (answered, failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_conversion_is_lost_while_an_authority_is_rotated_and_a_replica_drains() -> Result<()> {
    let fixture = Fixture::new("convert-turn").await?;
    let widgets = Widgets::new(&fixture);
    widgets.define().await?;
    let replica =
        || -> Result<_> { Ok(manager(&fixture, &widgets)?.drain(Duration::from_secs(1))) };
    let one = Running::start(replica()?).await?;
    widgets.until_registered().await?;
    widgets.create("v1", "a", json!({"size": 3})).await?;
    widgets
        .until_shown("v2", "a", &json!({"replicas": 3}))
        .await?;
    let two = Running::start(replica()?).await?;

    let stop = CancellationToken::new();
    let workers: Vec<_> = (0..4)
        .map(|_| tokio::spawn(reads(widgets.api("v2"), stop.clone())))
        .collect();
    let bundle = async || -> Result<String> {
        let config = widgets.spec().await?["conversion"]["webhook"]["clientConfig"].clone();
        let bundle: ByteString = serde_json::from_value(config["caBundle"].clone())?;
        Ok(String::from_utf8(bundle.0)?)
    };
    let before = bundle().await?;
    let secret = format!("{}-admission-ca", fixture.name());
    let rotate = json!({"metadata": {"annotations": {ROTATE_ANNOTATION: "now"}}});
    let (parameters, rotate) = (PatchParams::default(), Patch::Merge(rotate));
    let secrets = fixture.api::<Secret>();
    secrets.patch(&secret, &parameters, &rotate).await?;
    eventually("the old authority to be left out", LONG, async || {
        let now = bundle().await?;
        Ok((!now.contains(before.trim())).then_some(()))
    })
    .await?;
    one.stop().await.context("the replica that drains")?;

    stop.cancel();
    let (mut answered, mut failed) = (0, Vec::new());
    for worker in workers {
        let (more, wrong) = worker.await?;
        answered += more;
        failed.extend(wrong);
    }
    eprintln!("figure: {answered} conversions, {} lost", failed.len());
    assert!(
        failed.is_empty(),
        "{} lost: {:?}",
        failed.len(),
        failed.first()
    );
    assert!(answered > 0);
    widgets.remove().await?;
    two.stop().await
}
