//! What a CompositeController declares, checked: everything that is wrong with it or that is not done yet
//! is said at once, by field.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use kube::core::{Selector, SelectorExt};
use oz_api::composite::{
    CompositeController, CompositeControllerSpec, Hook, HookVersion, MAX_CHILDREN, Method, Mode,
    Webhook,
};
use oz_api::duration::GoDuration;
use oz_api::rego::Language;
use oz_core::lifecycle::drift;
use oz_core::transient::has_privileged;
use oz_core::validate::Violation;
use serde::{Deserialize, Serialize};

use super::account::Account;
use super::kind::is_kind;
pub use super::kind::{KindName, Placed};
use super::related::Rule;
use super::window::Window;

/// How long a function may take if nothing says.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that a function may be waited for.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How many kinds of children one may have.
pub(super) const MOST_KINDS: usize = 16;
/// API groups whose objects are nobody's parents or children: what oz itself goes by, and what decides
/// about every request to the API server.
const RESERVED_GROUPS: [&str; 4] = [
    oz_api::GROUP,
    oz_api::composite::GROUP,
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
];

/// What is declared.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Name of the CompositeController or RegoController.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its own finalizer on parents.
    pub finalizer: String,
    /// The CompositeController or RegoController as functions are told of it.
    pub controller: serde_json::Value,
    /// The kind of parent.
    pub parent: KindName,
    /// Which parents.
    pub selector: Selector,
    /// Whether parents are not looked at because their status has changed.
    pub ignores_status: bool,
    /// The kinds of children, and how each is changed.
    pub children: Vec<(KindName, Method)>,
    /// Whether children are selected by their parent's UID.
    pub generate_selector: bool,
    /// Whether parents adopt whatever they select, as with MetaController.
    pub adopts_as_original: bool,
    /// How often all parents are looked at.
    pub resync: Option<SignedDuration>,
    /// Which children a parent has.
    pub sync: Call,
    /// Which children one still has that is being deleted.
    pub finalize: Option<Call>,
    /// Which other objects are shown with each parent.
    pub related: Vec<Rule>,
    /// Which further ones, where a function says so for each parent.
    pub customize: Option<Call>,
    /// From when until when a parent has children; `None` if always.
    pub window: Option<Window>,
    /// How many children one parent may have.
    pub most_children: usize,
    /// How many children a policy that has changed may delete; `None` if as many as it likes.
    pub most_deletions: Option<usize>,
    /// Whether children are not written.
    pub dry_run: bool,
    /// As whom it reads and writes; `None` if as composites do that do not say.
    pub run_as: Option<Account>,
}

/// How a function is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Where it is.
    pub url: String,
    /// How objects are named in the request.
    pub version: HookVersion,
    /// Whether fields that are not part of an answer are refused.
    pub strict: bool,
    /// How long it may take.
    pub timeout: Duration,
    /// The policy that it is, if it runs in process.
    pub in_process: Option<InProcess>,
}

/// Where they are, for people.
impl std::fmt::Display for Modules {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bundle(namespace) => formatter.write_str(namespace),
            Self::Key {
                namespace,
                name,
                key,
            } => write!(formatter, "{namespace}/{name}/{key}"),
            Self::Inline(_) => formatter.write_str("spec.policy.inline"),
        }
    }
}

/// A function that is a policy in Rego.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InProcess {
    /// Where its text is.
    pub modules: Modules,
    /// Its document, without `data.`, such as `controller`.
    pub path: String,
    /// The language; if absent, v1 is tried, and then v0.
    pub language: Option<Language>,
    /// Whether what a built-in function cannot do fails.
    pub strict: bool,
    /// How long one evaluation may take; `None` if as long as any.
    pub evaluation: Option<Duration>,
}

/// Where the text of a policy is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Modules {
    /// All of a namespace of policies.
    Bundle(String),
    /// One key of a ConfigMap in such a namespace.
    Key {
        /// The namespace.
        namespace: String,
        /// Name of the ConfigMap.
        name: String,
        /// The key.
        key: String,
    },
    /// Here.
    Inline(String),
}

