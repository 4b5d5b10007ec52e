//! The very plan that the operator would make for such a request, were it made now.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Selector};
use kube::{Api, ResourceExt};
use oz_core::access::exec::{self, ExecAccess};
use oz_core::access::kind::Question;
use oz_core::access::pod::{self, PodAccess};
use oz_core::access::stamp::Requester;
use oz_core::access::target::{Workload, through_replica_sets};
use oz_core::api::{
    CrossVersionObjectReference, ExecAccessRequest, ExecAccessTemplate, PodAccessRequest,
    PodAccessTemplate, SessionProbe,
};
use oz_core::build::NameServer;
use oz_core::controller::{Controller, Plan, Verdict};
use oz_core::duration::GoDuration;
use oz_core::encode;
use oz_core::mutate::{Model, RenderCache};
use oz_core::validate::{self, ValidatedRequest, Violation};

use super::made_now::{MadeNow, keys};
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::request::{Ask, RequestKind};

/// As long as the operator keeps what is over, unless told otherwise.
const KEEP: SignedDuration = SignedDuration::from_hours(1);
/// As long as the operator waits for a pod, unless told otherwise.
const READY: SignedDuration = SignedDuration::from_mins(10);
const NAME: &str = "explained";

/// The plan, or why it cannot be shown.
pub(super) enum Planned {
    Plan(Plan),
    /// What is missing to make it.
    Unknown(String),
}

impl Planned {
    fn unknown(why: &Failure) -> Self {
        Self::Unknown(why.message().to_owned())
    }

    fn unanswered() -> Self {
        Self::Unknown("it depends on what only the operator finds out".to_owned())
    }
}

/// A kind of request whose plan can be made here.
pub(super) trait Explained: RequestKind {
    /// The checks of the webhook and the operator.
    fn check_request(request: &Self) -> Result<ValidatedRequest, Vec<Violation>>;
    /// Default and maximum of a template that is valid.
    fn terms(template: &Self::Template) -> Result<(GoDuration, GoDuration), Vec<Violation>>;
    /// Digest of the spec, for the stamp.
    fn digest(&self) -> String;
    /// The plan. What cannot be read is said.
    fn plan(
        self,
        cluster: &Cluster,
        template: Option<Self::Template>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Planned>>;
}

/// The request as it would be, had it been made now by this person.
pub(super) fn would_be<R: Explained>(
    namespace: &str,
    requester: &Requester,
    ask: &Ask,
    now: Timestamp,
) -> Result<R> {
    let mut request = R::asking(ask);
    let made_now = MadeNow {
        requester,
        kind: R::kind(&()).into_owned(),
        namespace: Some(namespace),
        name: NAME,
        spec_digest: request.digest(),
        at: now,
    };
    *request.meta_mut() = made_now.metadata()?;
    Ok(request)
}

impl Explained for ExecAccessRequest {
    fn check_request(request: &Self) -> Result<ValidatedRequest, Vec<Violation>> {
        validate::exec_access_request(request)
    }

    fn terms(template: &ExecAccessTemplate) -> Result<(GoDuration, GoDuration), Vec<Violation>> {
        validate::exec_access_template(template).map(|terms| (terms.default, terms.max))
    }

    fn digest(&self) -> String {
        encode::digest(&self.spec)
    }

    async fn plan(
        self,
        cluster: &Cluster,
        template: Option<ExecAccessTemplate>,
        now: Timestamp,
    ) -> Result<Planned> {
        let controller = ExecAccess {
            keys: keys()?,
            keep_finished: KEEP,
        };
        let mut facts = exec::Facts::alone(template.map(Arc::new));
        loop {
            match controller.decide(now, &self, &facts, &[]) {
                Verdict::Decided(decision) => return Ok(Planned::Plan(decision.plan)),
                Verdict::Need { question, .. } => match question {
                    Question::Workload(target) => match workload(cluster, &target).await {
                        Ok(found) => facts.workload = Some(Ok(found)),
                        Err(failure) => return Ok(Planned::unknown(&failure)),
                    },
                    Question::Probes(_) => {
                        facts.probes = Some(probes(facts.template.as_deref()));
                    }
                    _ => return Ok(Planned::unanswered()),
                },
            }
        }
    }
}

/// What the template's status knows of containers.
fn probes(template: Option<&ExecAccessTemplate>) -> Vec<SessionProbe> {
    let status = template.and_then(|known| known.status.as_ref());
    status.map_or_else(Vec::new, |status| status.session_probes.clone())
}

impl Explained for PodAccessRequest {
    fn check_request(request: &Self) -> Result<ValidatedRequest, Vec<Violation>> {
        validate::pod_access_request(request)
    }

