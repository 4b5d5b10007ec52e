//! The checked declaration of a CompositeController. One check reports all fields that are invalid or not supported
//! yet.

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
use oz_api::rego::{DEFAULT_DELETIONS, Language};
use oz_core::lifecycle::drift;
use oz_core::transient::has_privileged;
use oz_core::validate::Violation;
use serde::Serialize;

use super::account::Account;
use super::kind::is_kind;
pub use super::kind::{Family, KindName, Placed};
use super::related::Rule;
use super::window::Window;

/// The default timeout of a function.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum timeout of a function.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of kinds of children of a composite.
pub(super) const MOST_KINDS: usize = 16;
/// API groups of objects that cannot be parents or children: the groups on which oz relies, and those that affect every
/// request to the API server.
const RESERVED_GROUPS: [&str; 4] = [
    oz_api::GROUP,
    oz_api::composite::GROUP,
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
];

/// The declaration of a composite.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Name of the CompositeController or RegoController.
    pub name: String,
    /// The UID of that object; `None` for one that is not stored.
    pub uid: Option<String>,
    /// The finalizer of the composite on parents.
    pub finalizer: String,
    /// The CompositeController or RegoController in the form that functions receive.
    pub controller: serde_json::Value,
    /// The kind of parent.
    pub parent: KindName,
    /// The selector of the parents.
    pub selector: Selector,
    /// True if a change of a parent's status does not cause a pass.
    pub ignores_status: bool,
    /// The kinds of children, and the update method of each.
    pub children: Vec<(KindName, Method)>,
    /// True if children are selected by their parent's UID.
    pub generate_selector: bool,
    /// True if parents adopt all objects that they select, as in MetaController.
    pub adopts_as_original: bool,
    /// The interval between passes over all parents.
    pub resync: Option<SignedDuration>,
    /// The call for the children of a parent.
    pub sync: Call,
    /// The call for the children of a parent that is being deleted.
    pub finalize: Option<Call>,
    /// The rules for other objects that the function receives with each parent.
    pub related: Vec<Rule>,
    /// The call for further rules, if a function returns them for each parent.
    pub customize: Option<Call>,
    /// The window in which a parent has children; `None` for always.
    pub window: Option<Window>,
    /// The maximum number of children of one parent.
    pub most_children: usize,
    /// The maximum number of children that a changed policy may delete; `None` for no limit.
    pub most_deletions: Option<usize>,
    /// True if children are not written.
    pub dry_run: bool,
    /// The account with which the composite reads and writes; `None` for the default account of composites.
    pub run_as: Option<Account>,
}

/// The parameters of a call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The URL of the function; empty for a policy of a RegoController, or without a function.
    pub url: String,
    /// The version of the hook, which defines the names of objects in the request.
    pub version: HookVersion,
    /// True if unknown fields in a response are rejected.
    pub strict: bool,
    /// The timeout of the call.
    pub timeout: Duration,
    /// The policy of the function, if it runs in process.
    pub in_process: Option<InProcess>,
}

/// Writes the location of the modules, for messages.
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
    /// The location of the policy's text.
    pub modules: Modules,
    /// The document of the function, without `data.`, such as `controller`.
    pub path: String,
    /// The language; if absent, v1 is tried, and then v0.
    pub language: Option<Language>,
    /// True if an error of a built-in function fails the evaluation.
    pub strict: bool,
    /// The maximum duration of one evaluation; `None` if only the general limit applies.
    pub evaluation: Option<Duration>,
}

/// The location of the text of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Modules {
    /// All modules of a namespace of policies.
    Bundle(String),
    /// A key of a ConfigMap in such a namespace.
    Key {
        /// The namespace.
        namespace: String,
        /// The name of the ConfigMap.
        name: String,
        /// The key.
        key: String,
    },
    /// Text in the declaration.
    Inline(String),
}

impl Modules {
    /// Returns the namespace of policies that contains the modules, if there is one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Bundle(namespace) | Self::Key { namespace, .. } => Some(namespace),
            Self::Inline(_) => None,
        }
    }
}

impl InProcess {
    /// Reads the URL of an OPA as a policy, if its Service is in one of these namespaces of policies. Such a URL is
    /// neither resolved nor called.
    #[must_use]
    pub fn from_url_in(url: &str, namespaces: &[String]) -> Option<Self> {
        let policy = Self::from_url(url)?;
        let namespace = policy.modules.namespace()?;
        namespaces
            .iter()
            .any(|listed| listed == namespace)
            .then_some(policy)
    }

