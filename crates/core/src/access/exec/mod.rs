//! Exec access: access to a pod that already runs. Only the choice of the pod is specific to it; the rest is the same
//! for every [`Kind`].

mod successor;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use oz_api::conditions::{self, message};
use oz_api::{ExecAccessRequest, ExecAccessTemplate, OnPodReplacement, SessionProbe};
use oz_trail::PodRef;

use super::grant::{Following, Grant};
use super::kind::{self, Case, Chosen, KeepFinished, Kind, Offer, Question, Stop};
use super::request::StoredRequest;
use super::status::Fact;
use super::target::{Workload, is_ready};
use super::{continued, pod_state, sessions};
use crate::controller::{Failure, Live};
use crate::gate::GateAccount;
use crate::lifecycle::seal::Keys;
use crate::validate::Target;

/// The controller of ExecAccessRequests.
#[derive(Clone, Debug)]
pub struct ExecAccess {
    /// The keys that open stamps, and that seal and open grants.
    pub keys: Keys,
    /// The time for which a request is kept after its end.
    pub keep_finished: KeepFinished,
    /// The gate's service account, if there is a gate.
    pub gate: Option<GateAccount>,
}

/// The facts apart from the request and its objects.
pub type Facts = kind::Facts<ExecAccessTemplate, Workload>;

impl Kind for ExecAccess {
    type Request = ExecAccessRequest;
    type Template = ExecAccessTemplate;
    type Target = Target;
    type Workload = Workload;

    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn keep_finished(&self) -> KeepFinished {
        self.keep_finished
    }

    fn gate(&self) -> Option<&GateAccount> {
        self.gate.as_ref()
    }

    fn facts(&self, _: &StoredRequest<'_>, grant: &Grant, _: &[Live]) -> Vec<Fact> {
        let what = match grant.not_ready {
            true => format!("pod {} {}", grant.pod.name, message::POD_NOT_READY),
            false => message::READY.to_owned(),
        };
        let ready = Fact::holds(conditions::ACCESS_RESOURCES_READY, what);
        std::iter::once(ready).chain(sessions::cut(grant)).collect()
    }

    fn offer(&self, case: Case<'_, Self>) -> Result<Offer, Stop> {
        let target = &case.template.spec.controller_target_ref;
        let Some(workload) = case.workload else {
            return Err(Stop::Need(Question::Workload(target.clone())));
        };
        let chosen = workload
            .choose(
                case.request.uid(),
                continued::target_pod(case.request.target_pod, case.continued),
            )
            .map_err(Stop::Wait)?;
        let message = case
            .terms
            .command
            .render(&chosen.metadata)
            .map_err(|error| {
                let message = format!("failed to render spec.accessConfig.accessCommand: {error}");
                Stop::Wait(Failure::invalid(Failure::COMMAND_INVALID, message))
            })?;
        let Some(probes) = case.probes else {
            return Err(Stop::Need(Question::Probes(Box::new(Chosen {
                pod: chosen.clone(),
                of: target.clone(),
            }))));
        };
        let pod = PodRef::stored(&chosen.metadata, case.asked.container.clone())
            .map_err(|error| Stop::Wait(error.into()))?;
        let follows = case.terms.on_pod_replacement == OnPodReplacement::Follow;
        let following = follows.then(|| Following {
            workload: target.clone(),
            uid: workload.uid.clone(),
            command: case.terms.command.source().to_owned(),
        });
        let mut grant = case.grant(pod, message);
        grant.following = following;
        look_into(&mut grant, chosen, probes);
        Ok(Offer {
            grant,
            first: Vec::new(),
        })
    }

    fn successor(
        &self,
        grant: &Grant,
        facts: &Facts,
    ) -> Result<Option<Result<Grant, Failure>>, Question> {
        successor::find(grant, facts)
    }
}

/// Records whether the pod is Ready, its containers, and the way to end commands in them automatically.
fn look_into(grant: &mut Grant, pod: &Pod, probes: &[SessionProbe]) {
    grant.not_ready = !is_ready(pod);
    let terms = &mut grant.sessions;
    (terms.timeouts, terms.shells) = (BTreeMap::new(), Vec::new());
    for status in pod_state::containers(pod) {
        let of_this = |probe: &&SessionProbe| {
            probe.container == status.name && probe.image_id == status.image_id
        };
        match probes.iter().find(of_this) {
            Some(SessionProbe {
                timeout: Some(timeout),
                ..
            }) => {
                terms.timeouts.insert(status.name.clone(), *timeout);
            }
            Some(probe) if probe.shell => terms.shells.push(status.name.clone()),
            _ => {}
        }
    }
    let spec = pod.spec.iter();
    let containers = spec.clone().flat_map(|spec| &spec.containers);
    terms.of_pod = containers.map(|container| container.name.clone()).collect();
    let sidecars = spec.clone().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.filter(|container| container.restart_policy.as_deref() == Some("Always"))
    });
    let ephemeral = spec.flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    let ephemeral = ephemeral.map(|container| container.name.clone());
    terms.beside = sidecars
        .map(|container| container.name.clone())
        .chain(ephemeral)
        .collect();
}
