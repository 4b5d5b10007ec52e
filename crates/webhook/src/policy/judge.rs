//! The evaluation of the access policies, and of the condition of a template's own rules, for a
//! request or a transient binding.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use oz_admission::{Cx, Rejection, UserInfo};
use oz_api::harness::HarnessRun;
use oz_api::{AccessPolicy, Requester};
use oz_cel::Expressions;
use oz_cel::policy::Case;
use oz_core::access::extra::{self, Extra, ExtraKeys};
use oz_core::access::policy::situation::RunRequest;
use oz_core::access::policy::{self, Judgement, Situation};
use oz_core::kinds::AccessRequest;
use oz_core::transient::Binding;
use oz_runs::objects::KIND;
use oz_runs::template::DEFAULT_TIMEOUT;
use oz_runs::terms;
use oz_runtime::Feeds;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::connect::policies::{POLICY_TIMEOUT, apart};
use crate::connect::{Grants, Policies};
use crate::harness::FoundTemplate;
use crate::permission::within_permission_timeout;
use crate::watched::Watched;

/// The maximum number of concurrent judgements. One that exceeds its timeout keeps its slot.
const AT_ONCE: usize = 8;
/// The time that a request waits for its slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(2);
/// The variable that requires a read from the API server.
const NAMESPACE_LABELS: &str = "namespaceLabels";

/// The evaluator of access policies for requests.
#[derive(Clone)]
pub(crate) struct Judges {
    policies: Watched<AccessPolicy>,
    /// The slots in which the conditions of templates are evaluated.
    conditions: Arc<Policies>,
    grants: Grants,
    /// The keys of the extra attributes that policies can read.
    extra_keys: ExtraKeys,
    expressions: Expressions,
    slots: Arc<Semaphore>,
}

/// A request to judge.
pub(crate) struct Asking<'a, R: AccessRequest> {
    pub(crate) requester: &'a Requester,
    pub(crate) extra: &'a Extra,
    pub(crate) request: &'a R,
    pub(crate) namespace: &'a str,
    pub(crate) template: Option<&'a R::Template>,
}

/// A harness run to judge.
pub(crate) struct RunAsking<'a> {
    pub(crate) requester: &'a Requester,
    pub(crate) extra: &'a Extra,
    pub(crate) run: &'a HarnessRun,
    pub(crate) namespace: &'a str,
    pub(crate) template: Option<&'a FoundTemplate>,
}

/// The common inputs of a judgement of any kind.
struct About<'a> {
    requester: &'a Requester,
    extra: &'a Extra,
    /// The namespace; `None` for the whole cluster, which has no labels.
    namespace: Option<&'a str>,
    /// The condition of a template's own rules.
    when: Option<&'a str>,
    /// The digest of the judged contents without the requester, see [`Judgement::template`].
    template: Option<String>,
}