impl Modules {
    /// The namespace of policies that they are in, if they are in one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Bundle(namespace) | Self::Key { namespace, .. } => Some(namespace),
            Self::Inline(_) => None,
        }
    }
}

impl InProcess {
    /// What a URL of an OPA names, if its Service is in one of these namespaces of policies: nothing is
    /// looked up or called then.
    #[must_use]
    pub fn of(url: &str, namespaces: &[String]) -> Option<Self> {
        let policy = Self::at(url)?;
        let namespace = policy.modules.namespace()?;
        namespaces
            .iter()
            .any(|listed| listed == namespace)
            .then_some(policy)
    }

    /// As [`InProcess::of`], if the Service's namespace, whichever it is, were one of policies.
    #[must_use]
    pub fn at(url: &str) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let (authority, path) = rest.split_once('/')?;
        let host = authority.split(':').next()?;
        let mut labels = host.split('.');
        let (_, namespace) = (labels.next()?, labels.next()?);
        let rest = labels.collect::<Vec<_>>();
        let is_service = rest.is_empty() || rest[0] == "svc";
        let path = ["v0/data/", "v1/data/"]
            .iter()
            .find_map(|data| path.strip_prefix(data))?;
        let path = path.split('?').next()?.trim_end_matches('/');
        (is_service && !path.is_empty()).then(|| Self {
            modules: Modules::Bundle(namespace.to_owned()),
            path: path.replace('/', "."),
            language: None,
            strict: false,
            evaluation: None,
        })
    }
}

impl Declared {
    /// What a CompositeController declares.
    ///
    /// # Errors
    /// All that is wrong with it, or is not done yet.
    pub fn of(composite: &CompositeController) -> Result<Self, Vec<Violation>> {
        let spec = &composite.spec;
        let mut violations = Vec::new();
        let parent = KindName::from(&spec.parent_resource);
        reserved_parent(&parent, "spec.parentResource", &mut violations);
        let selector = parents(
            spec.parent_resource.label_selector.as_ref(),
            "spec.parentResource.labelSelector",
            &mut violations,
        );
        let children = children(spec, &mut violations);
        let hooks = spec.hooks.clone().unwrap_or_default();
        let mut call = |hook: Option<&Hook>, name: &str| {
            let field = format!("spec.hooks.{name}");
            hook.and_then(|hook| Call::of(hook, &field, &mut violations))
        };
        let sync = call(hooks.sync.as_ref(), "sync");
        let finalize = call(hooks.finalize.as_ref(), "finalize");
        let customize = call(hooks.customize.as_ref(), "customize");
        if hooks.sync.is_none() {
            let message = "is missing: nobody can be asked which children a parent has";
            violations.push(Violation::of("spec.hooks.sync", message));
        }
        not_yet(
            spec.endpoint_configs.is_some(),
            "spec.endpointConfigs",
            &mut violations,
        );
        let seconds = spec.resync_period_seconds.filter(|seconds| *seconds > 0);
        match sync {
            Some(sync) if violations.is_empty() => Ok(Self {
                name: composite.metadata.name.clone().unwrap_or_default(),
                uid: composite.metadata.uid.clone().unwrap_or_default(),
                finalizer: finalizer("metacontroller.io/compositecontroller-", composite),
                controller: as_told(composite),
                parent,
                selector,
                ignores_status: spec.parent_resource.ignore_status_changes == Some(true),
                children,
                generate_selector: spec.generate_selector.unwrap_or_default(),
                adopts_as_original: false,
                resync: seconds.map(|seconds| SignedDuration::from_secs(seconds.into())),
                sync,
                finalize,
                related: Vec::new(),
                customize,
                window: None,
                most_children: MAX_CHILDREN,
                most_deletions: None,
                dry_run: false,
                run_as: None,
            }),
            _ => Err(violations),
        }
    }

