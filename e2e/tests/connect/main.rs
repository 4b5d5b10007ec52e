//! The moment of connecting, on a real API server: who gets into which pod, in namespaces that
//! enforce and in those that observe, with oz running and with all of it dead. One cluster for all
//! tests, and one test at a time: each has the operator and the webhook to itself.

mod enforce;

use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use oz_core::labels;
use oz_e2e::Scene;
use oz_testkit::Cluster;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());

/// The cluster, for as long as the guard is held.
async fn alone() -> Result<(MutexGuard<'static, ()>, &'static Cluster)> {
    let turn = TURN.lock().await;
    Ok((turn, Cluster::shared().await?))
}

/// Makes the scene's namespace one in which only grants let anybody in.
async fn enforce(scene: &Scene) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(scene.admin.clone());
    let label = json!({ "metadata": { "labels": { labels::ENFORCE: "true" } } });
    namespaces
        .patch(scene.name(), &PatchParams::default(), &Patch::Merge(label))
        .await?;
    Ok(())
}

/// Gives somebody a standing right to these verbs, as many clusters have it.
async fn standing(scene: &Scene, user: &str, resource: &str, verbs: &[&str]) -> Result<()> {
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    let name = format!("{user}-{}", resource.replace('/', "-"));
    let role: Role = serde_json::from_value(json!({
        "metadata": { "name": name },
        "rules": [{ "apiGroups": [""], "resources": ["pods", resource], "verbs": verbs }],
    }))?;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    }))?;
    let parameters = PostParams::default();
    scene.api::<Role>().create(&parameters, &role).await?;
    scene
        .api::<RoleBinding>()
        .create(&parameters, &binding)
        .await?;
    Ok(())
}

/// `kubectl exec` in the scene.
fn exec(scene: &Scene, user: &str, arguments: &[&str]) -> Command {
    let mut command = scene.cluster.kubectl(user);
    command.args(["exec", "-n", scene.name()]).args(arguments);
    command
}

/// What a command said on standard error, if it failed.
fn refusal(output: &Output) -> Option<String> {
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Name of the scene's first pod.
fn pod(scene: &Scene) -> Result<String> {
    let pod = scene.pods.first().context("no pod")?;
    pod.metadata.name.clone().context("no name")
}
