//! Requests for access, as users create them, and their results.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use oz_api::{
    AccessConfig, CrossVersionObjectReference, ExecAccessRequest, ExecAccessTemplate,
    ExecAccessTemplateSpec, Phase, PodAccessRequest, PodAccessTemplate, PodAccessTemplateSpec,
    RequestStatus, TargetKind, names,
};
use oz_core::kinds::Terms;
use oz_testkit::eventually;
use serde_json::{Value, json};

/// The time that a grant may take before a test fails; far above its usual duration.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns a template for `kind` `target` that grants access to the group `devs`.
#[must_use]
pub fn exec_template(name: &str, kind: TargetKind, target: &str) -> ExecAccessTemplate {
    ExecAccessTemplate::new(
        name,
        ExecAccessTemplateSpec {
            access_config: AccessConfig {
                allowed_groups: vec!["devs".to_owned()],
                ..AccessConfig::default()
            },
            controller_target_ref: CrossVersionObjectReference {
                api_version: kind.api_version(),
                kind,
                name: target.to_owned(),
            },
        },
    )
}

/// Returns a request by `template` for `duration`.
#[must_use]
pub fn exec_request(name: &str, template: &str, duration: &str) -> ExecAccessRequest {
    ExecAccessRequest::by(name, template, duration)
}

/// Returns a template for pods like those of the Deployment `target`, for the group `devs`, with `more`
/// fields of the spec.
///
/// # Errors
/// When the fields are not a valid spec.
pub fn pod_template(name: &str, target: &str, more: &Value) -> Result<PodAccessTemplate> {
    let mut spec = json!({
        "accessConfig": {"allowedGroups": ["devs"]},
        "controllerTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let spec: PodAccessTemplateSpec = serde_json::from_value(spec)?;
    Ok(PodAccessTemplate::new(name, spec))
}

/// Returns a request for a pod by `template` for `duration`.
#[must_use]
pub fn pod_request(name: &str, template: &str, duration: &str) -> PodAccessRequest {
    PodAccessRequest::by(name, template, duration)
}

/// A kind of request.
pub trait AccessRequest: oz_core::kinds::AccessRequest {
    /// Returns a request by `template` for `duration`.
    #[must_use]
    fn by(name: &str, template: &str, duration: &str) -> Self {
        let mut request = Self::asking(&Terms {
            template,
            duration: Some(duration),
            ..Terms::default()
        });
        request.meta_mut().name = Some(name.to_owned());
        request
    }
}

impl<R: oz_core::kinds::AccessRequest> AccessRequest for R {}

/// A granted request.
#[derive(Clone, Debug)]
pub struct GrantedRequest<K = ExecAccessRequest> {
    /// The current request.
    pub request: K,
}

impl<K: AccessRequest> GrantedRequest<K> {
    /// Returns the status of the request.
    #[must_use]
    pub fn status(&self) -> RequestStatus {
        self.request.status().cloned().unwrap_or_default()
    }

    /// Returns the name of its pod.
    #[must_use]
    pub fn pod(&self) -> String {
        self.status().pod_name.unwrap_or_default()
    }

    /// Returns the name of its Role from its status; until the status contains it, the name that the Role has
    /// if it gets none with a number.
    #[must_use]
    pub fn role_name(&self) -> String {
        let told = self.status().role_name;
        told.unwrap_or_else(|| names::own_grant_role(&self.object_name()))
    }

    /// Returns the name of its RoleBinding and its pod.
    #[must_use]
    pub fn object_name(&self) -> String {
        oz_core::access::grant::object_name(
            &self.request.name_any(),
            &self.request.uid().unwrap_or_default(),
        )
    }
}

/// The requests of one kind and one user in one namespace.
#[derive(Clone)]
pub struct Requests<K> {
    api: Api<K>,
}

/// The requests for exec.
pub type ExecRequests = Requests<ExecAccessRequest>;
/// The requests for pods.
pub type PodRequests = Requests<PodAccessRequest>;

impl<K: AccessRequest> Requests<K> {
    /// Returns the requests that `client`'s user creates in `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
        }
    }

    /// Returns the API through which the requests are created.
    #[must_use]
    pub fn api(&self) -> &Api<K> {
        &self.api
    }

    /// Creates a request.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn create(&self, request: &K) -> kube::Result<K> {
        self.api.create(&PostParams::default(), request).await
    }

    /// Creates a request and waits until it is ready. A short request that expires before it was seen ready,
    /// as on an overloaded machine, is created again for twice as long.
    ///
    /// # Errors
    /// When it is denied or does not become ready.
    pub async fn granted(&self, request: &K) -> Result<GrantedRequest<K>> {
        let mut request = request.clone();
        loop {
            let created = self.create(&request).await;
            let name = created.context("failed to create the request")?.name_any();
            let ready = self.ready(&name).await;
            let (Err(late), Some(longer)) = (&ready, twice_as_long(&request)?) else {
                return ready;
            };
            if !late.is::<ExpiredBeforeReady>() {
                return ready;
            }
            self.api.delete(&name, &DeleteParams::default()).await?;
            eventually(&format!("{name} to go"), REQUEST_TIMEOUT, async || {
                Ok(self.api.get_opt(&name).await?.is_none().then_some(()))
            })
            .await?;
            request = longer;
        }
    }

    /// Waits until a request is ready.
    ///
    /// # Errors
    /// When the request ends in another phase or takes too long.
    pub async fn ready(&self, name: &str) -> Result<GrantedRequest<K>> {
        let request = self
            .until(name, "to be ready", |status| {
                status.ready || status.phase.is_terminal()
            })
            .await?;
        let status = request.status().cloned().unwrap_or_default();
        if status.ready {
            return Ok(GrantedRequest { request });
        }
        let said = format!("{name} is {}: {}", status.phase, conditions_line(&status));
        match status.phase {
            Phase::Expired => Err(anyhow::Error::new(ExpiredBeforeReady).context(said)),
            _ => bail!(said),
        }
    }

    /// Waits until a request is in this phase.
    ///
    /// # Errors
    /// When the request takes too long.
    pub async fn phase(&self, name: &str, phase: Phase) -> Result<RequestStatus> {
        let request = self
            .until(name, &format!("to be {phase}"), |status| {
                status.phase == phase
            })
            .await?;
        Ok(request.status().cloned().unwrap_or_default())
    }

    /// Waits until the status of a request satisfies `wanted`.
    ///
    /// # Errors
    /// When the request takes too long; the message contains the last status.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&RequestStatus) -> bool,
    ) -> Result<K> {
        let mut last = None;
        let found = eventually(&format!("{name} {what}"), REQUEST_TIMEOUT, async || {
            let request = self.api.get(name).await?;
            let status = request.status().cloned().unwrap_or_default();
            let done = wanted(&status);
            last = Some(status);
            Ok(done.then_some(request))
        })
        .await;
        found.with_context(|| {
            last.map_or_else(
                || "it has no status".to_owned(),
                |status| format!("{}: {}", status.phase, conditions_line(&status)),
            )
        })
    }
}

