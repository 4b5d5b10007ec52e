//! A kind of parent, functions behind HTTP, and composites.

use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::Json;
use axum::routing::post;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use oz_api::composite::CompositeController;
use oz_e2e::Options;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::scene;

const HOST: &str = "functions.bench";
const POLICIES: &str = "bench-policies";

pub(super) struct World {
    /// The options with which oz starts.
    pub(super) options: Options,
    clients: Vec<Client>,
}

impl World {
    pub(super) async fn install(cluster: &Cluster) -> Result<Self> {
        oz_e2e::install_composites(cluster)?;
        oz_e2e::apply(cluster, "workshop/src/bench/composites/world.yaml")?;
        oz_e2e::established(cluster)?;
        let functions = functions().await?;
        let options = Options::default()
            .cutting()
            .flag("--leader-elect")
            .set("composites.enabled", true)
            .set("composites.policyNamespaces", format!("[{POLICIES}]"))
            .set(
                "composites.hookAddresses",
                format!("{{\"{HOST}\": \"{functions}\"}}"),
            );
        let clients = scene::administrators(cluster).await?;
        Ok(Self { options, clients })
    }

    pub(super) fn client(&self) -> &Client {
        &self.clients[0]
    }

    /// Replaces the policy by this one.
    pub(super) async fn policy(&self, text: &str) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client().clone(), POLICIES);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "windows"}, "data": {"windows.rego": text},
        });
        let apply = PatchParams::apply("bench").force();
        maps.patch("windows", &apply, &Patch::Apply(map)).await?;
        Ok(())
    }

    /// Creates a composite of which the function is the policy, and waits until it runs.
    pub(super) async fn by_policy(&self, name: &str) -> Result<()> {
        let url = format!("http://opa.{POLICIES}:8181/v0/data/windows");
        self.composite(name, &url).await
    }

    /// Does the same as [`World::by_policy`], with a function behind HTTP.
    pub(super) async fn by_function(&self, name: &str, function: &str) -> Result<()> {
        self.composite(name, &format!("http://{HOST}/{function}"))
            .await
    }

    async fn composite(&self, name: &str, url: &str) -> Result<()> {
        let composites: Api<CompositeController> = Api::all(self.client().clone());
        let object = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "parentResource": {
                    "apiVersion": "bench.example.org/v1", "resource": "fleets",
                    "labelSelector": {"matchLabels": {"composite": name}},
                },
                "childResources": [{
                    "apiVersion": "v1", "resource": "configmaps", "updateStrategy": {"method": "InPlace"},
                }],
                "generateSelector": true,
                "hooks": {"sync": {"webhook": {"url": url, "timeout": "60s"}}},
            },
        }))?;
        composites.create(&PostParams::default(), &object).await?;
        let what = format!("composite {name} to run");
        eventually(&what, CONDITION_TIMEOUT, async || {
            let status = composites.get(name).await?.status.unwrap_or_default();
            let mut running = status
                .conditions
                .iter()
                .filter(|known| known.type_ == "Running");
            Ok(running.any(|known| known.status == "True").then_some(()))
        })
        .await
    }

    pub(super) async fn remove(&self, name: &str) -> Result<()> {
        let composites: Api<CompositeController> = Api::all(self.client().clone());
        composites.delete(name, &Default::default()).await?;
        let what = format!("composite {name} to be gone");
        eventually(&what, CONDITION_TIMEOUT, async || {
            Ok(composites.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// Creates parents of a composite, a batch at a time.
    pub(super) async fn parents(
        &self,
        namespace: &str,
        composite: &str,
        all: &[(String, Value)],
    ) -> Result<()> {
        let objects = all.iter().map(|(name, spec)| {
            serde_json::from_value(json!({
                "apiVersion": "bench.example.org/v1", "kind": "Fleet",
                "metadata": {"name": name, "labels": {"composite": composite}},
                "spec": spec,
            }))
        });
        let objects: Vec<DynamicObject> = objects.collect::<Result<_, _>>()?;
        scene::create_all(&self.clients, &objects, |client| fleets(&client, namespace)).await
    }
}

pub(super) fn fleets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "bench.example.org".to_owned(),
        version: "v1".to_owned(),
        api_version: "bench.example.org/v1".to_owned(),
        kind: "Fleet".to_owned(),
        plural: "fleets".to_owned(),
    };
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Serves two functions, as long as the process lives: `one` names a child after 5 ms, `hang` never responds.
async fn functions() -> Result<std::net::SocketAddr> {
    let one = post(async |Json(request): Json<Value>| {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let name = &request["parent"]["metadata"]["name"];
        let child = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name}, "data": {"value": "one"},
        });
        Json(json!({"children": [child], "status": {"settled": true}}))
    });
    let hang = post(std::future::pending::<()>);
    let router = Router::new().route("/one", one).route("/hang", hang);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async { axum::serve(listener, router).await });
    Ok(address)
}
