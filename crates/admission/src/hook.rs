//! The declaration of one webhook: which requests it sees and what happens when it fails.
//!
//! A declaration is a plain value. What it looks like to Kubernetes is decided in
//! `registration`, so that it can be read and tested without a server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;

use crate::{
    handler::{ExpectedKind, Handle, Mutate, Mutating, Validate, Validating},
    review::Operation,
    rules::{ResourceRule, Rules},
    scope::NamespaceScope,
};

/// What the API server does when a webhook does not answer, or answers with an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is refused.
    #[default]
    Fail,
    /// The request goes on as if there were no webhook.
    Ignore,
}

/// Which versions of a resource a webhook is called for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchPolicy {
    /// All of them: an object that comes in another version is converted to that of the rule.
    #[default]
    Equivalent,
    /// That of the rule. Whoever uses another version gets around the hook.
    Exact,
}

/// Whether a webhook has effects besides its answer.
///
/// Kubernetes refuses dry runs on resources whose webhooks have effects they do not
/// hold back; so there is no third choice here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SideEffects {
    /// It has none at all.
    None,
    /// It has some, and none on a dry run ([`Review::dry_run`](crate::Review::dry_run)).
    #[default]
    NoneOnDryRun,
}

/// Which of the two calls a hook is made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HookKind {
    /// Before the object is checked; may change it.
    Mutating,
    /// After all changes; may only say yes or no.
    Validating,
}

/// A webhook: a handler and the requests it is called for.
///
/// ```
/// # use oz_admission::{Hook, Mutate, Review, Notes, Rejection, Cx, Operation, FailurePolicy};
/// # use k8s_openapi::api::core::v1::Pod;
/// # struct Inject;
/// # impl Mutate for Inject {
/// #     type Object = Pod;
/// #     async fn mutate(&self, _: &Cx, _: &Review<Pod>, _: &mut Pod) -> Result<Notes, Rejection> { Ok(Notes::none()) }
/// # }
/// let hook = Hook::mutating("inject-env", Inject)
///     .on([Operation::Create])
///     .failure(FailurePolicy::Ignore)
///     .when("not-opted-out", "!has(object.metadata.annotations) || !('skip' in object.metadata.annotations)");
/// ```
#[derive(Clone)]
pub struct Hook {
    pub(crate) name: String,
    pub(crate) kind: HookKind,
    pub(crate) rules: Vec<ResourceRule>,
    pub(crate) followed: Option<Rules>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) objects: LabelSelector,
    pub(crate) namespaces: NamespaceScope,
    pub(crate) conditions: Vec<(String, String)>,
    pub(crate) failure: FailurePolicy,
    pub(crate) reinvoke: bool,
    pub(crate) side_effects: SideEffects,
    pub(crate) timeout: Duration,
    pub(crate) path: Option<String>,
    pub(crate) webhook_name: Option<String>,
    pub(crate) expected: Option<ExpectedKind>,
    pub(crate) match_policy: MatchPolicy,
    pub(crate) monitor: bool,
    pub(crate) handler: Arc<dyn Handle>,
}

impl Hook {
    /// A hook that changes objects of the handler's type, on `CREATE` and `UPDATE`.
    ///
    /// `name` is a DNS label, unique in the manager: it makes the path and the webhook's name.
    pub fn mutating<M>(name: &str, handler: M) -> Self
    where
        M: Mutate<Object: Resource<DynamicType: Default>>,
    {
        let mut hook = Self::mutating_on(name, ResourceRule::of::<M::Object>(), handler);
        hook.expected = Some(expected::<M::Object>());
        hook
    }

    /// A hook that changes objects of a resource which the handler's type does not tell: a
    /// [`DynamicObject`](kube::core::DynamicObject), or the options of a connection. With `None` it has no
    /// rule but those of [`rules_from`](Self::rules_from).
    pub fn mutating_on<M: Mutate>(
        name: &str,
        rule: impl Into<Option<ResourceRule>>,
        handler: M,
    ) -> Self {
        let handler = Arc::new(Mutating(handler));
        Self::new(name, HookKind::Mutating, rule.into(), handler)
    }

    /// A hook that checks objects of the handler's type, on `CREATE` and `UPDATE`.
    pub fn validating<V>(name: &str, handler: V) -> Self
    where
        V: Validate<Object: Resource<DynamicType: Default>>,
    {
        let mut hook = Self::validating_on(name, ResourceRule::of::<V::Object>(), handler);
        hook.expected = Some(expected::<V::Object>());
        hook
    }

    /// A hook that checks objects of a resource which the handler's type does not tell. With `None` it has
    /// no rule but those of [`rules_from`](Self::rules_from).
    pub fn validating_on<V: Validate>(
        name: &str,
        rule: impl Into<Option<ResourceRule>>,
        handler: V,
    ) -> Self {
        let handler = Arc::new(Validating(handler));
        Self::new(name, HookKind::Validating, rule.into(), handler)
    }

