//! Pod access: access to a dedicated pod. Specific to it: oz creates the pod, so the decision precedes the pod and the
//! pod carries it; the pod may never become ready; and its end must be observed.

mod isolation;
mod offer;
#[cfg(test)]
mod tests;
mod watch;

use jiff::{SignedDuration, Timestamp};
use oz_api::{Phase, PodAccessRequest, PodAccessTemplate, labels};

use super::author;
use super::grant::Grant;
use super::kind::{self, Case, KeepFinished, Kind, Offer, Otherwise, PodMade, Trial};
use super::objects::{self, Objects};
use super::request::StoredRequest;
use super::status::Fact;
use crate::access_command;
use crate::build;
use crate::confine::NameServer;
use crate::controller::{Failure, Live, Plan, Step};
use crate::gate::GateAccount;
use crate::kinds::Kind as _;
use crate::lifecycle::End;
use crate::lifecycle::drift::Drift;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::after;
use crate::mutate::{Model, RenderCache};
use crate::validate::AccessPod;

pub use isolation::Isolation;

/// The controller of PodAccessRequests.
#[derive(Clone, Debug)]
pub struct PodAccess {
    /// The keys that open stamps, and that seal and open grants.
    pub keys: Keys,
    /// The time for which a request is kept after its end.
    pub keep_finished: KeepFinished,
    /// The gate's service account, if there is a gate.
    pub gate: Option<GateAccount>,
    /// The timeout for a pod to become ready.
    pub ready_timeout: SignedDuration,
    /// The pods of templates, each rendered once.
    pub rendered: RenderCache,
    /// The name servers of a pod that may send queries to name servers only.
    pub name_servers: Vec<NameServer>,
    /// A pod is created only if its template's author could create it with their own rights.
    pub as_author: bool,
}

/// The facts apart from the request and its objects.
pub type Facts = kind::Facts<PodAccessTemplate, Model>;

impl PodAccess {
    /// Returns the deadline for a pod that was not ready yet.
    fn ready_by(&self, grant: &Grant) -> Timestamp {
        after(grant.granted_at, self.ready_timeout)
    }
}

impl Kind for PodAccess {
    type Request = PodAccessRequest;
    type Template = PodAccessTemplate;
    type Target = AccessPod;
    type Workload = Model;

    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn keep_finished(&self) -> KeepFinished {
        self.keep_finished
    }

    fn gate(&self) -> Option<&GateAccount> {
        self.gate.as_ref()
    }

    fn offer(&self, case: Case<'_, Self>) -> Result<Offer, Otherwise> {
        offer::offer(self, case)
    }

    /// Returns the pod that is about to be created, to be tried as its template's author, if the configuration requires
    /// it. The author may be unknown.
    fn trial(&self, offer: &Offer, template: &PodAccessTemplate) -> Option<Result<Trial, Failure>> {
        let mut made = offer.first.iter().filter(|_| self.as_author);
        let mut pod = made.find(|it| it.resource.kind == "Pod")?.clone();
        if let Some(annotations) = &mut pod.object.metadata.annotations {
            // Admission must not see the decision in the trial.
            annotations.remove(labels::GRANT);
        }
        let name = &offer.grant.template;
        let author = author::read(&template.metadata, &template.spec_digest());
        Some(author.ok_or_else(|| {
            let message = format!(
                "template {name} has no recorded author, so the creation of the pod cannot be \
                 tried as the author: change its spec, or delete and create it"
            );
            Failure::transient("AuthorUnknown", message)
        })
        .map(|author| Trial {
            pod,
            template: name.clone(),
            author,
        }))
    }

