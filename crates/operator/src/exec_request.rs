//! ExecAccessRequests at the edge: what is watched and read for `oz_core::access::exec`.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use oz_core::access::exec::{ExecAccess, Observed};
use oz_core::access::kind::PodSeen;
use oz_core::api::{ExecAccessRequest, ExecAccessTemplate, Phase};
use oz_core::connect::pod::PodIdentity;
use oz_core::controller::Live;
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::Store;

use crate::continued::continued;
use crate::leaving::is_leaving;
use crate::left::{bindings, left};
use crate::session_probes::Probes;
use crate::stamps::Stamps;
use crate::workload::Workloads;

pub(crate) struct ExecRequests {
    pub(crate) controller: ExecAccess,
    pub(crate) requests: Store<ExecAccessRequest>,
    pub(crate) stamps: Stamps,
    pub(crate) templates: Store<ExecAccessTemplate>,
    pub(crate) workloads: Arc<Workloads>,
    /// Which pod has a name now.
    pub(crate) pods: Store<PodIdentity>,
    pub(crate) probes: Probes,
}

impl ExecRequests {
    /// What has the name of the pod that the request was granted.
    fn seen(&self, request: &ExecAccessRequest) -> Option<PodSeen> {
        let status = request.status.as_ref();
        let active = status.filter(|status| status.phase == Phase::Active)?;
        let name = active.pod_name.clone()?;
        let pod = self.pods.get(request.metadata.namespace.as_deref(), &name);
        (pod.is_some() || self.pods.is_ready()).then(|| PodSeen {
            uid: pod.map(|pod| pod.uid().to_owned()),
            name,
        })
    }
}

impl Observe<ExecAccess> for ExecRequests {
    fn watches(&self) -> Watches<ExecAccessRequest> {
        Watches::new(&self.requests)
            .child::<Role>()
            .child::<RoleBinding>()
            .related(&self.pods, |pod, requests| {
                let (namespace, name) = (pod.namespace(), pod.name_any());
                requests.select(|request| {
                    request.metadata.namespace == namespace
                        && request.status.as_ref().is_some_and(|status| {
                            // One that is not ready waits for a successor, of whatever name.
                            status.phase == Phase::Active
                                && (!status.ready
                                    || status.pod_name.as_deref() == Some(name.as_str()))
                        })
                })
            })
            .related(&self.templates, |template, requests| {
                let name = template.name_any();
                requests.select(|request| {
                    request.spec.template_name == name
                        && request.metadata.namespace == template.metadata.namespace
                })
            })
    }

    async fn observe(&self, cx: &Cx, request: &ExecAccessRequest, live: &[Live]) -> Observed {
        let namespace = request.namespace();
        let template = self
            .templates
            .get(namespace.as_deref(), &request.spec.template_name);
        let mut observed = Observed {
            template,
            continued: continued(&self.controller, &self.requests, request),
            pod: self.seen(request),
            ..Observed::default()
        };
        if self
            .controller
            .wants(cx.now(), request, &observed, live)
            .is_none()
        {
            observed.leaving = is_leaving(cx, &self.controller, request, &observed, live).await;
            observed.left = left(cx, &self.controller, request, &observed, live, bindings()).await;
            return observed;
        }
        observed.same_stamp = self.stamps.same(cx.now(), &self.requests, request);
        if let Some(target) = self.controller.wants(cx.now(), request, &observed, live) {
            let namespace = namespace.unwrap_or_default();
            let mut workload = self.workloads.read(cx, &namespace, &target).await;
            if let Ok(workload) = &mut workload
                && let Ok(pod) =
                    self.controller
                        .choose(request, live, observed.continued.as_ref(), workload)
            {
                workload.probes = self.probes.of(cx.client(), &namespace, pod).await;
            }
            observed.workload = Some(workload);
        }
        observed
    }
}