    fn terms(template: &PodAccessTemplate) -> Result<(GoDuration, GoDuration), Vec<Violation>> {
        validate::pod_access_template(template).map(|terms| (terms.default, terms.max))
    }

    fn digest(&self) -> String {
        encode::digest(&self.spec)
    }

    async fn plan(
        self,
        cluster: &Cluster,
        template: Option<PodAccessTemplate>,
        now: Timestamp,
    ) -> Result<Planned> {
        let controller = PodAccess {
            keys: keys()?,
            keep_finished: KEEP,
            ready_timeout: READY,
            rendered: RenderCache::default(),
            name_servers: vec![NameServer::usual()],
            as_author: false,
        };
        let mut facts = pod::Facts::alone(template.map(Arc::new));
        loop {
            match controller.decide(now, &self, &facts, &[]) {
                Verdict::Decided(decision) => return Ok(Planned::Plan(decision.plan)),
                Verdict::Need { question, .. } => match question {
                    Question::Workload(target) => match model(cluster, &target).await {
                        Ok(found) => facts.workload = Some(Ok(found)),
                        Err(failure) => return Ok(Planned::unknown(&failure)),
                    },
                    _ => return Ok(Planned::unanswered()),
                },
            }
        }
    }
}

async fn read(cluster: &Cluster, target: &CrossVersionObjectReference) -> Result<DynamicObject> {
    let version = target.kind.api_version();
    let kind = target.kind.to_string();
    let named = GroupVersionKind::gvk(version.group(), version.version(), &kind);
    let resource = ApiResource::from_gvk_with_plural(&named, target.kind.plural());
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
    cluster.answer(api.get(&target.name)).await
}

/// The workload with its pods, as the operator reads it.
async fn workload(
    cluster: &Cluster,
    target: &CrossVersionObjectReference,
) -> Result<Workload> {
    let kind = target.kind.to_string();
    let found = read(cluster, target).await?;
    let selector = serde_json::from_value::<LabelSelector>(found.data["spec"]["selector"].clone())
        .ok()
        .and_then(|selector| Selector::try_from(selector).ok())
        .filter(|selector| !selector.selects_all())
        .ok_or_else(|| {
            Failure::new(format!("{kind} {} has no selector of its own", target.name))
        })?;
    let selection = ListParams::default().labels(&selector.to_string());
    let pods = cluster
        .answer(cluster.api::<Pod>().list(&selection))
        .await?
        .items;
    let mut replica_sets = Vec::new();
    if through_replica_sets(&kind) {
        let sets = cluster
            .answer(cluster.api::<ReplicaSet>().list(&selection))
            .await?;
        replica_sets = sets.items.into_iter().map(|set| set.metadata).collect();
    }
    Ok(Workload {
        kind,
        name: target.name.clone(),
        uid: found.uid().unwrap_or_default(),
        between: replica_sets,
        pods,
    })
}

/// The pod template of the workload, as the operator reads it.
async fn model(cluster: &Cluster, target: &CrossVersionObjectReference) -> Result<Model> {
    let title = format!("{} {}", target.kind, target.name);
    let found = read(cluster, target).await?;
    Model::of_workload(title.clone(), &found.data["spec"])
        .ok_or_else(|| Failure::new(format!("{title} has no pod template of its own")))
}
