//! An explanation of a request for access: the rules, and the plan that the operator's own controller creates for such
//! a request, if it were created now.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::ListParams;
use oz_api::{
    AccessConfig, ExecAccessRequest, Phase, PodAccessRequest, RequestStatus, Requester, Sessions,
    labels,
};
use oz_core::access::continued::Continued;
use oz_core::access::decide::{self, Denial, Rule};
use oz_core::access::exec::ExecAccess;
use oz_core::access::kind::{FactsOf, Kind, MAX_POLICIES, Question};
use oz_core::access::lock::{Access, Locks};
use oz_core::access::pod::PodAccess;
use oz_core::access::policy::{self, Judgement};
use oz_core::access::request::Request;
use oz_core::access::seal::Keys;
use oz_core::access::window::Window;
use oz_core::access::{emergency, workload};
use oz_core::controller::{Controller as _, Failure as CoreFailure, Plan, Verdict};
use oz_core::kinds::{AccessRequest, AccessTemplate as _};
use oz_core::settings::Settings;
use oz_core::validate::Violation;

use super::extra::{self, Known};
use super::operator::{Configured, Source};
use super::policies::{self, Judged};
use super::unsaved::{Unsaved, keys};
use super::{UNREADABLE, unreadable};
use crate::cluster::Cluster;
use crate::failure::Result;
use crate::locks;
use crate::request::{Ask, requester};

const NAME: &str = "explained";

/// The explanation of a request.
pub struct Explanation {
    /// The kind of the request.
    pub kind: String,
    /// The namespace of the request.
    pub namespace: String,
    /// The name; `None` if the request does not exist.
    pub name: Option<String>,
    /// The requester.
    pub requester: Requester,
    /// The extra attributes of the requester that access policies can read.
    pub extra: Known,
    /// The content of the request.
    pub ask: Ask,
    /// The status, if the request exists.
    pub status: Option<RequestStatus>,
    /// True if the template exists.
    pub template_exists: bool,
    /// The rules of the template, and whether they hold.
    pub rules: Vec<Rule>,
    /// The judgement of the access policies, and the approvals that are required.
    pub policies: Judged,
    /// The decision about the same request as an emergency, if it does not declare one.
    pub emergency: Option<Result<String, Denial>>,
    /// The violations in the request.
    pub request_violations: Vec<Violation>,
    /// The violations in the template.
    pub template_violations: Vec<Violation>,
    /// The window, if it is known.
    pub window: Option<Window>,
    /// The plan of the operator.
    pub plan: Planned,
    /// The source of the operator's configuration.
    pub configuration: Source,
}

/// The plan, or the reason why it cannot be created here.
pub enum Planned {
    /// The plan.
    Plan(Plan),
    /// The plan cannot be created here.
    Unknown(Gap),
}

/// The reason why the operator's plan cannot be created here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    /// The plan depends on facts that only the operator can look up.
    #[error("only the operator can decide this")]
    OperatorOnly,
    /// The operator serves other namespaces.
    #[error("access.namespaces of the configuration does not have this namespace")]
    OtherNamespaces,
    /// The operator creates no pods.
    #[error("access.pods of the configuration is false, and the operator creates no pods")]
    NoPods,
    /// The template requires the gate, and the user could not read whether the operator has one.
    #[error(
        "the template requires the gate, and the operator's configuration says whether there is one: {0}"
    )]
    Gate(String),
    /// The user could not read an object.
    #[error(transparent)]
    Unreadable(CoreFailure),
}

impl Explanation {
    /// Checks whether access is granted, or would be granted.
    pub fn is_yes(&self) -> bool {
        if let Some(status) = &self.status
            && status.phase != Phase::Pending
        {
            return status.phase.is_granted();
        }
        self.template_exists
            && self.rules.iter().all(|rule| rule.verdict.is_ok())
            && self.policies.permits(self.ask.asked()).is_ok()
            && self.request_violations.is_empty()
            && self.template_violations.is_empty()
    }
}

