//! The rights that a manager says it needs are enough, and nothing here needs more.

use anyhow::Result;
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

use crate::fixture::{Fixture, LONG, Running};

/// What [`Manager::rbac`](oz_admission::Manager::rbac) says, given to `user`.
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

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_a_manager_says_it_needs_are_enough() -> Result<()> {
    let mut fixture = Fixture::new("rights").await?;
    let cluster = Cluster::shared().await?;
    let user = format!("extension-of-{}", fixture.name());
    cluster.issue_kubeconfig(&user, &[])?;
    let admin = std::mem::replace(&mut fixture.client, cluster.client(&user).await?);
    let (hook, count) = fixture.counting();
    let led = CancellationToken::new();
    let builder = fixture
        .manager()?
        .hook(hook.namespaces(NamespaceScope::Labelled(vec![fixture.name().into()])))
        .task("idle", Idle(led.clone()));
    // From here on only the manager acts as that user.
    fixture.client = admin;
    let manager = builder.build()?;
    grant(&fixture, &user, &manager.rbac()).await?;
    let running = Running::of(manager);
    running.until_ready().await?;
    fixture.until_called(&count).await?;
    tokio::time::timeout(LONG, led.cancelled()).await?;

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
    .await?;
    running.stop().await
}
