//! PodAccessRequests at the edge: what is watched and read for `oz_core::access::pod`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::ListParams;
use oz_core::access::kind::PodMade;
use oz_core::access::pod::{Observed, PodAccess};
use oz_core::access::pod_state::GRACE_SECONDS;
use oz_core::access::request::Request;
use oz_core::api::{Phase, PodAccessRequest, PodAccessTemplate};
use oz_core::controller::Live;
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::Store;

use crate::as_author::try_as_author;
use crate::continued::continued;
use crate::leaving::is_leaving;
use crate::left::{left, pod_and_bindings};
use crate::stamps::Stamps;
use crate::workload::Workloads;

/// How many NetworkPolicies of a namespace are looked at, to tell which of them open what a template
/// closes.
const POLICIES: u32 = 500;
/// How many pods are remembered before those of requests that are gone are forgotten.
const MOST_MADE: usize = 1_000;

pub(crate) struct PodRequests {
    pub(crate) controller: PodAccess,
    pub(crate) requests: Store<PodAccessRequest>,
    pub(crate) stamps: Stamps,
    pub(crate) templates: Store<PodAccessTemplate>,
    pub(crate) workloads: Arc<Workloads>,
    /// The pods that this process made, by the UID of their request, until they are granted.
    pub(crate) made: Mutex<HashMap<String, PodMade>>,
}

impl PodRequests {
    fn made(&self) -> MutexGuard<'_, HashMap<String, PodMade>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

    fn created(&self, owner: &str, child: &Live) {
        let Some(made) = PodMade::of(child) else {
            return;
        };
        let mut all = self.made();
        if all.len() >= MOST_MADE {
            all.retain(|uid, _| self.requests.by_uid(uid).is_some());
        }
        all.insert(owner.to_owned(), made);
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
        let uid = request.uid().unwrap_or_default();
        // Looks at every request, so only while something may still be decided.
        if Request::from(request).phase() == Phase::Pending {
            observed.same_stamp = self.stamps.same(cx.now(), &self.requests, request);
            observed.made = self.made().get(&uid).cloned();
        } else {
            self.made().remove(&uid);
        }
        if let Some(target) = self.controller.wants(cx.now(), request, &observed, live) {
            observed.workload = Some(self.workloads.model(cx, &namespace, &target).await);
        }
        if let Some(trial) = self
            .controller
            .wants_trial(cx.now(), request, &observed, live)
        {
            observed.tried = Some(match trial {
                Ok(trial) => try_as_author(cx, &trial).await,
                Err(failure) => Err(failure),
            });
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
