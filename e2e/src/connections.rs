//! Getting into the pods of a scene, with a grant or with a right of one's own.

use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::scene::Scene;

impl Scene {
    /// Gives somebody a standing right to these verbs on pods and on `resource`, a subresource of
    /// them, as many clusters have it.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn standing(&self, user: &str, resource: &str, verbs: &[&str]) -> Result<()> {
        let name = format!("{user}-{}", resource.replace('/', "-"));
        let rule = json!({ "apiGroups": [""], "resources": ["pods", resource], "verbs": verbs });
        self.allow(&name, user, &[rule]).await
    }

    /// Gives somebody what these rules allow, by a Role and a RoleBinding of this name.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn allow(&self, name: &str, user: &str, rules: &[Value]) -> Result<()> {
        let role: Role =
            serde_json::from_value(json!({ "metadata": { "name": name }, "rules": rules }))?;
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
        }))?;
        let parameters = PostParams::default();
        self.api::<Role>().create(&parameters, &role).await?;
        self.api::<RoleBinding>()
            .create(&parameters, &binding)
            .await?;
        Ok(())
    }

    /// `kubectl exec` in the scene.
    #[must_use]
    pub fn exec(&self, user: &str, arguments: &[&str]) -> Command {
        self.kubectl(user, &[&["exec"], arguments].concat())
    }

    /// kubectl in the scene.
    #[must_use]
    pub fn kubectl(&self, user: &str, arguments: &[&str]) -> Command {
        let mut command = self.cluster.kubectl(user);
        command.args(["--namespace", self.name()]).args(arguments);
        command
    }

    /// Name of the scene's first pod.
    ///
    /// # Errors
    /// When it has none.
    pub fn pod(&self) -> Result<String> {
        let pod = self.pods.first().context("no pod")?;
        pod.metadata.name.clone().context("no name")
    }
}

/// What a command said on standard error, if it failed.
#[must_use]
pub fn refusal(output: &Output) -> Option<String> {
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The text of the API server's refusal.
///
/// # Errors
/// When it did not refuse.
pub fn refused<T>(answer: kube::Result<T>) -> Result<String> {
    match answer {
        Err(kube::Error::Api(status)) => Ok(status.message.clone()),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("it was not refused"),
    }
}
