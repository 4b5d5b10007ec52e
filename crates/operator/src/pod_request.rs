//! PodAccessRequests at the edge: the watches and reads for `oz_core::access::pod`.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use oz_api::{AccessLock, AccessRequestApproval, Phase, PodAccessRequest, PodAccessTemplate};
use oz_core::access::kind::{PodMade, Question};
use oz_core::access::pod::{Facts, PodAccess};
use oz_core::access::pod_state::GRACE_SECONDS;
use oz_core::access::request::Request;
use oz_core::controller::{Key, Live};
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::Store;
use parking_lot::{Mutex, MutexGuard};

use crate::answers::{about, answer, answered};
use crate::continued::continued;
use crate::emergencies::Emergencies;
use crate::role_names::{self, RoleNames};
use crate::stamps::Stamps;
use crate::tickets::TicketChecks;
use crate::workload::Workloads;
use crate::{kept, locks};

/// The number of stored pods from which those of deleted requests are removed.
const MOST_MADE: usize = 1_000;

pub(crate) struct PodRequests {
    pub(crate) controller: PodAccess,
    pub(crate) requests: Store<PodAccessRequest>,
    pub(crate) stamps: Stamps,
    pub(crate) role_names: RoleNames,
    /// The kinds of requests that get Roles with reserved names.
    pub(crate) access_kinds: Vec<String>,
    pub(crate) templates: Store<PodAccessTemplate>,
    pub(crate) approvals: Store<AccessRequestApproval>,
    pub(crate) locks: Store<AccessLock>,
    pub(crate) emergencies: Emergencies,
    pub(crate) tickets: TicketChecks,
    pub(crate) workloads: Arc<Workloads>,
    /// The pods that this process created, by the UID of their request, until they are granted.
    pub(crate) made: Mutex<HashMap<String, PodMade>>,
}

impl PodRequests {
    fn made(&self) -> MutexGuard<'_, HashMap<String, PodMade>> {
        self.made.lock()
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
            .beside::<RoleBinding>(&self.access_kinds, role_names::kept_of_others)
            .related(&self.approvals, about)
            .signalled(self.tickets.signal())
            .ended_by(
                &self.locks,
                locks::requests(&self.controller.keys, &self.templates, &self.approvals),
            )
            .related(&self.templates, kept::of_template)
    }

    fn created(&self, owner: &str, child: &Live) {
        let Some(made) = PodMade::from_live(child) else {
            return;
        };
        let mut all = self.made();
        if all.len() >= MOST_MADE {
            all.retain(|uid, _| self.requests.by_uid(uid).is_some());
        }
        all.insert(owner.to_owned(), made);
    }

    fn taken(&self, _: &str, key: &Key) -> bool {
        self.role_names.is_taken(key)
    }

    fn facts(&self, request: &PodAccessRequest) -> Facts {
        self.role_names.note::<PodAccess>(request);
        let namespace = request.namespace();
        let uid = request.metadata.uid.as_ref();
        let template = self
            .templates
            .get(namespace.as_deref(), &request.spec.template_name);
        let mut facts = Facts {
            approvals: answered::<PodAccess>(&self.approvals, template.as_deref(), request),
            locks: locks::locks(&self.locks),
            tickets: self.tickets.about::<PodAccess>(request),
            template,
            continued: continued(&self.controller, &self.requests, request),
            ..Facts::default()
        };
        if Request::from(request).phase() == Phase::Pending {
            facts.made = uid.and_then(|uid| self.made().get(uid).cloned());
        } else if let Some(uid) = uid {
            self.made().remove(uid);
        }
        facts
    }

    async fn answer(
        &self,
        cx: &Cx,
        request: &PodAccessRequest,
        question: Question,
        facts: &mut Facts,
    ) {
        let (Some(namespace), Some(uid)) = (request.namespace(), request.uid()) else {
            return;
        };
        match question {
            Question::Workload(target) => {
                facts.workload = Some(self.workloads.model(cx, &namespace, &target).await);
            }
            Question::RoleName(bound) => {
                let name = self.role_names.take::<PodAccess>(request, &bound);
                facts.role_name = Some(name);
            }
            Question::Emergencies(place) => {
                facts.unreviewed = Some(self.emergencies.take(cx.now(), &uid, &place));
            }
            question => {
                let (stamps, requests) = (&self.stamps, &self.requests);
                answer::<PodAccess>(cx, stamps, requests, request, question, facts).await;
            }
        }
    }
}
