//! The rights that a manager reports are sufficient, and the tests here require no others.

use anyhow::{Context, Result};
use axum::http::Request;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    core::v1::Secret,
    events::v1::Event,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use oz_admission::{CancellationToken, Cx, NamespaceScope, Task, TaskError};
use oz_testkit::{Cluster, eventually};
use serde_json::{Value, json};

use crate::conversion::Widgets;
use crate::fixture::{Fixture, LONG, Running};

/// Grants the roles of [`Manager::rbac`](oz_admission::Manager::rbac) to `user`.
async fn grant(fixture: &Fixture, user: &str, rights: &Value) -> Result<()> {
    let name = fixture.name();
    let role: Role = serde_json::from_value(rights["items"][0].clone())?;
    let cluster_role: ClusterRole = serde_json::from_value(rights["items"][1].clone())?;
    let binding = |kind: &str| {
        json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        })
    };
    let parameters = PostParams::default();
    let binding_here: RoleBinding = serde_json::from_value(binding("Role"))?;
    let binding_everywhere: ClusterRoleBinding = serde_json::from_value(binding("ClusterRole"))?;
    fixture.api().create(&parameters, &role).await?;
    fixture.api().create(&parameters, &binding_here).await?;
    Api::all(fixture.client.clone())
        .create(&parameters, &cluster_role)
        .await?;
    Api::all(fixture.client.clone())
        .create(&parameters, &binding_everywhere)
        .await?;
    Ok(())
}

struct Idle(CancellationToken);

impl Task for Idle {
    async fn run(&self, _: &Cx, stop: CancellationToken) -> Result<(), TaskError> {
        self.0.cancel();
        stop.cancelled().await;
        Ok(())
    }
}

/// Checks that a deleted Secret and a deleted configuration are restored, and that an event reports it.
async fn heals(fixture: &Fixture) -> Result<()> {
    let secrets = fixture.api::<Secret>();
    let name = format!("{}-admission-ca", fixture.name());
    let before = secrets.get(&name).await?;
    secrets.delete(&name, &DeleteParams::default()).await?;
    eventually("the Secret to heal", LONG, async || {
        let now = secrets.get_opt(&name).await?;
        Ok(now.is_some_and(|now| now.data == before.data).then_some(()))
    })
    .await?;
    let configurations = Api::<ValidatingWebhookConfiguration>::all(fixture.client.clone());
    configurations
        .delete(fixture.name(), &DeleteParams::default())
        .await?;
    eventually("the configuration to heal", LONG, async || {
        Ok(configurations.get_opt(fixture.name()).await?)
    })
    .await?;
    let events = Api::<Event>::all(fixture.client.clone());
    eventually("the event", LONG, async || {
        let list = events.list(&ListParams::default()).await?;
        let of = |event: &Event| event.regarding.as_ref().and_then(|it| it.name.clone());
        Ok(list
            .iter()
            .any(|event| of(event).as_deref() == Some(fixture.name()))
            .then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_a_manager_says_it_needs_are_enough() -> Result<()> {
    let mut fixture = Fixture::new("rights").await?;
    let cluster = Cluster::shared().await?;
    let user = format!("extension-of-{}", fixture.name());
    cluster.issue_kubeconfig(&user, &[])?;
    let admin = std::mem::replace(&mut fixture.client, cluster.client(&user).await?);
    let (hook, count) = fixture.counting();
    let conversion = Widgets::new(&fixture).conversion();
    let led = CancellationToken::new();
    let builder = fixture
        .manager()?
        .hook(hook.namespaces(NamespaceScope::Labelled(vec![fixture.name().into()])))
        .conversion(conversion)
        .task("idle", Idle(led.clone()));
    // From here on, only the manager acts as that user.
    fixture.client = admin;
    let manager = builder.build()?;
    grant(&fixture, &user, &manager.rbac()).await?;
    let running = Running::from_manager(manager);
    running.until_ready().await?;
    fixture.until_called(&count).await?;
    tokio::time::timeout(LONG, led.cancelled()).await?;

    let widgets = Widgets::new(&fixture);
    widgets.define().await?;
    widgets.until_registered().await?;
    widgets.remove().await?;

    heals(&fixture).await?;
    running.stop().await
}

/// The rights of the guide, unchanged except for the names, for the ServiceAccount that they name.
#[tokio::test(flavor = "multi_thread")]
async fn the_rights_in_the_guide_are_those_that_are_needed() -> Result<()> {
    const GUIDE: &str = include_str!("../../../../docs/guides/write-an-extension.md");
    let mut fixture = Fixture::new("guide").await?;
    let name = fixture.name().to_owned();
    let (_, rest) = GUIDE
        .split_once("```yaml\n")
        .context("the guide has no YAML")?;
    let (manifests, _) = rest.split_once("```").context("it has no end")?;
    let manifests = manifests
        .replace("no-host-network", &name)
        .replace("namespace: policy", &format!("namespace: {name}"));
    for manifest in manifests.split("---\n") {
        apply(&fixture, manifest).await?;
    }

    let cluster = Cluster::shared().await?;
    let user = format!("system:serviceaccount:{name}:{name}");
    cluster.issue_kubeconfig(&user, &[])?;
    let admin = std::mem::replace(&mut fixture.client, cluster.client(&user).await?);
    let (hook, count) = fixture.counting();
    let manager = fixture.manager()?.hook(hook).build()?;
    fixture.client = admin;
    let needed = manager.rbac();
    let role = serde_json::to_value(fixture.api::<Role>().get(&name).await?)?;
    assert_eq!(role["rules"], needed["items"][0]["rules"]);
    let everywhere = Api::<ClusterRole>::all(fixture.client.clone());
    let everywhere = serde_json::to_value(everywhere.get(&name).await?)?;
    assert_eq!(everywhere["rules"], needed["items"][1]["rules"]);
    let running = Running::from_manager(manager);
    running.until_ready().await?;
    fixture.until_called(&count).await?;
    heals(&fixture).await?;
    running.stop().await
}

/// Applies a manifest as it is in a file: the API server reads YAML.
async fn apply(fixture: &Fixture, manifest: &str) -> Result<()> {
    let kind = manifest
        .lines()
        .find_map(|line| line.strip_prefix("kind: "));
    let kind = kind.context("a manifest without a kind")?;
    let plural = format!("{}s", kind.to_lowercase());
    let name = fixture.name();
    let within = if kind.starts_with("Cluster") {
        String::new()
    } else {
        format!("namespaces/{name}/")
    };
    let request = Request::patch(format!(
        "/apis/rbac.authorization.k8s.io/v1/{within}{plural}/{name}?fieldManager=guide"
    ))
    .header("Content-Type", "application/apply-patch+yaml")
    .body(manifest.as_bytes().to_vec())?;
    fixture.client.request::<Value>(request).await?;
    Ok(())
}
