//! The successor of a replaced pod: another pod of the workload that the grant was decided for. Requester, expiry and
//! operations stay the same.

use k8s_openapi::api::core::v1::Pod;
use oz_api::SessionProbe;
use oz_trail::PodRef;

use super::{Facts, look_into};
use crate::access::grant::{Following, Grant};
use crate::access::kind::{Chosen, Question};
use crate::access_command;
use crate::controller::Failure;

/// Returns the grant in the successor: the pod of the same name for workloads that reuse names, else any pod. `None` if
/// the workload was replaced too.
pub(super) fn find(
    grant: &Grant,
    facts: &Facts,
) -> Result<Option<Result<Grant, Failure>>, Question> {
    let Some(following) = &grant.following else {
        return Ok(None);
    };
    let workload = match &facts.workload {
        Some(Ok(workload)) => workload,
        Some(Err(failure)) => return Ok(Some(Err(failure.clone()))),
        None => return Err(Question::Workload(following.workload.clone())),
    };
    if workload.uid != following.uid {
        return Ok(None);
    }
    let comes_back = workload.kind == "StatefulSet";
    let wanted = comes_back.then_some(grant.pod.name.as_str());
    let pod = match workload.choose(&grant.request.uid, wanted) {
        Ok(pod) => pod,
        Err(failure) => return Ok(Some(Err(failure))),
    };
    match &facts.probes {
        Some(probes) => Ok(Some(in_pod(grant, following, pod, probes))),
        None => Err(Question::Probes(Box::new(Chosen {
            pod: pod.clone(),
            of: following.workload.clone(),
        }))),
    }
}

fn in_pod(
    grant: &Grant,
    following: &Following,
    pod: &Pod,
    probes: &[SessionProbe],
) -> Result<Grant, Failure> {
    let said = access_command::render(&following.command, &pod.metadata).map_err(|error| {
        let message = format!("failed to render the access command: {error}");
        Failure::invalid(Failure::COMMAND_INVALID, message)
    })?;
    let mut moved = grant.clone();
    moved.pod = PodRef::stored(&pod.metadata, grant.pod.container.clone())?;
    moved.access_message = said;
    look_into(&mut moved, pod, probes);
    Ok(moved)
}