    /// Runs the functions in process that are policies in one of these namespaces.
    #[must_use]
    pub fn with_policies(mut self, namespaces: &[String]) -> Self {
        let calls = std::iter::once(&mut self.sync).chain(&mut self.finalize);
        for call in calls.chain(&mut self.customize) {
            if let Some(policy) = InProcess::of(&call.url, namespaces) {
                call.in_process = Some(policy);
            }
        }
        self
    }

    /// Adopts as MetaController does if it is one of these CompositeControllers.
    #[must_use]
    pub fn adopting(mut self, as_original: &[String]) -> Self {
        self.adopts_as_original = !self.generate_selector && as_original.contains(&self.name);
        self
    }

    /// Whether the authors of its parents must be known: they are asked about children that hand out rights, and about
    /// what a parent adopts.
    #[must_use]
    pub fn asks_authors(&self) -> bool {
        let mut kinds = self.children.iter();
        !self.generate_selector
            || kinds.any(|(kind, _)| has_privileged(kind.group(), &kind.resource))
    }

    /// The policies that it asks.
    pub fn policies(&self) -> impl Iterator<Item = &InProcess> {
        let calls = std::iter::once(&self.sync).chain(&self.finalize);
        let calls = calls.chain(&self.customize);
        calls.filter_map(|call| call.in_process.as_ref())
    }

    /// Whether it looks after a parent with these labels.
    #[must_use]
    pub fn selects(&self, labels: &std::collections::BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }

    /// Whether its finalizer is on a parent.
    #[must_use]
    pub fn holds(&self, parent: &ObjectMeta) -> bool {
        drift::has_finalizer(parent, &self.finalizer)
    }
}

/// The finalizer on parents: that of a CompositeController under the name that MetaController gives it.
pub(super) fn finalizer<S: Resource>(prefix: &str, source: &S) -> String {
    let name = source.meta().name.as_deref().unwrap_or_default();
    format!("{prefix}{name}")
}

/// A source without what only the API server wants to know.
pub(super) fn as_told<S: Resource + Clone + Serialize>(source: &S) -> serde_json::Value {
    let mut source = source.clone();
    source.meta_mut().managed_fields = None;
    let mut told = serde_json::to_value(source).unwrap_or_default();
    if let Some(fields) = told.as_object_mut() {
        fields.remove("status");
    }
    told
}

/// Which parents.
pub(super) fn parents(
    selector: Option<&LabelSelector>,
    field: &str,
    violations: &mut Vec<Violation>,
) -> Selector {
    let selector = Selector::try_from(selector.cloned().unwrap_or_default());
    selector.unwrap_or_else(|error| {
        violations.push(Violation::of(
            field,
            format!("is no label selector: {error}"),
        ));
        Selector::default()
    })
}

fn children(
    spec: &CompositeControllerSpec,
    violations: &mut Vec<Violation>,
) -> Vec<(KindName, Method)> {
    let mut children: Vec<(KindName, Method)> = Vec::new();
    if spec.child_resources.len() > MOST_KINDS {
        let message = format!("has more than {MOST_KINDS} kinds");
        violations.push(Violation::of("spec.childResources", message));
    }
    for (index, child) in spec.child_resources.iter().take(MOST_KINDS).enumerate() {
        let field = format!("spec.childResources[{index}]");
        let name = KindName {
            api_version: child.api_version.clone(),
            resource: child.resource.clone(),
        };
        reserved(&name, &field, violations);
        if children.iter().any(|(known, _)| *known == name) {
            violations.push(Violation::of(
                field.clone(),
                format!("{name} is there twice"),
            ));
        }
        let method = child.update_strategy.as_ref();
        let method = method
            .and_then(|strategy| strategy.method)
            .unwrap_or_default();
        let rolling = matches!(method, Method::RollingRecreate | Method::RollingInPlace);
        not_yet(
            rolling,
            &format!("{field}.updateStrategy.method"),
            violations,
        );
        children.push((name, method));
    }
    children
}