/// The error of a request that expired before a test saw it ready.
#[derive(Debug)]
struct ExpiredBeforeReady;

impl std::error::Error for ExpiredBeforeReady {}

impl std::fmt::Display for ExpiredBeforeReady {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("it expired before it was ready")
    }
}

/// Returns the request for twice as many seconds; `None` if its duration is not in seconds, or long enough
/// already.
fn twice_as_long<K: AccessRequest>(request: &K) -> Result<Option<K>> {
    const LONG_ENOUGH: u64 = 120;
    let mut request = serde_json::to_value(request)?;
    let duration = &mut request["spec"]["duration"];
    let seconds = duration.as_str().and_then(|text| text.strip_suffix('s'));
    let seconds: Option<u64> = seconds.and_then(|text| text.parse().ok());
    let Some(seconds) = seconds.filter(|seconds| *seconds < LONG_ENOUGH) else {
        return Ok(None);
    };
    *duration = format!("{}s", 2 * seconds).into();
    Ok(Some(serde_json::from_value(request)?))
}

/// Checks whether a status reports usable access.
#[must_use]
pub fn active(status: &RequestStatus) -> bool {
    status.ready && status.phase == Phase::Active
}

/// Returns the conditions in one line, for messages.
#[must_use]
pub fn conditions_line(status: &RequestStatus) -> String {
    status
        .conditions
        .iter()
        .map(|one| {
            format!(
                "{}={} ({}: {})",
                one.type_, one.status, one.reason, one.message
            )
        })
        .collect::<Vec<_>>()
        .join("; ")
}