/// A kind of request that can be decided here.
pub trait Explained: AccessRequest {
    /// The controller of the kind.
    type Access: Kind<Request = Self, Template = <Self as AccessRequest>::Template>;

    /// Creates the controller from the operator's configuration.
    ///
    /// # Errors
    /// The operator would do nothing.
    fn access(settings: &Settings, keys: Keys) -> Result<Self::Access, Gap>;

    /// Adds the facts that the operator would look up to decide about the request.
    ///
    /// # Errors
    /// The facts cannot be looked up.
    fn answer(
        cluster: &Cluster,
        settings: &Settings,
        question: Question,
        facts: &mut FactsOf<Self::Access>,
    ) -> impl Future<Output = Result<(), Gap>>;
}

impl Explained for ExecAccessRequest {
    type Access = ExecAccess;

    fn access(settings: &Settings, keys: Keys) -> Result<ExecAccess, Gap> {
        Ok(settings.exec_access(keys))
    }

    async fn answer(
        cluster: &Cluster,
        settings: &Settings,
        question: Question,
        facts: &mut FactsOf<ExecAccess>,
    ) -> Result<(), Gap> {
        match question {
            Question::Workload(target) => {
                let read = async {
                    let identity = workload::identify(cluster, &target).await?;
                    workload::with_pods(cluster, &target, identity).await
                };
                facts.workload = Some(readable(read.await)?);
            }
            Question::Probes(_) => {
                // The operator runs a script in the pod; its results so far are in the status.
                let template = facts
                    .template
                    .as_deref()
                    .filter(|_| settings.terminate_sessions);
                let status = template.and_then(|template| template.status.as_ref());
                let probes = status.into_iter().flat_map(|status| &status.session_probes);
                facts.probes = Some(probes.cloned().collect());
            }
            _ => return Err(Gap::OperatorOnly),
        }
        Ok(())
    }
}

impl Explained for PodAccessRequest {
    type Access = PodAccess;

    fn access(settings: &Settings, keys: Keys) -> Result<PodAccess, Gap> {
        if !settings.pod_access {
            return Err(Gap::NoPods);
        }
        Ok(PodAccess {
            // Only the operator can try the pod as its template's author.
            as_author: false,
            ..settings.pod_access(keys)
        })
    }

    async fn answer(
        cluster: &Cluster,
        _: &Settings,
        question: Question,
        facts: &mut FactsOf<PodAccess>,
    ) -> Result<(), Gap> {
        match question {
            Question::Workload(target) => {
                facts.workload = Some(readable(workload::model(cluster, &target).await)?);
            }
            Question::Policies => {
                let first = ListParams::default().limit(MAX_POLICIES);
                let api = cluster.api::<NetworkPolicy>();
                let listed = cluster.answer(api.list(&first)).await;
                facts.policies = Some(listed.map(|list| list.items).map_err(unreadable));
            }
            _ => return Err(Gap::OperatorOnly),
        }
        Ok(())
    }
}

/// Separates results from gaps: a missing object is a result; an object that the user may not read is not.
fn readable<T>(read: Result<T, CoreFailure>) -> Result<Result<T, CoreFailure>, Gap> {
    match read {
        Err(failure) if failure.reason == UNREADABLE => Err(Gap::Unreadable(failure)),
        read => Ok(read),
    }
}

