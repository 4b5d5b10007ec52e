//! ExecAccessRequests at the edge: the watches and reads for `oz_core::access::exec`.

use std::sync::Arc;

use futures::future::join;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use oz_api::{AccessLock, AccessRequestApproval, ExecAccessRequest, ExecAccessTemplate, Phase};
use oz_core::access::exec::{ExecAccess, Facts};
use oz_core::access::kind::{PodSeen, Question};
use oz_core::connect::pod::PodIdentity;
use oz_core::controller::Key;
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::Store;

use crate::answers::{about, answer, answered};
use crate::continued::continued;
use crate::emergencies::Emergencies;
use crate::kept::{self, By};
use crate::locks;
use crate::role_names::{self, RoleNames};
use crate::session_probes::Probes;
use crate::stamps::Stamps;
use crate::tickets::TicketChecks;
use crate::workload::Workloads;

pub(crate) struct ExecRequests {
    pub(crate) controller: ExecAccess,
    pub(crate) requests: Store<ExecAccessRequest>,
    pub(crate) stamps: Stamps,
    pub(crate) role_names: RoleNames,
    /// The kinds of requests that get Roles with reserved names.
    pub(crate) access_kinds: Vec<String>,
    pub(crate) templates: Store<ExecAccessTemplate>,
    pub(crate) approvals: Store<AccessRequestApproval>,
    pub(crate) locks: Store<AccessLock>,
    pub(crate) emergencies: Emergencies,
    pub(crate) tickets: TicketChecks,
    pub(crate) workloads: Arc<Workloads>,
    /// The current pods by name.
    pub(crate) pods: Store<PodIdentity>,
    pub(crate) probes: Probes,
}

impl ExecRequests {
    /// Returns the pod that now has the name of the request's pod.
    fn seen(&self, request: &ExecAccessRequest) -> Option<PodSeen> {
        let status = request.status.as_ref();
        let active = status.filter(|status| status.phase == Phase::Active)?;
        let name = active.pod_name.clone()?;
        let pod = self.pods.get(request.metadata.namespace.as_deref(), &name);
        (pod.is_some() || self.pods.is_ready()).then(|| PodSeen {
            uid: pod.and_then(|pod| pod.uid().map(ToOwned::to_owned)),
            name,
        })
    }
}

impl Observe<ExecAccess> for ExecRequests {
    fn watches(&self) -> Watches<ExecAccessRequest> {
        Watches::new(&self.requests)
            .child::<Role>()
            .child::<RoleBinding>()
            .beside::<RoleBinding>(&self.access_kinds, role_names::kept_of_others)
            .related(&self.pods, |pod, requests| {
                let (namespace, name) = (pod.namespace(), pod.name_any());
                let concerned = |request: &ExecAccessRequest| {
                    request.metadata.namespace == namespace
                        && request.status.as_ref().is_some_and(|status| {
                            status.phase == Phase::Active
                                && (!status.ready
                                    || status.pod_name.as_deref() == Some(name.as_str()))
                        })
                };
                let (here, name) = (namespace.as_deref(), name.as_str());
                // A request that is not ready waits for a successor with any name.
                let mut found = requests.marked(By::Unready(here).mark(), concerned);
                found.extend(requests.marked(By::Pod(here, name).mark(), concerned));
                found
            })
            .related(&self.approvals, about)
            .signalled(self.tickets.signal())
            .ended_by(
                &self.locks,
                locks::requests(&self.controller.keys, &self.templates, &self.approvals),
            )
            .related(&self.templates, kept::of_template)
    }

    fn taken(&self, _: &str, key: &Key) -> bool {
        self.role_names.is_taken(key)
    }

    fn facts(&self, request: &ExecAccessRequest) -> Facts {
        self.role_names.note::<ExecAccess>(request);
        let namespace = request.namespace();
        let template = self
            .templates
            .get(namespace.as_deref(), &request.spec.template_name);
        Facts {
            approvals: answered::<ExecAccess>(&self.approvals, template.as_deref(), request),
            locks: locks::locks(&self.locks),
            tickets: self.tickets.about::<ExecAccess>(request),
            template,
            continued: continued(&self.controller, &self.requests, request),
            pod: self.seen(request),
            ..Facts::default()
        }
    }

    async fn answer(
        &self,
        cx: &Cx,
        request: &ExecAccessRequest,
        question: Question,
        facts: &mut Facts,
    ) {
        let (Some(namespace), Some(uid)) = (request.namespace(), request.uid()) else {
            return;
        };
        match question {
            Question::Workload(target) => {
                let wanted = request.spec.target_pod.as_deref();
                let read = self.workloads.read(cx, &namespace, &target, wanted);
                facts.workload = Some(read.await);
            }
            Question::Probes(chosen) => {
                let is_current = self.workloads.is_current(cx, &namespace, &chosen.pod);
                let probes = self.probes.probe_pod(cx.client(), &namespace, &chosen.pod);
                match join(is_current, probes).await {
                    (true, probes) => facts.probes = Some(probes),
                    (false, _) => {
                        let read = self.workloads.read_current(cx, &namespace, &chosen.of);
                        facts.workload = Some(read.await);
                    }
                }
            }
            Question::RoleName(bound) => {
                let name = self.role_names.take::<ExecAccess>(request, &bound);
                facts.role_name = Some(name);
            }
            Question::Emergencies(place) => {
                facts.unreviewed = Some(self.emergencies.take(cx.now(), &uid, &place));
            }
            question => {
                let (stamps, requests) = (&self.stamps, &self.requests);
                answer::<ExecAccess>(cx, stamps, requests, request, question, facts).await;
            }
        }
    }
}
