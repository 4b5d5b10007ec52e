//! Pod access: a pod of one's own. What is its own: the pod is made here, so the decision comes
//! before it and is carried by it; it may never get ready; and it must be seen to have ended.

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
use super::request::Request;
use super::status::Fact;
use crate::access_command;
use crate::build::{self, NameServer};
use crate::controller::{Failure, Live, Plan, Step};
use crate::gate::GateAccount;
use crate::kinds::Kind as _;
use crate::lifecycle::End;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::after;
use crate::mutate::{Model, RenderCache};
use crate::validate::AccessPod;

pub use isolation::{Isolation, openers};

/// The controller of PodAccessRequests.
#[derive(Clone, Debug)]
pub struct PodAccess {
    /// Opens stamps, seals and opens grants.
    pub keys: Keys,
    /// How long a request is kept after it is over.
    pub keep_finished: KeepFinished,
    /// The gate's service account, if there is a gate.
    pub gate: Option<GateAccount>,
    /// How long a pod may take to get ready.
    pub ready_timeout: SignedDuration,
    /// The pods of templates, each rendered once.
    pub rendered: RenderCache,
    /// The name servers that a pod may ask that may ask nothing else.
    pub name_servers: Vec<NameServer>,
    /// Whether a pod is made only if its template's author could make it themselves.
    pub as_author: bool,
}

/// What is known besides the request and its objects.
pub type Facts = kind::Facts<PodAccessTemplate, Model>;

impl PodAccess {
    /// When a pod that was not ready yet is given up.
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

    /// The pod that is about to be made, to be tried as its template's author, where that is asked for. Who
    /// the author is may not be known.
    fn trial(&self, offer: &Offer, template: &PodAccessTemplate) -> Option<Result<Trial, Failure>> {
        let mut made = offer.first.iter().filter(|_| self.as_author);
        let mut pod = made.find(|it| it.resource.kind == "Pod")?.clone();
        if let Some(annotations) = &mut pod.object.metadata.annotations {
            // The decision is not for the eyes of those who are asked about it.
            annotations.remove(labels::GRANT);
        }
        let name = &offer.grant.template;
        let author = author::of(&template.metadata, &template.spec_digest());
        Some(author.ok_or_else(|| {
            let message = format!(
                "nobody is noted as the author of template {name}, so the pod cannot be tried as \
                 they would be admitted: change its spec, or delete and create it"
            );
            Failure::transient("AuthorUnknown", message)
        })
        .map(|author| Trial {
            pod,
            template: name.clone(),
            author,
        }))
    }

    /// On the Role, once there is one; until then on the pod, whose UID and content as the API
    /// server made them now belong to the decision.
    fn decision(&self, request: &Request<'_>, live: &[Live]) -> Option<Grant> {
        let objects = Objects::of(request, live);
        if let Some(role) = &objects.role {
            return objects::decision(&self.keys, request, role);
        }
        if request.phase() != Phase::Pending || objects.binding.is_some() {
            return None;
        }
        let pod = objects.pod?;
        let mut grant = Grant::open(&self.keys, &pod.metadata, request.uid())?;
        grant.pod.uid = pod.metadata.uid.clone().unwrap_or_default();
        let content = live.iter().find(|live| watch::is(live, &pod));
        if let Some(own) = &mut grant.own_pod {
            own.created = content.map(|live| build::changeable(&live.object.data["spec"]));
            // It was rendered without the pod before, so that it is known to work.
            let command = own.command.take();
            let said =
                command.and_then(|source| access_command::render(&source, &pod.metadata).ok());
            if let Some(said) = said {
                grant.access_message = said;
            }
        }
        Some(grant)
    }

    /// Whoever may create pods can make one of our name and with our marks, but not our seal.
    fn blocked(&self, request: &Request<'_>, live: &[Live]) -> Option<Failure> {
        let objects = Objects::of(request, live);
        if request.phase() != Phase::Pending || objects.role.is_some() || objects.binding.is_some()
        {
            return None;
        }
        let name = objects.pod?.metadata.name.unwrap_or_default();
        Some(Failure::conflict(format!(
            "Pod {name} exists already and carries no decision of oz for this request; it is left \
             alone. Delete it, or ask again under another name"
        )))
    }

    /// Until there is a Role, the decision is good for whatever pod carries it: by then it must be the
    /// very one that was made. After a restart nobody knows its UID, and what it runs has to do.
    fn exchanged(
        &self,
        request: &Request<'_>,
        grant: &Grant,
        live: &[Live],
        made: Option<&PodMade>,
    ) -> Option<String> {
        let objects = Objects::of(request, live);
        let pod = objects
            .pod
            .filter(|_| objects.role.is_none() && objects.binding.is_none())?;
        let now = PodMade::of(live.iter().find(|live| watch::is(live, &pod))?)?;
        let name = pod.metadata.name.unwrap_or_default();
        let is_it = match (made, &grant.own_pod.as_ref()?.content) {
            (Some(made), _) => *made == now,
            (None, Some(content)) => now.runs(content),
            // Made by a release that did not keep it.
            (None, None) => true,
        };
        (!is_it).then(|| format!("Pod {name} was exchanged or changed before its Role was made"))
    }

    fn early_end(
        &self,
        now: Timestamp,
        request: &Request<'_>,
        grant: &Grant,
        live: &[Live],
    ) -> Option<End> {
        let objects = Objects::of(request, live);
        let drift = objects.drift(request, grant);
        drift
            .or_else(|| watch::drift(&objects, grant, live))
            .map(End::drift)
            .or_else(|| watch::never_ready(self, now, request, &objects, grant))
    }

    fn upkeep(&self, request: &Request<'_>, grant: &Grant, live: &[Live]) -> Plan {
        let pod = Objects::of(request, live).pod;
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

    fn facts(&self, request: &Request<'_>, grant: &Grant, live: &[Live]) -> Vec<Fact> {
        watch::facts(request, grant, live)
    }
}
