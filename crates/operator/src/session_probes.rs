//! The probe that checks whether a command in a container can be made to end automatically. It is
//! an exec, like the scripts that end sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{Api, Client, ResourceExt};
use oz_api::SessionProbe;
use oz_core::connect::cut;
use parking_lot::Mutex;

use crate::container_exec::{Unrun, run, running};

/// The maximum time by which a probe delays a grant.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for which a container with a failed probe is not probed again.
const AGAIN: Duration = Duration::from_secs(30);
/// The maximum number of known images; there are more only if a user invents them.
const KNOWN: usize = 10_000;

/// The results of probes. Cheap to clone; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Probes {
    /// True if commands are run in containers at all.
    pub(crate) enabled: bool,
    known: Arc<Mutex<HashMap<ContainerImage, ProbeResult>>>,
}

/// The key of a probe: namespace, name of the container, image. The users of one namespace write
/// into the status of their templates, which says nothing about other namespaces.
type ContainerImage = (String, String, String);

#[derive(Clone)]
enum ProbeResult {
    Found(SessionProbe),
    /// The probe failed at this instant.
    Failed(Instant),
}

impl Probes {
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            known: Arc::default(),
        }
    }

    /// Adds the results of an earlier process in a namespace.
    pub(crate) fn learn(&self, namespace: &str, probes: &[SessionProbe]) {
        for probe in probes {
            let key = container_image(namespace, &probe.container, &probe.image_id);
            let mut known = self.known.lock();
            known
                .entry(key)
                .or_insert_with(|| ProbeResult::Found(probe.clone()));
        }
    }

    /// Returns the results for the containers of the pod; those with an unknown image are probed
    /// now.
    pub(crate) async fn probe_pod(
        &self,
        client: &Client,
        namespace: &str,
        pod: &Pod,
    ) -> Vec<SessionProbe> {
        if !self.enabled {
            return Vec::new();
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let name = pod.name_any();
        let found = running(pod).map(|container| self.one(&pods, namespace, &name, container));
        join_all(found).await.into_iter().flatten().collect()
    }

    async fn one(
        &self,
        pods: &Api<Pod>,
        namespace: &str,
        pod: &str,
        container: &ContainerStatus,
    ) -> Option<SessionProbe> {
        let (name, image) = (&container.name, &container.image_id);
        let key = container_image(namespace, name, image);
        let lock = || self.known.lock();
        let known = lock().get(&key).cloned();
        match known {
            Some(ProbeResult::Found(probe)) => return Some(probe),
            Some(ProbeResult::Failed(at)) if at.elapsed() < AGAIN => return None,
            Some(ProbeResult::Failed(_)) | None => {}
        }
        let probe = async || {
            let command = ["/bin/sh", "-c", cut::PROBE].map(str::to_owned).to_vec();
            run(pods, pod, name, command, PROBE_TIMEOUT).await
        };
        let mut answer = probe().await;
        if let Err(Unrun::Unreached(_)) = answer {
            // For the duration of a grant, an unknown result counts as missing.
            answer = probe().await;
        }
        let found = match answer {
            Ok(answer) => ProbeResult::Found(cut::probed(name, image, &answer)),
            Err(Unrun::Unable(_)) => ProbeResult::Found(cut::probed(name, image, "")),
            Err(Unrun::Unreached(why)) => {
                let container = name;
                tracing::info!(pod, container, why, "a container could not be probed");
                ProbeResult::Failed(Instant::now())
            }
        };
        let mut known = lock();
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(key, found.clone());
        match found {
            ProbeResult::Found(probe) => Some(probe),
            ProbeResult::Failed(_) => None,
        }
    }
}

fn container_image(namespace: &str, container: &str, image: &str) -> ContainerImage {
    (namespace.to_owned(), container.to_owned(), image.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn session_probe_result_of_namespace_is_not_used_in_another() {
        let probes = Probes::new(true);
        let claimed = cut::probed("app", "sha256:1", "shell\nplain killafter\n");
        probes.learn("mallorys", std::slice::from_ref(&claimed));
        // No server listens: an unknown result stays unknown.
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(nowhere).unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "db-0" },
            "status": { "containerStatuses": [{
                "name": "app", "image": "app:1", "imageID": "sha256:1", "ready": true,
                "restartCount": 0, "state": { "running": {} },
            }] },
        }))
        .unwrap();
        assert_eq!(probes.probe_pod(&client, "mallorys", &pod).await, [claimed]);
        assert_eq!(probes.probe_pod(&client, "shop", &pod).await, []);
    }
}
