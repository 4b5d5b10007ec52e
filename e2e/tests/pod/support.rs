//! Requests for pods as a user would create them, and their results.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use oz_api::{Phase, PodAccessRequest, PodAccessTemplate, RequestStatus};
use oz_e2e::{PodRequests, Scene, pod_request};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::Value;

/// Creates a template for the scene's workload, for the group `devs`, with `more` fields.
pub(crate) async fn template(scene: &Scene, name: &str, more: Value) -> Result<PodAccessTemplate> {
    scene.pod_template(name, &more).await
}

/// The requests of one user in a scene.
pub(crate) struct Requests {
    pub(crate) api: Api<PodAccessRequest>,
    requests: PodRequests,
}

impl Requests {
    pub(crate) async fn new(scene: &Scene, user: &str) -> Result<Self> {
        let requests = scene.pod_requests(user).await?;
        Ok(Self {
            api: requests.api().clone(),
            requests,
        })
    }

    pub(crate) async fn create(
        &self,
        name: &str,
        template: &str,
        duration: &str,
    ) -> kube::Result<PodAccessRequest> {
        let request = pod_request(name, template, duration);
        self.requests.create(&request).await
    }

    /// Creates a request and waits until it is ready.
    pub(crate) async fn granted(
        &self,
        name: &str,
        template: &str,
        duration: &str,
    ) -> Result<PodAccessRequest> {
        let request = pod_request(name, template, duration);
        Ok(self.requests.granted(&request).await?.request)
    }

    pub(crate) async fn ready(&self, name: &str) -> Result<PodAccessRequest> {
        Ok(self.requests.ready(name).await?.request)
    }

    pub(crate) async fn phase(&self, name: &str, phase: Phase) -> Result<RequestStatus> {
        self.requests.phase(name, phase).await
    }

    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&RequestStatus) -> bool,
    ) -> Result<PodAccessRequest> {
        self.requests.until(name, what, wanted).await
    }
}

pub(crate) fn status(request: &PodAccessRequest) -> RequestStatus {
    request.status.clone().unwrap_or_default()
}

pub(crate) fn pod_name(request: &PodAccessRequest) -> String {
    status(request).pod_name.unwrap_or_default()
}

/// Waits until the pod is gone.
pub(crate) async fn pod_gone(scene: &Scene, name: &str) -> Result<()> {
    eventually(
        &format!("pod {name} to go"),
        CONDITION_TIMEOUT,
        async || {
            let pod = scene.api::<Pod>().get_opt(name).await?;
            Ok(pod.is_none().then_some(()))
        },
    )
    .await
}

/// Waits until neither Role nor RoleBinding of a request is left.
pub(crate) async fn grant_gone(scene: &Scene, request: &PodAccessRequest) -> Result<()> {
    let uid = request.uid().unwrap_or_default();
    let name = oz_core::access::grant::object_name(&request.name_any(), &uid);
    eventually(
        &format!("the grant {name} to go"),
        CONDITION_TIMEOUT,
        async || {
            let (role, binding) = scene.grant(&name).await?;
            Ok((role.is_none() && binding.is_none()).then_some(()))
        },
    )
    .await
}

/// Checks by a real exec: through the API server, its authorization and a node.
pub(crate) fn can_exec(scene: &Scene, user: &str, pod: &str) -> Result<bool> {
    let output = scene
        .cluster
        .kubectl(user)
        .args(["exec", "-n", scene.name(), pod, "--", "echo", "inside"])
        .output()?;
    Ok(output.status.success() && output.stdout == b"inside\n")
}