/// Explains a request: an existing one, or the one that `requester` would create.
pub async fn explain<R: Explained>(
    cluster: &Cluster,
    configured: &Configured,
    (requester, extra): (Requester, Known),
    ask: Ask,
    request: Option<&R>,
) -> Result<Explanation> {
    let templates = cluster.api::<<R as AccessRequest>::Template>();
    let template = cluster.find(&templates, &ask.template).await?;
    let now = Timestamp::now();
    let asked = ask.asked();
    let created = request
        .and_then(|request| request.meta().creation_timestamp.as_ref())
        .map_or(now, |time| time.0);
    let mut rules = Vec::new();
    let mut template_violations = Vec::new();
    let (mut window, mut in_emergency) = (None, None);
    let locks = locks::seen(cluster).await;
    let plain = unsaved::<R>(&cluster.namespace, &requester, &ask, None, now)?;
    let policies = match request {
        Some(request) => policies::sealed(request),
        None => {
            let by = (&requester, extra.as_ref());
            policies::now(cluster, by, &plain, template.as_ref(), now).await?
        }
    };
    let checked = plain.check();
    if let Some(template) = &template {
        let config = template.config();
        rules = decide::rules(&requester, &ask.template, config, asked).collect();
        rules.extend(locked(&locks, &plain.view(), &requester, config, now));
        rules.extend(extra::denied(&extra));
        if !ask.emergency && config.emergency.is_some() {
            in_emergency = Some(emergency::may(&requester, &ask.template, config));
        }
        match template.check() {
            Ok(terms) => {
                let asked = checked.as_ref().ok().and_then(|asked| asked.duration);
                let longest = emergency::longest(config, ask.emergency, terms.max);
                let max = policy::longest(policies.judgement.as_ref(), longest);
                window = Some(Window::new(created, asked, terms.default, max));
            }
            Err(violations) => template_violations = violations,
        }
    }
    // An existing request was judged by its template as of its creation.
    let judgement = policies.judgement.clone().map(|judgement| Judgement {
        template: template.as_ref().map(policy::seen),
        ..judgement
    });
    let unsaved = unsaved::<R>(&cluster.namespace, &requester, &ask, judgement, now)?;
    Ok(Explanation {
        policies,
        kind: R::title().to_owned(),
        namespace: cluster.namespace.clone(),
        name: request.map(ResourceExt::name_any),
        template_exists: template.is_some(),
        plan: plan(cluster, configured, &unsaved, (template, locks), now).await?,
        requester,
        extra,
        status: request.and_then(|request| request.status().cloned()),
        ask,
        rules,
        emergency: in_emergency,
        request_violations: checked.err().into_iter().flatten().collect(),
        template_violations,
        window,
        configuration: configured.source.clone(),
    })
}

/// Returns the failed rule if a lock that the user may see blocks access.
fn locked(
    locks: &Locks,
    request: &Request<'_>,
    requester: &Requester,
    config: &AccessConfig,
    now: Timestamp,
) -> Option<Rule> {
    let namespace = request.metadata.namespace.as_deref();
    let access = Access::asked(request, namespace, requester, Some(config));
    let lock = locks.against(&access, now)?;
    Some(Rule {
        name: "locks",
        verdict: Err(lock.denial()),
    })
}

/// Returns the request as if this user had created it now.
fn unsaved<R: Explained>(
    namespace: &str,
    requester: &Requester,
    ask: &Ask,
    judgement: Option<Judgement>,
    now: Timestamp,
) -> Result<R> {
    let mut request: R = ask.request();
    let unsaved = Unsaved {
        requester,
        kind: R::title().to_owned(),
        namespace: Some(namespace),
        name: NAME,
        spec_digest: request.spec_digest(),
        at: now,
        judgement,
    };
    *request.meta_mut() = unsaved.metadata()?;
    Ok(request)
}

/// Returns the operator's plan for the request. It names the facts that the operator would see and this client cannot.
async fn plan<R: Explained>(
    cluster: &Cluster,
    configured: &Configured,
    request: &R,
    (template, locks): (Option<<R as AccessRequest>::Template>, Locks),
    now: Timestamp,
) -> Result<Planned> {
    let settings = &configured.settings;
    // The defaults, which stand in for what the user may not read, have no gate.
    if let Source::Defaults(why) = &configured.source
        && let Some(template) = &template
        && template.config().sessions == Sessions::Gate
    {
        return Ok(Planned::Unknown(Gap::Gate(why.clone())));
    }
    if !settings.serves(&cluster.namespace) {
        return Ok(Planned::Unknown(Gap::OtherNamespaces));
    }
    let access = match R::access(settings, keys()) {
        Ok(access) => access,
        Err(why) => return Ok(Planned::Unknown(why)),
    };
    let mut facts = FactsOf::<R::Access> {
        continued: continued::<R>(cluster, request).await?,
        policies: None,
        locks,
        ..FactsOf::<R::Access>::alone(template.map(Arc::new))
    };
    loop {
        match access.decide(now, request, &facts, &[]) {
            Verdict::Decided(decision) => return Ok(Planned::Plan(decision.plan)),
            Verdict::Need { question, .. } => {
                if let Err(why) = R::answer(cluster, settings, question, &mut facts).await {
                    return Ok(Planned::Unknown(why));
                }
            }
        }
    }
}

