//! The declaration of one webhook: the requests that it reviews, and the behaviour when it fails.
//!
//! A declaration is a plain value. The module `registration` builds the Kubernetes objects from it, so a
//! declaration can be read and tested without a server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;

use crate::{
    handler::{ExpectedKind, Handle, Mutate, Mutating, Validate, Validating},
    review::Operation,
    rules::{ResourceRule, Rules},
    scope::NamespaceScope,
};

/// The behaviour of the API server when a webhook does not respond, or responds with an error.
/// See <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#failure-policy>.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The API server denies the request.
    #[default]
    Fail,
    /// The API server processes the request as if the webhook did not exist.
    Ignore,
}

/// The versions of a resource for which the API server calls a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchPolicy {
    /// All versions: the API server converts an object in another version to the version of the rule.
    #[default]
    Equivalent,
    /// Only the version of the rule. A user who sends another version bypasses the hook.
    Exact,
}

/// The effects that a webhook has in addition to its response.
///
/// Kubernetes denies dry runs on resources with webhooks that do not suppress their effects; so a third
/// variant does not exist.
///
/// See <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#side-effects>.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SideEffects {
    /// The webhook has no effects.
    None,
    /// The webhook has effects, but none on a dry run ([`Review::dry_run`](crate::Review::dry_run)).
    #[default]
    NoneOnDryRun,
}

/// The phase of a request in which a hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HookKind {
    /// Before the object is validated; the hook may change the object.
    Mutating,
    /// After all changes; the hook may only allow or deny the request.
    Validating,
}

/// A webhook: a handler and the requests for which it is called.
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
    /// Creates a hook that changes objects of the handler's type, on `CREATE` and `UPDATE`.
    ///
    /// `name` is a DNS label, unique in the manager; the path and the webhook's name derive from it.
    pub fn mutating<M>(name: &str, handler: M) -> Self
    where
        M: Mutate<Object: Resource<DynamicType: Default>>,
    {
        let mut hook = Self::mutating_on(name, ResourceRule::from_type::<M::Object>(), handler);
        hook.expected = Some(expected::<M::Object>());
        hook
    }

    /// Creates a hook that changes objects of a resource that the handler's type does not define: a
    /// [`DynamicObject`](kube::core::DynamicObject), or the options of a connection. With `None`, the hook
    /// has only the rules of [`rules_from`](Self::rules_from).
    pub fn mutating_on<M: Mutate>(
        name: &str,
        rule: impl Into<Option<ResourceRule>>,
        handler: M,
    ) -> Self {
        let handler = Arc::new(Mutating(handler));
        Self::new(name, HookKind::Mutating, rule.into(), handler)
    }

    /// Creates a hook that checks objects of the handler's type, on `CREATE` and `UPDATE`.
    pub fn validating<V>(name: &str, handler: V) -> Self
    where
        V: Validate<Object: Resource<DynamicType: Default>>,
    {
        let mut hook = Self::validating_on(name, ResourceRule::from_type::<V::Object>(), handler);
        hook.expected = Some(expected::<V::Object>());
        hook
    }

    /// Creates a hook that checks objects of a resource that the handler's type does not define. With
    /// `None`, the hook has only the rules of [`rules_from`](Self::rules_from).
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

    /// Sets the operations for which the hook is called; they replace `CREATE` and `UPDATE`.
    #[must_use]
    pub fn on(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations = operations.into_iter().collect();
        self
    }

    /// Selects a subresource of the first rule's resource, such as `exec`, *instead of* the resource
    /// itself. The reviewed object is then the object that the subresource carries.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        if let Some(rule) = self.rules.first_mut() {
            rule.subresources.push(name.to_owned());
        }
        // `pods/exec` carries PodExecOptions, `pods/status` a Pod, `…/scale` a Scale.
        self.expected = None;
        self
    }

    /// Adds a further resource. The handler's type must be able to hold its objects as well.
    #[must_use]
    pub fn also(mut self, rule: ResourceRule) -> Self {
        self.rules.push(rule);
        self.expected = None;
        self
    }

    /// Adds rules that change while the process runs. The registration follows them within a second; the
    /// path, the name and the handler stay. Without any rule, fixed or followed, no webhook is registered.
    /// Until the rules are [known](Rules), the registered rules stay unchanged, and the manager is not
    /// ready. The handler's type must be able to hold all of their objects.
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

    /// Restricts the hook to objects with these labels. A user who may create an object may also choose its
    /// labels: the restriction saves calls, it does not protect.
    #[must_use]
    pub fn objects(mut self, selector: LabelSelector) -> Self {
        self.objects = selector;
        self
    }

    /// Restricts the hook to these namespaces.
    #[must_use]
    pub fn namespaces(mut self, scope: NamespaceScope) -> Self {
        self.namespaces = scope;
        self
    }

    /// Restricts the hook to requests for which a CEL expression is true; `name` appears in errors. All
    /// expressions must be true. See
    /// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions>.
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

    /// Sets the behaviour when the extension is down, too slow, overloaded, panics or cannot decide
    /// ([`Rejection::undecided`](crate::Rejection::undecided)).
    #[must_use]
    pub fn failure(mut self, policy: FailurePolicy) -> Self {
        self.failure = policy;
        self
    }

    /// Monitors only: the handler decides, the metric `admission_reviews_total` and the audit annotation
    /// `monitor` report its decision, and the API server processes every request unchanged. The hook fails
    /// open. This mode shows which requests a new hook would deny before it denies them.
    #[must_use]
    pub fn monitor(mut self) -> Self {
        self.monitor = true;
        self
    }

    /// Sets the versions of its resources for which the hook is called.
    #[must_use]
    pub fn match_policy(mut self, policy: MatchPolicy) -> Self {
        self.match_policy = policy;
        self
    }

    /// Sets whether the API server calls the hook again after a later webhook changed the object. Mutating
    /// hooks only.
    /// See
    /// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#reinvocation-policy>.
    #[must_use]
    pub fn reinvoke(mut self, yes: bool) -> Self {
        self.reinvoke = yes;
        self
    }

    /// Sets the effects that the hook has in addition to its response.
    #[must_use]
    pub fn side_effects(mut self, effects: SideEffects) -> Self {
        self.side_effects = effects;
        self
    }

    /// Sets the timeout of the API server, 1 to 30 whole seconds; 5 by default.
    /// See <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#timeouts>.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets the path of the hook; it replaces `/mutate/<name>` or `/validate/<name>`. For products that
    /// published another path before.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Sets the name of the webhook inside its configuration; it replaces `<name>.<fingerprint>.admission`.
    /// At least three segments (`a.b.c`).
    #[must_use]
    pub fn webhook_name(mut self, name: &str) -> Self {
        self.webhook_name = Some(name.to_owned());
        self
    }

    /// Returns the path of the hook.
    pub fn served_path(&self) -> String {
        self.path.clone().unwrap_or_else(|| match self.kind {
            HookKind::Mutating => format!("/mutate/{}", self.name),
            HookKind::Validating => format!("/validate/{}", self.name),
        })
    }

    /// Returns the behaviour when the hook does not respond.
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
