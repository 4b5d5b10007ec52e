//! The decision about a dedicated pod: its content, and the objects that are created before the Role.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use oz_api::{Egress, Phase};
use oz_trail::PodRef;
use serde_json::Value;

use super::PodAccess;
use super::isolation::Isolation;
use crate::access::grant::{Grant, OwnPod};
use crate::access::kind::{Case, Offer, Otherwise, Question, State};
use crate::build;
use crate::confine::network::is_shut;
use crate::controller::{Child, Failure};
use crate::kinds::{AccessTemplate as _, Kind as _};
use crate::mutate::{MutateError, Rendered};

pub(super) fn offer(access: &PodAccess, case: Case<'_, PodAccess>) -> Result<Offer, Otherwise> {
    if let (Some(target), None) = (case.template.workload(), case.workload) {
        return Err(Otherwise::Need(Question::Workload(target.clone())));
    }
    let digest = case.template.spec_digest();
    let rendered = access
        .rendered
        .render(&digest, &case.terms.target, case.workload);
    let rendered = rendered.as_ref().as_ref().map_err(impossible)?;
    has_container(rendered, case.asked.container.as_deref())?;
    let name = case.request.object_name();
    let metadata = metadata(&case, name.clone(), rendered);
    let command = &case.terms.command;
    let render = |metadata: &ObjectMeta| {
        command.render(metadata).map_err(|error| {
            let message = format!("failed to render spec.accessConfig.accessCommand: {error}");
            State::Waiting(Failure::invalid(Failure::COMMAND_INVALID, message))
        })
    };
    let message = render(&metadata)?;
    let waits = render(&as_created(&metadata))? != message;
    let command = waits.then(|| command.source().to_owned());
    let pod = PodRef {
        name,
        // Known once it exists.
        uid: String::new(),
        container: case.asked.container.clone(),
    };
    let network = case.terms.target.network;
    let policies = case.policies;
    if policies.is_none() && network.is_some_and(is_shut) {
        return Err(Otherwise::Need(Question::Policies));
    }
    let mut grant = case.grant(pod, message);
    grant.own_pod = Some(OwnPod {
        digest: rendered.digest.clone(),
        content: Some(build::content(&Value::Object(rendered.spec.clone()))),
        created: None,
        command,
        network,
        name_servers: network
            .filter(|network| network.egress == Egress::Dns)
            .map(|_| access.name_servers.clone()),
        isolation: None,
        notes: rendered.notes.clone(),
    });
    let isolation = network
        .filter(|network| is_shut(*network))
        .zip(policies)
        .map(|(network, policies)| {
            let labels = build::pod(&grant, rendered, String::new())
                .object
                .metadata
                .labels;
            let labels = labels.into_iter().flatten().collect();
            Isolation::compute(network, &grant.object_name(), &labels, policies)
        });
    if let Some(own) = &mut grant.own_pod {
        own.isolation = isolation;
    }
    let first = first(access, &grant, rendered)?;
    Ok(Offer { grant, first })
}

fn first(access: &PodAccess, grant: &Grant, rendered: &Rendered) -> Result<Vec<Child>, State> {
    let sealed = grant.seal(&access.keys);
    let sealed = sealed.map_err(|error| State::Waiting(error.into_failure("grant")))?;
    let policy = build::network_policy(grant).as_ref().map(Child::new);
    Ok(policy
        .into_iter()
        .chain([build::pod(grant, rendered, sealed)])
        .collect())
}

/// Returns the state for a pod that cannot be rendered. Users can repair workload and template, so the request waits;
/// but a pod that is too large is denied. A patch that fails would fail again: it is tried again after a change of the
/// template, or of its status about the workload.
fn impossible(error: &MutateError) -> State {
    match error {
        MutateError::TooLarge(_) => State::Refused(
            Phase::Denied,
            Failure::invalid("LimitExceeded", error.to_string()),
        ),
        MutateError::Patch { .. } | MutateError::Shape(_) => {
            State::Waiting(Failure::invalid("PodInvalid", error.to_string()))
        }
        MutateError::NoContainer(_) | MutateError::Empty | MutateError::NoModel => {
            State::Waiting(Failure::transient("PodInvalid", error.to_string()))
        }
    }
}

fn has_container(rendered: &Rendered, wanted: Option<&str>) -> Result<(), State> {
    match wanted {
        Some(wanted) if !rendered.containers().any(|name| name == wanted) => {
            let names: Vec<&str> = rendered.containers().collect();
            let message = format!(
                "the pod has no container {wanted}; name one of: {}",
                names.join(", ")
            );
            Err(State::Refused(
                Phase::Failed,
                Failure::invalid("ContainerNotFound", message),
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the metadata of the pod with placeholders for the values that the API server assigns.
fn as_created(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        uid: Some("uid".to_owned()),
        resource_version: Some("1".to_owned()),
        generation: Some(1),
        creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
        ..metadata.clone()
    }
}

/// Returns the metadata that is known before the pod exists, for the access command.
fn metadata(case: &Case<'_, PodAccess>, name: String, rendered: &Rendered) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: case.request.metadata.namespace.clone(),
        labels: Some(rendered.labels.clone()),
        annotations: Some(rendered.annotations.clone()),
        ..ObjectMeta::default()
    }
}
