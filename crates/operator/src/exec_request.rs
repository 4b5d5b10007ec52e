//! ExecAccessRequests at the edge: what is watched and read for `oz_core::access::exec`.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use oz_core::access::exec::{ExecAccess, Observed};
use oz_core::access::kind;
use oz_core::api::{ExecAccessRequest, ExecAccessTemplate};
use oz_core::controller::Live;
use oz_engine::{Cx, Observe, Store, Watches};

use crate::leaving::is_leaving;
use crate::stamps::same_stamp;
use crate::workload::Workloads;

pub(crate) struct ExecRequests {
    pub(crate) controller: ExecAccess,
    pub(crate) requests: Store<ExecAccessRequest>,
    pub(crate) templates: Store<ExecAccessTemplate>,
    pub(crate) workloads: Arc<Workloads>,
}

impl Observe<ExecAccess> for ExecRequests {
    fn watches(&self) -> Watches<ExecAccessRequest> {
        Watches::new(&self.requests)
            .child::<Role>()
            .child::<RoleBinding>()
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
            ..Observed::default()
        };
        if self
            .controller
            .wants(cx.now(), request, &observed, live)
            .is_none()
        {
            observed.leaving = self.leaving(cx, request, &observed, live).await;
            return observed;
        }
        observed.same_stamp = same_stamp(&self.requests, request);
        if let Some(target) = self.controller.wants(cx.now(), request, &observed, live) {
            let namespace = namespace.unwrap_or_default();
            observed.workload = Some(self.workloads.read(cx, &namespace, &target).await);
        }
        observed
    }
}

impl ExecRequests {
    async fn leaving(
        &self,
        cx: &Cx,
        request: &ExecAccessRequest,
        observed: &Observed,
        live: &[Live],
    ) -> bool {
        kind::drifted(&self.controller, cx.now(), request, observed, live)
            && is_leaving(cx, request).await
    }
}
