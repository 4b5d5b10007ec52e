//! A pod without oz, in which the program of an agent runs with the variables of an agent and the real key.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, PostParams};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::KEY;
use super::running::{lines, workspace};
use crate::upstream::Upstream;
use crate::{Scene, apply_as};

/// The variables that name certificates, as in a run.
const TRUST: [&str; 5] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
];

/// A pod without oz.
#[allow(missing_debug_implementations, reason = "a client has none")]
pub struct PlainPod<'a> {
    scene: &'a Scene,
    name: String,
    pod: Pod,
}

impl<'a> PlainPod<'a> {
    /// Creates the pod. It trusts the authority of the upstream.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn start(
        scene: &'a Scene,
        upstream: &Upstream,
        name: &str,
        image: &str,
        command: &[&str],
        prompt: &str,
    ) -> Result<Self> {
        let files = json!({
            "metadata": {"name": name},
            "data": {"ca.crt": upstream.authority, "prompt.txt": prompt},
        });
        apply_as(&scene.api::<ConfigMap>(), files).await?;
        let trust = TRUST.map(|name| json!({"name": name, "value": "/files/ca.crt"}));
        let mut env = trust.to_vec();
        env.extend([
            json!({"name": "ANTHROPIC_API_KEY", "value": KEY}),
            json!({"name": "PADDOCK_PROMPT_PATH", "value": "/files/prompt.txt"}),
            json!({"name": "PADDOCK_WORKSPACE", "value": "/workspace"}),
        ]);
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "agent", "image": image, "command": command, "env": env,
                    "securityContext": {"runAsUser": 65532, "runAsGroup": 65532},
                    "volumeMounts": [
                        {"name": "workspace", "mountPath": "/workspace"},
                        {"name": "files", "mountPath": "/files"},
                    ],
                }],
                "securityContext": {"fsGroup": 65532},
                "volumes": [
                    {"name": "workspace", "emptyDir": {}},
                    {"name": "files", "configMap": {"name": name}},
                ],
            },
        }))?;
        Ok(Self {
            scene,
            name: name.to_owned(),
            pod: scene
                .api::<Pod>()
                .create(&PostParams::default(), &pod)
                .await?,
        })
    }

    /// Returns the directory of the workspace on this machine.
    ///
    /// # Errors
    /// When the pod has no UID.
    pub fn workspace(&self) -> Result<PathBuf> {
        workspace(self.scene.cluster, &self.pod)
    }

    /// Waits until the container runs.
    ///
    /// # Errors
    /// When it does not start, with its status.
    pub async fn started(&self) -> Result<()> {
        eventually("the pod to run", CONDITION_TIMEOUT, async || {
            let status = self.scene.api::<Pod>().get(&self.name).await?.status;
            let phase = status.as_ref().and_then(|status| status.phase.as_deref());
            match phase {
                Some("Running") => Ok(Some(())),
                _ => bail!("{}", json!(status)),
            }
        })
        .await
    }

    /// Waits for a line of the report, and returns all lines so far.
    ///
    /// # Errors
    /// When the line does not come, or the pod ends before.
    pub async fn report(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
        let workspace = self.workspace()?;
        eventually(what, CONDITION_TIMEOUT * 2, async || {
            let lines = lines(&workspace);
            if lines.iter().any(&wanted) {
                return Ok(Some(Ok(lines)));
            }
            let status = self.scene.api::<Pod>().get(&self.name).await?.status;
            let phase = status.as_ref().and_then(|status| status.phase.as_deref());
            let report = anyhow!("the report is {lines:?}, the pod {}", json!(status));
            match phase {
                Some("Failed" | "Succeeded") => Ok(Some(Err(report))),
                _ => Err(report),
            }
        })
        .await?
    }

    /// Deletes the pod, and waits until it is gone.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn delete(&self) -> Result<()> {
        let pods = self.scene.api::<Pod>();
        pods.delete(&self.name, &DeleteParams::default()).await?;
        self.scene.gone::<Pod>(&self.name, CONDITION_TIMEOUT).await
    }
}