    fn new(
        name: &str,
        kind: HookKind,
        rule: Option<ResourceRule>,
        handler: Arc<dyn Handle>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            rules: rule.into_iter().collect(),
            followed: None,
            operations: vec![Operation::Create, Operation::Update],
            objects: LabelSelector::default(),
            namespaces: NamespaceScope::default(),
            conditions: Vec::new(),
            failure: FailurePolicy::default(),
            reinvoke: false,
            side_effects: SideEffects::default(),
            timeout: Duration::from_secs(5),
            path: None,
            webhook_name: None,
            expected: None,
            match_policy: MatchPolicy::default(),
            monitor: false,
            handler,
        }
    }

    /// The operations it is called for, in place of `CREATE` and `UPDATE`.
    #[must_use]
    pub fn on(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations = operations.into_iter().collect();
        self
    }

    /// Asks for a subresource of the first rule's resource, such as `exec`, *instead of*
    /// the resource itself. The object reviewed is then whatever that subresource carries.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        if let Some(rule) = self.rules.first_mut() {
            rule.subresources.push(name.to_owned());
        }
        // `pods/exec` carries PodExecOptions, `pods/status` a Pod, `…/scale` a Scale.
        self.expected = None;
        self
    }

    /// A further resource. The handler's type must be able to hold its objects as well.
    #[must_use]
    pub fn also(mut self, rule: ResourceRule) -> Self {
        self.rules.push(rule);
        self.expected = None;
        self
    }

    /// Further rules, which change while the process runs. The registration follows them within a second;
    /// the path, the name and the handler stay. Without any rule, fixed or followed, no webhook is
    /// registered. As long as they are not [known](Rules), what is registered stays as it is, and the
    /// manager is not ready. The handler's type must be able to hold all of their objects.
    ///
    /// ```
    /// use oz_admission::{Hook, Notes, ResourceRule, Review, Rules, validate_fn};
    /// use serde_json::Value;
    ///
    /// let rules = Rules::default();
    /// let hook = Hook::validating_on("guard", None, validate_fn(|_, _: &Review<Value>| Ok(Notes::none())))
    ///     .rules_from(&rules);
    /// // Whenever it becomes known, in a watcher or a task:
    /// rules.set([ResourceRule::new("example.com", "v1", "widgets")]);
    /// rules.set([]);
    /// ```
    #[must_use]
    pub fn rules_from(mut self, rules: &Rules) -> Self {
        self.followed = Some(rules.clone());
        self.expected = None;
        self
    }

    /// Only objects with these labels. Note that whoever may create an object may also
    /// choose its labels: this saves calls, it does not protect.
    #[must_use]
    pub fn objects(mut self, selector: LabelSelector) -> Self {
        self.objects = selector;
        self
    }

    /// Only in these namespaces.
    #[must_use]
    pub fn namespaces(mut self, scope: NamespaceScope) -> Self {
        self.namespaces = scope;
        self
    }

    /// Only when a CEL expression holds; `name` shows up in errors. Several are joined by *and*.
    /// See <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions>.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use oz_admission::{Hook, Notes, Review, validate_fn};
    /// # let handler = validate_fn(|_, _: &Review<Pod>| Ok(Notes::none()));
    /// // The API server asks only for what the expression is true of.
    /// let hook = Hook::validating("people", handler)
    ///     .when("people", "!request.userInfo.username.startsWith('system:')");
    /// ```
    #[must_use]
    pub fn when(mut self, name: &str, cel: &str) -> Self {
        self.conditions.push((name.to_owned(), cel.to_owned()));
        self
    }

    /// What happens when the extension is down, too slow, overloaded, panics or cannot decide
    /// ([`Rejection::undecided`](crate::Rejection::undecided)).
    #[must_use]
    pub fn failure(mut self, policy: FailurePolicy) -> Self {
        self.failure = policy;
        self
    }

    /// Only looks: the handler decides, the metric `admission_reviews_total` and the audit annotation
    /// `monitor` tell what it would have done, and every request goes on as it came. The hook fails open.
    /// For finding out what a new hook refuses before it does.
    #[must_use]
    pub fn monitor(mut self) -> Self {
        self.monitor = true;
        self
    }

    /// Which versions of its resources it is called for.
    #[must_use]
    pub fn match_policy(mut self, policy: MatchPolicy) -> Self {
        self.match_policy = policy;
        self
    }

    /// Whether it is called again when a later webhook changed the object. Mutating hooks only.
    #[must_use]
    pub fn reinvoke(mut self, yes: bool) -> Self {
        self.reinvoke = yes;
        self
    }

    /// Whether it has effects besides its answer.
    #[must_use]
    pub fn side_effects(mut self, effects: SideEffects) -> Self {
        self.side_effects = effects;
        self
    }

    /// How long the API server waits, 1 to 30 whole seconds; 5 by default.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// The path it is served under, in place of `/mutate/<name>` or `/validate/<name>`:
    /// for those who published another before.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// The name of the webhook inside its configuration, in place of
    /// `<name>.<fingerprint>.admission`. At least three segments (`a.b.c`).
    #[must_use]
    pub fn webhook_name(mut self, name: &str) -> Self {
        self.webhook_name = Some(name.to_owned());
        self
    }

    /// The path it is served under.
    pub fn served_path(&self) -> String {
        self.path.clone().unwrap_or_else(|| match self.kind {
            HookKind::Mutating => format!("/mutate/{}", self.name),
            HookKind::Validating => format!("/validate/{}", self.name),
        })
    }

    /// What happens when it gives no answer.
    pub(crate) fn effective_failure(&self) -> FailurePolicy {
        if self.monitor {
            FailurePolicy::Ignore
        } else {
            self.failure
        }
    }

    pub(crate) fn registered_name(&self, fingerprint: &str) -> String {
        self.webhook_name
            .clone()
            .unwrap_or_else(|| format!("{}.{fingerprint}.admission", self.name))
    }
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hook")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

fn expected<K: Resource<DynamicType: Default>>() -> ExpectedKind {
    let it = K::DynamicType::default();
    ExpectedKind {
        group: K::group(&it).into_owned(),
        kind: K::kind(&it).into_owned(),
    }
}