impl Judges {
    pub(crate) fn new(
        feeds: &Feeds,
        grants: Grants,
        conditions: Arc<Policies>,
        extra_keys: ExtraKeys,
    ) -> Self {
        Self {
            policies: Watched(feeds.store()),
            conditions,
            grants,
            extra_keys,
            expressions: Expressions::default(),
            slots: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Returns the number of policies.
    pub(super) async fn count(&self) -> Result<usize, Rejection> {
        let known = self.policies.all().await?.len();
        Ok(known + self.policies.0.undecodable())
    }

    /// Returns the extra attributes of a user that the stamp of a new object contains.
    ///
    /// # Errors
    /// The denial, if they are too large: shortened ones could satisfy a policy that the user does
    /// not satisfy.
    pub(crate) fn extra(&self, user: &UserInfo) -> Result<Extra, Rejection> {
        let selected = self.extra_keys.select(&user.extra);
        selected.map_err(|why| Rejection::forbidden(extra::TOO_LARGE, why.to_string()))
    }

    /// Judges a request; returns `None` if there is no policy and no condition to evaluate.
    pub(crate) async fn judge<R: AccessRequest>(
        &self,
        cx: &Cx,
        user: &UserInfo,
        asking: Asking<'_, R>,
    ) -> Result<Option<Judgement>, Rejection> {
        let Asking {
            requester,
            extra,
            request,
            namespace,
            template,
        } = asking;
        let mut view = request.view();
        // At mutating admission, an object may lack its namespace.
        let metadata = kube::core::ObjectMeta {
            namespace: Some(namespace.to_owned()),
            ..view.metadata.clone()
        };
        view.metadata = &metadata;
        let about = About {
            requester,
            extra,
            namespace: Some(namespace),
            when: template.and_then(policy::condition),
            template: template.map(policy::seen),
        };
        let situation = || Situation::from_request(cx.now, requester, &view, template);
        self.come_to(cx, user, about, situation).await
    }

    /// Judges a transient binding; returns `None` if there are no policies.
    pub(crate) async fn judge_binding(
        &self,
        cx: &Cx,
        user: &UserInfo,
        (requester, extra, namespace): (&Requester, &Extra, Option<&str>),
        binding: &Binding<'_>,
    ) -> Result<Option<Judgement>, Rejection> {
        let about = About {
            requester,
            extra,
            namespace,
            when: None,
            template: Some(binding.spec_digest.clone()),
        };
        let situation = || Situation::of_binding(cx.now, requester, binding, namespace);
        self.come_to(cx, user, about, situation).await
    }

    /// Judges a harness run; returns `None` if there are no policies.
    pub(crate) async fn judge_run(
        &self,
        cx: &Cx,
        user: &UserInfo,
        asking: &RunAsking<'_>,
    ) -> Result<Option<Judgement>, Rejection> {
        let RunAsking {
            requester,
            extra,
            run,
            namespace,
            template,
        } = asking;
        let about = About {
            requester,
            extra,
            namespace: Some(namespace),
            when: None,
            template: template.map(FoundTemplate::seen),
        };
        let request = RunRequest {
            kind: KIND,
            metadata: &run.metadata,
            namespace,
            template: &run.spec.template_ref.name,
            template_found: template.map(FoundTemplate::object),
            ask: terms::ask(&run.spec),
        };
        let situation = || {
            let resolved = template.and_then(|template| template.resolved().ok());
            let resolved = resolved.and_then(|resolved| resolved.for_run(&run.spec).ok());
            let duration = resolved.map_or(DEFAULT_TIMEOUT, |resolved| resolved.timeout);
            Situation::of_run(cx.now, requester, &request, duration)
        };
        self.come_to(cx, user, about, situation).await
    }

    async fn come_to(
        &self,
        cx: &Cx,
        user: &UserInfo,
        about: About<'_>,
        situation: impl FnOnce() -> Situation,
    ) -> Result<Option<Judgement>, Rejection> {
        let policies = self.policies.all().await?;
        let unreadable = self.policies.0.undecodable();
        let when = about.when;
        if policies.is_empty() && unreadable == 0 && when.is_none() {
            return Ok(None);
        }
        let texts = policies.iter().map(|policy| policy.spec.r#match.as_str());
        let reads_labels = texts
            .chain(when)
            .any(|text| text.contains(NAMESPACE_LABELS));
        let labels = match about.namespace {
            Some(namespace) if reads_labels => labels(cx, user, namespace).await?,
            _ => BTreeMap::new(),
        };
        let active = self.grants.held_by(about.requester, cx.now);
        let situation = situation().with_extra(about.extra);
        let case = Case {
            policies,
            when: when.map(ToOwned::to_owned),
            template: about.template,
            unreadable,
            situation: situation.in_namespace(&labels).having(active),
        };
        Ok(Some(self.asked(about.namespace, case).await))
    }

    async fn asked(&self, namespace: Option<&str>, case: Case) -> Judgement {
        let when = self.condition(namespace, &case).await;
        let slot = timeout(SLOT_TIMEOUT, Arc::clone(&self.slots).acquire_owned()).await;
        let Ok(Ok(slot)) = slot else {
            return case.failed(when, "too many requests are evaluated at once; try again");
        };
        let (mine, asked, until) = (case.clone(), when.clone(), Instant::now() + POLICY_TIMEOUT);
        let work = move |expressions: &Expressions| mine.judge(asked, expressions, until);
        let judged = apart(slot, self.expressions.clone(), work).await;
        judged.unwrap_or_else(|late| case.failed(when, &late.to_string()))
    }

    /// Evaluates whether the rules of the template apply, once a slot of its namespace is
    /// available.
    async fn condition(
        &self,
        namespace: Option<&str>,
        case: &Case,
    ) -> Option<Result<bool, String>> {
        let (when, mine) = (case.when.clone()?, case.clone());
        let Some(namespace) = namespace else {
            return Some(Err("only a template of a namespace has one".to_owned()));
        };
        let until = Instant::now() + POLICY_TIMEOUT;
        let work = move |expressions: &Expressions| mine.condition(expressions, until);
        let answer = self.conditions.in_turn(namespace, &when, work).await;
        match answer {
            Ok(answer) => answer.map(|answer| answer.map_err(|why| why.to_string())),
            Err(why) => Some(Err(why.to_string())),
        }
    }
}

/// Returns the labels of the namespace from the API server.
async fn labels(
    cx: &Cx,
    user: &UserInfo,
    namespace: &str,
) -> Result<BTreeMap<String, String>, Rejection> {
    let namespaces = Api::<Namespace>::all(cx.client.clone());
    let found = within_permission_timeout(user, namespaces.get_metadata(namespace)).await?;
    Ok(found.metadata.labels.into_iter().flatten().collect())
}