    /// Returns the decision on the Role, once the Role exists; until then the decision on the pod, to which the UID and
    /// the content that the API server assigned now belong.
    fn decision(&self, request: &StoredRequest<'_>, live: &[Live]) -> Option<Grant> {
        let objects = Objects::from_live(request, live);
        if let Some(role) = &objects.role {
            return objects::decision(&self.keys, request, role);
        }
        if request.phase() != Phase::Pending || objects.binding.is_some() {
            return None;
        }
        let pod = objects.pod?;
        let mut grant = Grant::open(&self.keys, &pod.metadata, request.uid())?;
        grant.pod.uid = pod.metadata.uid.clone()?;
        let content = live.iter().find(|live| watch::is(live, &pod));
        if let Some(own) = &mut grant.own_pod {
            own.created = content.map(|live| build::changeable(&live.object.data["spec"]));
            // The command was rendered without the pod before, so that it is known to work.
            let command = own.command.take();
            let said =
                command.and_then(|source| access_command::render(&source, &pod.metadata).ok());
            if let Some(said) = said {
                grant.access_message = said;
            }
        }
        Some(grant)
    }

    /// Detects a pod of another author: a user who may create pods can create one with the name and marks of oz, but
    /// not with its seal.
    fn blocked(&self, request: &StoredRequest<'_>, live: &[Live]) -> Option<Failure> {
        let objects = Objects::from_live(request, live);
        if request.phase() != Phase::Pending || objects.role.is_some() || objects.binding.is_some()
        {
            return None;
        }
        objects.pod?;
        let name = request.object_name();
        Some(Failure::conflict(format!(
            "Pod {name} exists already and has no decision of oz for this request; oz does not \
             change it. Delete it, or create the request under another name"
        )))
    }

    /// Detects an exchanged pod. Until the Role exists, the decision is valid for any pod that carries it: when the
    /// Role is created, it must be the pod that oz created. After a restart the process does not know its UID, and
    /// compares the content only.
    fn exchanged(
        &self,
        request: &StoredRequest<'_>,
        grant: &Grant,
        live: &[Live],
        made: Option<&PodMade>,
    ) -> Option<Drift> {
        let objects = Objects::from_live(request, live);
        let pod = objects
            .pod
            .filter(|_| objects.role.is_none() && objects.binding.is_none())?;
        let found = live.iter().find(|live| watch::is(live, &pod))?;
        let content = &grant.own_pod.as_ref()?.content;
        let is_it = PodMade::from_live(found).is_some_and(|now| match (made, content) {
            (Some(made), _) => *made == now,
            (None, Some(content)) => now.runs(content),
            // The grant is of a release that did not store the digest.
            (None, None) => true,
        });
        (!is_it).then(|| Drift::Exchanged(format!("Pod {}", request.object_name())))
    }

    fn early_end(
        &self,
        now: Timestamp,
        request: &StoredRequest<'_>,
        grant: &Grant,
        live: &[Live],
    ) -> Option<End> {
        let objects = Objects::from_live(request, live);
        let drift = objects.drift(request, grant);
        drift
            .or_else(|| watch::drift(&objects, grant, live))
            .map(End::drift)
            .or_else(|| watch::never_ready(self, now, request, &objects, grant))
    }

    fn upkeep(&self, request: &StoredRequest<'_>, grant: &Grant, live: &[Live]) -> Plan {
        let pod = Objects::from_live(request, live).pod;
        let lowered = pod
            .as_ref()
            .and_then(|pod| build::lowered_deadline(grant, pod));
        let plan = Plan::default()
            .then(lowered.map(Step::Apply))
            .wake_at(grant.window.until);
        if watch::was_ready(request, pod.as_ref()) {
            plan
        } else {
            plan.wake_at(self.ready_by(grant))
        }
    }

    fn created(&self, grant: &Grant) -> String {
        let (role, name) = (grant.role_name(), grant.object_name());
        format!("Success. Pod {name}, Role {role}, RoleBinding {name} created")
    }

    fn facts(&self, request: &StoredRequest<'_>, grant: &Grant, live: &[Live]) -> Vec<Fact> {
        watch::facts(request, grant, live)
    }
}