/// Returns the known facts about the request that this one continues. Its stamp is sealed again: only the operator can
/// verify that the webhook wrote it.
async fn continued<R: Explained>(cluster: &Cluster, request: &R) -> Result<Option<Continued>> {
    let Some(name) = request.view().extends else {
        return Ok(None);
    };
    let Some(mut found) = cluster.find(&cluster.api::<R>(), name).await? else {
        return Ok(None);
    };
    if let Some(requester) = requester(&found) {
        let created = found.stored().map(|found| found.created());
        let stamp = Unsaved {
            requester: &requester,
            kind: R::title().to_owned(),
            namespace: Some(&cluster.namespace),
            name,
            spec_digest: found.spec_digest(),
            at: created?,
            judgement: None,
        }
        .stamp()?;
        let annotations = found.annotations_mut();
        annotations.insert(labels::REQUESTER.to_owned(), stamp);
    }
    Ok(Some(Continued::from_request(&keys(), &found.view())))
}

#[cfg(test)]
mod tests {
    use kube::Config;
    use oz_api::ExecAccessTemplate;
    use oz_config::OzConfiguration;
    use serde_json::json;

    use super::*;

    fn template(sessions: &str) -> ExecAccessTemplate {
        let template = json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1",
            "kind": "ExecAccessTemplate",
            "metadata": {"name": "shell", "namespace": "shop", "uid": "t"},
            "spec": {
                "accessConfig": {
                    "allowedGroups": ["devs"], "defaultDuration": "1h", "maxDuration": "2h",
                    "sessions": sessions,
                },
                "controllerTargetRef": {
                    "apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
                },
            },
        });
        serde_json::from_value(template).unwrap()
    }

    /// Returns the plan for a request of a member, by a configuration from this source.
    async fn planned(sessions: &str, source: Source) -> Planned {
        let now = Timestamp::now();
        let requester = Requester {
            user: "alice".to_owned(),
            groups: vec!["devs".to_owned()],
            ..Requester::default()
        };
        let ask = Ask {
            template: "shell".to_owned(),
            prefix: "alice".to_owned(),
            ..Ask::default()
        };
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let cluster = Cluster::new(config, "shop", None).unwrap();
        let config = OzConfiguration::default();
        let configured = Configured {
            settings: config.settings("oz-system"),
            config,
            source,
        };
        let request: ExecAccessRequest = unsaved("shop", &requester, &ask, None, now).unwrap();
        let known = (Some(template(sessions)), Locks::default());
        let planned = plan(&cluster, &configured, &request, known, now).await;
        planned.unwrap()
    }

    #[tokio::test]
    async fn gate_is_not_assumed_absent_by_users_who_may_not_read_configuration() {
        let unread = || Source::Defaults("alice may not list configmaps".to_owned());
        let planned_of = planned("Gate", unread()).await;
        let Planned::Unknown(gap @ Gap::Gate(_)) = planned_of else {
            panic!("a plan by assumed facts");
        };
        assert!(gap.to_string().ends_with("alice may not list configmaps"));
        let known = Source::ConfigMap("oz-system/oz".to_owned());
        let Planned::Plan(_) = planned("Gate", known).await else {
            panic!("no plan by known facts");
        };
        let Planned::Unknown(Gap::Unreadable(_)) = planned("BestEffort", unread()).await else {
            panic!("the workload cannot be read from this cluster");
        };
    }
}
