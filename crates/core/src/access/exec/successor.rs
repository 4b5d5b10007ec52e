//! Where a grant goes whose pod was replaced: to another pod of the very workload that it was decided
//! for. Who, until when and what stays as it was.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::look_into;
use crate::access::grant::Grant;
use crate::access::target::Workload;
use crate::access_command;
use crate::audit::PodRef;
use crate::controller::Failure;

/// The pod that takes over: the one of the same name where names come back, else any.
pub(super) fn choose<'a>(grant: &Grant, workload: &'a Workload) -> Result<&'a Pod, Failure> {
    let comes_back = workload.kind == "StatefulSet";
    let wanted = comes_back.then_some(grant.pod.name.as_str());
    workload.choose(&grant.request.uid, wanted)
}

/// The grant in that pod; `None` if its workload was replaced too.
pub(super) fn of(
    grant: &Grant,
    workload: Option<&Result<Workload, Failure>>,
) -> Result<Option<Grant>, Failure> {
    let Some(following) = &grant.following else {
        return Ok(None);
    };
    let workload = match workload {
        Some(read) => read.as_ref().map_err(Clone::clone)?,
        None => {
            let what = &following.workload;
            let message = format!("{} {} was not looked up yet", what.kind, what.name);
            return Err(Failure::transient("NotObserved", message));
        }
    };
    if workload.uid != following.uid {
        return Ok(None);
    }
    let pod = choose(grant, workload)?;
    let said = access_command::render(&following.command, &pod.metadata).map_err(|error| {
        let message = format!("failed to render the access command: {error}");
        Failure::invalid(Failure::COMMAND_INVALID, message)
    })?;
    let mut moved = grant.clone();
    moved.pod = PodRef {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        container: grant.pod.container.clone(),
    };
    moved.access_message = said;
    look_into(&mut moved, pod, &workload.probes);
    Ok(Some(moved))
}
