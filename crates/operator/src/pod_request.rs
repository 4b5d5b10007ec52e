//! PodAccessRequests at the edge: what is watched and read for `oz_core::access::pod`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::ListParams;
use oz_core::access::pod::{Observed, PodAccess};
use oz_core::access::pod_state::GRACE_SECONDS;
use oz_core::access::request::Request;
use oz_core::api::{Phase, PodAccessRequest, PodAccessTemplate};
use oz_core::controller::Live;
use oz_engine::{Cx, Observe, Store, Watches};

use crate::continued::continued;
use crate::leaving::is_leaving;
use crate::left::{left, pod_and_bindings};
use crate::stamps::Stamps;
use crate::workload::Workloads;

/// How many NetworkPolicies of a namespace are looked at, to tell which of them open what a template
/// closes.
const POLICIES: u32 = 500;

pub(crate) struct PodRequests {
    pub(crate) controller: PodAccess,
    pub(crate) requests: Store<PodAccessRequest>,
    pub(crate) stamps: Stamps,
    pub(crate) templates: Store<PodAccessTemplate>,
    pub(crate) workloads: Arc<Workloads>,
}

impl Observe<PodAccess> for PodRequests {
    fn watches(&self) -> Watches<PodAccessRequest> {
        let grace = u32::try_from(GRACE_SECONDS).unwrap_or_default();
        Watches::new(&self.requests)
            .child::<NetworkPolicy>()
            .child_with_grace::<Pod>(grace)
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

    async fn observe(&self, cx: &Cx, request: &PodAccessRequest, live: &[Live]) -> Observed {
        let namespace = request.namespace().unwrap_or_default();
        let mut observed = Observed {
            template: self
                .templates
                .get(Some(&namespace), &request.spec.template_name),
            continued: continued(&self.controller, &self.requests, request),
            ..Observed::default()
        };
        if self.controller.wants_policies(request, &observed) {
            let first = ListParams::default().limit(POLICIES);
            observed.policies = Some(cx.list(Some(&namespace), &first).await);
        }
        // Looks at every request, so only while something may still be decided.
        if Request::from(request).phase() == Phase::Pending {
            observed.same_stamp = self.stamps.same(cx.now(), &self.requests, request);
        }
        if let Some(target) = self.controller.wants(cx.now(), request, &observed, live) {
            observed.workload = Some(self.workloads.model(cx, &namespace, &target).await);
        }
        observed.leaving = is_leaving(cx, &self.controller, request, &observed, live).await;
        observed.left = left(
            cx,
            &self.controller,
            request,
            &observed,
            live,
            pod_and_bindings(),
        )
        .await;
        observed
    }
}