    /// Reads a URL as [`InProcess::from_url_in`] does, for any namespace of the Service.
    #[must_use]
    pub fn from_url(url: &str) -> Option<Self> {
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
    /// Returns the declaration of a CompositeController.
    ///
    /// # Errors
    /// All fields that are invalid or not supported yet.
    pub fn from_composite(composite: &CompositeController) -> Result<Self, Vec<Violation>> {
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
        let name = name_of(&composite.metadata, &mut violations);
        let hooks = spec.hooks.as_ref();
        let sync_hook = hooks.and_then(|hooks| hooks.sync.as_ref());
        let mut call = |hook: Option<&Hook>, name: &str| {
            let field = format!("spec.hooks.{name}");
            hook.and_then(|hook| Call::from_hook(hook, &field, &mut violations))
        };
        let sync = call(sync_hook, "sync");
        let finalize = call(hooks.and_then(|it| it.finalize.as_ref()), "finalize");
        let customize = call(hooks.and_then(|it| it.customize.as_ref()), "customize");
        if sync_hook.is_none() {
            let message = "is missing: a composite requires a hook that returns the children of a \
                parent";
            violations.push(Violation::new("spec.hooks.sync", message));
        }
        not_yet(
            spec.endpoint_configs.is_some(),
            "spec.endpointConfigs",
            &mut violations,
        );
        let seconds = spec.resync_period_seconds.filter(|seconds| *seconds > 0);
        match (name, sync) {
            (Some(name), Some(sync)) if violations.is_empty() => Ok(Self {
                finalizer: format!("metacontroller.io/compositecontroller-{name}"),
                name,
                uid: composite.metadata.uid.clone(),
                controller: as_told(composite),
                parent,
                selector,
                ignores_status: spec.parent_resource.ignore_status_changes == Some(true),
                children,
                generate_selector: spec.generate_selector == Some(true),
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

    /// Runs the functions in process that are policies in one of these namespaces. A changed policy may delete as many
    /// children as that of a RegoController, unless the composite sets another limit.
    #[must_use]
    pub fn with_policies(mut self, namespaces: &[String]) -> Self {
        let calls = std::iter::once(&mut self.sync).chain(&mut self.finalize);
        for call in calls.chain(&mut self.customize) {
            if let Some(policy) = InProcess::from_url_in(&call.url, namespaces) {
                call.in_process = Some(policy);
            }
        }
        if self.policies().next().is_some() {
            let default = usize::try_from(DEFAULT_DELETIONS).ok();
            self.most_deletions = self.most_deletions.or(default);
        }
        self
    }

    /// Enables the adoption rule of MetaController if the composite is one of these CompositeControllers.
    #[must_use]
    pub fn adopting(mut self, as_original: &[String]) -> Self {
        self.adopts_as_original = !self.generate_selector && as_original.contains(&self.name);
        self
    }

    /// Checks whether the authors of its parents must be known: their permission is required for children that grant
    /// rights, for the objects that a parent adopts, and for the deletion of a privileged parent.
    #[must_use]
    pub fn asks_authors(&self) -> bool {
        let is_privileged = |kind: &KindName| has_privileged(kind.group(), &kind.resource);
        let mut kinds = self.children.iter();
        !self.generate_selector
            || kinds.any(|(kind, _)| is_privileged(kind))
            || (self.deletes_parents() && is_privileged(&self.parent))
    }

    /// Checks whether a function returns children; if not, the composite only deletes its parents.
    #[must_use]
    pub fn has_function(&self) -> bool {
        self.sync.in_process.is_some() || !self.sync.url.is_empty()
    }

    /// Checks whether parents are deleted at the end of their window.
    #[must_use]
    pub fn deletes_parents(&self) -> bool {
        self.window.as_ref().is_some_and(Window::deletes_parent)
    }

    /// Returns the calls of the composite's functions, each with the name of its hook.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, &Call)> {
        let sync = std::iter::once(("sync", &self.sync));
        let finalize = self.finalize.iter().map(|call| ("finalize", call));
        let customize = self.customize.iter().map(|call| ("customize", call));
        sync.chain(finalize).chain(customize)
    }

    /// Returns the policies that the composite calls.
    pub fn policies(&self) -> impl Iterator<Item = &InProcess> {
        let calls = self.calls();
        calls.filter_map(|(_, call)| call.in_process.as_ref())
    }

    /// Checks whether the composite selects a parent with these labels.
    #[must_use]
    pub fn selects(&self, labels: &std::collections::BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }

    /// Checks whether a parent has the finalizer of the composite.
    #[must_use]
    pub fn holds(&self, parent: &ObjectMeta) -> bool {
        drift::has_finalizer(parent, &self.finalizer)
    }
}

/// Returns the name of a source, or the beginning of the name that the API server is going to give it.
pub(super) fn name_of(metadata: &ObjectMeta, violations: &mut Vec<Violation>) -> Option<String> {
    let name = metadata.name.as_ref().or(metadata.generate_name.as_ref());
    if name.is_none() {
        violations.push(Violation::new("metadata.name", "is missing"));
    }
    name.cloned()
}

/// Returns the form of a source that functions receive: without its status and managed fields.
pub(super) fn as_told<S: Resource + Clone + Serialize>(source: &S) -> serde_json::Value {
    let mut source = source.clone();
    source.meta_mut().managed_fields = None;
    let mut told = serde_json::to_value(source).unwrap_or_default();
    if let Some(fields) = told.as_object_mut() {
        fields.remove("status");
    }
    told
}

/// Returns the selector of the parents.
pub(super) fn parents(
    selector: Option<&LabelSelector>,
    field: &str,
    violations: &mut Vec<Violation>,
) -> Selector {
    match selector.cloned().map(Selector::try_from) {
        Some(Ok(selector)) => selector,
        Some(Err(error)) => {
            let message = format!("is not a label selector: {error}");
            violations.push(Violation::new(field, message));
            Selector::default()
        }
        None => Selector::default(),
    }
}

fn children(
    spec: &CompositeControllerSpec,
    violations: &mut Vec<Violation>,
) -> Vec<(KindName, Method)> {
    let mut children: Vec<(KindName, Method)> = Vec::new();
    if spec.child_resources.len() > MOST_KINDS {
        let message = format!("has more than {MOST_KINDS} kinds");
        violations.push(Violation::new("spec.childResources", message));
    }
    for (index, child) in spec.child_resources.iter().take(MOST_KINDS).enumerate() {
        let field = format!("spec.childResources[{index}]");
        let name = KindName {
            api_version: child.api_version.clone(),
            resource: child.resource.clone(),
        };
        reserved(&name, &field, violations);
        if children.iter().any(|(known, _)| *known == name) {
            violations.push(Violation::new(
                field.clone(),
                format!("{name} exists twice"),
            ));
        }
        let method = child.update_strategy.as_ref();
        let method = method
            .and_then(|strategy| strategy.method)
            .unwrap_or_default();
        if matches!(method, Method::RollingRecreate | Method::RollingInPlace) {
            let message = format!(
                "{method:?} is not supported yet; the methods are OnDelete, Recreate and InPlace"
            );
            let field = format!("{field}.updateStrategy.method");
            violations.push(Violation::new(field, message));
        }
        children.push((name, method));
    }
    children
}

pub(super) fn reserved(kind: &KindName, field: &str, violations: &mut Vec<Violation>) {
    if kind.resource.is_empty() || kind.api_version.is_empty() {
        violations.push(Violation::new(field, "names no kind"));
    }
    if !is_kind(kind) {
        violations.push(Violation::new(
            field,
            format!("{kind} is not a kind with a plural name"),
        ));
    }
    if RESERVED_GROUPS.contains(&kind.group()) || kind.resource == "customresourcedefinitions" {
        let message = format!("{kind} is reserved: composites neither read nor write it");
        violations.push(Violation::new(field, message));
    }
}

/// Checks a kind of parent. Roles and bindings cannot be parents: a function derives rights from its parent, and must
/// not derive them from existing rights.
pub(super) fn reserved_parent(kind: &KindName, field: &str, violations: &mut Vec<Violation>) {
    reserved(kind, field, violations);
    if kind.group() == oz_api::RBAC_GROUP {
        let message = format!("{kind} is reserved: it can be a child, but not a parent");
        violations.push(Violation::new(field, message));
    }
}

pub(super) fn not_yet(is_there: bool, field: &str, violations: &mut Vec<Violation>) {
    if is_there {
        violations.push(Violation::new(field, "is not supported yet"));
    }
}

impl Call {
    fn from_hook(hook: &Hook, field: &str, violations: &mut Vec<Violation>) -> Option<Self> {
        let Some(webhook) = &hook.webhook else {
            violations.push(Violation::new(format!("{field}.webhook"), "is missing"));
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
            violations.push(Violation::new(field, "has neither url nor service"));
            return None;
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            violations.push(Violation::new(field, "must begin with http:// or https://"));
            return None;
        }
        let asked = webhook.timeout.as_deref().map(str::parse::<GoDuration>);
        let timeout = match asked {
            Some(Err(error)) => {
                violations.push(Violation::new(
                    format!("{field}.timeout"),
                    error.to_string(),
                ));
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

/// Returns the URL of a function; `None` if the webhook has neither a URL nor a service.
#[must_use]
pub fn address(webhook: &Webhook) -> Option<String> {
    if let Some(url) = webhook.url.as_ref().filter(|url| !url.is_empty()) {
        return Some(url.clone());
    }
    let service = webhook.service.as_ref()?;
    let protocol = service.protocol.as_deref().unwrap_or("http");
    let (name, namespace) = (&service.name, &service.namespace);
    let port = service.port.unwrap_or(80);
    let mut url = format!("{protocol}://{name}.{namespace}:{port}/");
    let path = webhook.path.as_deref();
    url.extend(path.map(|path| path.strip_prefix('/').unwrap_or(path)));
    Some(url)
}