pub(super) fn reserved(kind: &KindName, field: &str, violations: &mut Vec<Violation>) {
    if kind.resource.is_empty() || kind.api_version.is_empty() {
        violations.push(Violation::of(field, "names no kind"));
    }
    if !is_kind(kind) {
        violations.push(Violation::of(
            field,
            format!("{kind} is no kind with a plural name"),
        ));
    }
    if RESERVED_GROUPS.contains(&kind.group()) || kind.resource == "customresourcedefinitions" {
        let message = format!("{kind} is reserved: no composite reads or writes it");
        violations.push(Violation::of(field, message));
    }
}

/// Roles and bindings are nobody's parents: a function is told what it may make others' rights of, and rights
/// are not that.
pub(super) fn reserved_parent(kind: &KindName, field: &str, violations: &mut Vec<Violation>) {
    reserved(kind, field, violations);
    if kind.group() == oz_api::RBAC_GROUP {
        let message = format!("{kind} is reserved: it can be a child, and no parent");
        violations.push(Violation::of(field, message));
    }
}

pub(super) fn not_yet(is_there: bool, field: &str, violations: &mut Vec<Violation>) {
    if is_there {
        violations.push(Violation::of(field, "is not supported yet"));
    }
}

impl Call {
    fn of(hook: &Hook, field: &str, violations: &mut Vec<Violation>) -> Option<Self> {
        let Some(webhook) = &hook.webhook else {
            violations.push(Violation::of(format!("{field}.webhook"), "is missing"));
            return None;
        };
        let field = format!("{field}.webhook");
        for (is_there, name) in [
            (webhook.etag.is_some(), "etag"),
            (webhook.ca_bundle.is_some(), "caBundle"),
            (webhook.client_tls.is_some(), "clientTLS"),
            (webhook.authorization.is_some(), "authorization"),
            (webhook.basic_auth.is_some(), "basicAuth"),
        ] {
            not_yet(is_there, &format!("{field}.{name}"), violations);
        }
        let Some(url) = address(webhook) else {
            violations.push(Violation::of(field, "has neither url nor service"));
            return None;
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            violations.push(Violation::of(field, "is asked by neither http nor https"));
            return None;
        }
        let asked = webhook.timeout.as_deref().map(str::parse::<GoDuration>);
        let timeout = match asked {
            Some(Err(error)) => {
                violations.push(Violation::of(format!("{field}.timeout"), error.to_string()));
                return None;
            }
            Some(Ok(asked)) if asked.is_positive() => {
                Duration::try_from(SignedDuration::from(asked)).unwrap_or(TIMEOUT)
            }
            _ => TIMEOUT,
        };
        let strict = match webhook.response_un_marshall_mode {
            Some(mode) => mode == Mode::Strict,
            None => hook.version == HookVersion::V2,
        };
        Some(Self {
            url,
            version: hook.version,
            strict,
            timeout: timeout.min(LONGEST_TIMEOUT),
            in_process: None,
        })
    }
}

/// The URL of a function; `None` if it has neither one nor a service.
#[must_use]
pub fn address(webhook: &Webhook) -> Option<String> {
    if let Some(url) = webhook.url.as_ref().filter(|url| !url.is_empty()) {
        return Some(url.clone());
    }
    let service = webhook.service.as_ref()?;
    let protocol = service.protocol.as_deref().unwrap_or("http");
    let path = webhook.path.as_deref().unwrap_or_default();
    let path = path.strip_prefix('/').unwrap_or(path);
    let (name, namespace) = (&service.name, &service.namespace);
    let port = service.port.unwrap_or(80);
    Some(format!("{protocol}://{name}.{namespace}:{port}/{path}"))
}

/// The kinds of a composite as the API server describes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// The kind of parent.
    pub parent: Placed,
    /// The kinds of children, in the order in which they are declared.
    pub children: Vec<(Placed, Method)>,
}

impl Family {
    /// The kind of child of this API version and kind, and how it is changed.
    #[must_use]
    pub fn child(&self, api_version: &str, kind: &str) -> Option<&(Placed, Method)> {
        let mut children = self.children.iter();
        children.find(|(placed, _)| {
            placed.resource.api_version == api_version && placed.resource.kind == kind
        })
    }
}
