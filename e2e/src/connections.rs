//! Connections to the pods of a scene, with a grant or with a standing permission.

use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use crate::scene::Scene;

impl Scene {
    /// Gives a user a standing permission for these verbs on pods and on `resource`, a subresource of pods,
    /// as in many clusters.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn standing(&self, user: &str, resource: &str, verbs: &[&str]) -> Result<()> {
        let name = format!("{user}-{}", resource.replace('/', "-"));
        let rule = json!({ "apiGroups": [""], "resources": ["pods", resource], "verbs": verbs });
        self.allow(&name, user, &[rule]).await
    }

    /// Gives a user the permissions of these rules, by a Role and a RoleBinding of this name.
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
        self.wait_for_rules(user, rules).await
    }

    /// Waits until the API server, which watches RBAC objects separately, applies these rules.
    ///
    /// # Errors
    /// When the API server does not apply them in time, or does not respond.
    pub async fn wait_for_rules(&self, user: &str, rules: &[Value]) -> Result<()> {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.cluster.client(user).await?);
        for rule in rules {
            let of = |field: &str| {
                let words = rule[field].as_array().into_iter().flatten();
                let words = words.filter_map(Value::as_str).map(ToOwned::to_owned);
                words.collect::<Vec<_>>()
            };
            let (groups, resources, verbs) = (of("apiGroups"), of("resources"), of("verbs"));
            // The API server applies the permissions of a rule together.
            let (Some(group), Some(resource), Some(verb)) =
                (groups.first(), resources.first(), verbs.first())
            else {
                continue;
            };
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource)),
                None => (resource.as_str(), None),
            };
            let review: SelfSubjectAccessReview = serde_json::from_value(json!({ "spec": {
                "resourceAttributes": {
                    "namespace": self.name(), "group": group, "resource": resource,
                    "subresource": subresource, "verb": verb, "name": of("resourceNames").first(),
                },
            }}))?;
            let what = format!("{user} to be known to have {rule}");
            eventually(&what, CONDITION_TIMEOUT, async || {
                let answer = reviews.create(&PostParams::default(), &review).await?;
                let allowed = answer.status.is_some_and(|status| status.allowed);
                Ok(allowed.then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Returns `kubectl exec` in the scene.
    #[must_use]
    pub fn exec(&self, user: &str, arguments: &[&str]) -> Command {
        self.kubectl(user, &[&["exec"], arguments].concat())
    }

    /// Returns kubectl in the scene.
    #[must_use]
    pub fn kubectl(&self, user: &str, arguments: &[&str]) -> Command {
        let mut command = self.cluster.kubectl(user);
        command.args(["--namespace", self.name()]).args(arguments);
        command
    }

    /// Returns the name of the scene's first pod.
    ///
    /// # Errors
    /// When the scene has no pod.
    pub fn pod(&self) -> Result<String> {
        let pod = self.pods.first().context("no pod")?;
        pod.metadata.name.clone().context("no name")
    }
}

/// Returns the standard error of a command, if it failed.
#[must_use]
pub fn refusal(output: &Output) -> Option<String> {
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the text of the API server's refusal.
///
/// # Errors
/// When the API server did not refuse.
pub fn refused<T>(answer: kube::Result<T>) -> Result<String> {
    match answer {
        Err(kube::Error::Api(status)) => Ok(status.message.clone()),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("it was not refused"),
    }
}
