//! The webhooks as they are registered: which requests each sees, under which published name and
//! path, and whom it leaves alone.

use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource;
use oz_admission::{Hook, NamespaceScope, Operation, ResourceRule, SideEffects};
use oz_core::access::seal::Keys;
use oz_core::api::{
    AuditEvent, ExecAccessRequest, ExecAccessTemplate, GROUP, PodAccessRequest, PodAccessTemplate,
    VERSION,
};
use oz_core::transient::Policy;
use oz_engine::Sink;

use crate::kinds::{AccessRequest, AccessTemplate};
use crate::stamp::Stamper;
use crate::templates::Templates;
use crate::transient;
use crate::validate_audit_event::AuditEventGuard;
use crate::validate_request::RequestValidator;
use crate::validate_template::TemplateValidator;

/// Follows owner references; it must be able to when we are down.
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// What the hooks decide by.
pub(crate) struct Grounds {
    pub(crate) keys: Keys,
    pub(crate) exec_templates: Templates<ExecAccessTemplate>,
    pub(crate) pod_templates: Templates<PodAccessTemplate>,
    pub(crate) records: Arc<dyn Sink>,
    /// oz's own namespace.
    pub(crate) namespace: Arc<str>,
    /// The operator's user name.
    pub(crate) operator: Arc<str>,
    /// What transient bindings may bind.
    pub(crate) policy: Arc<Policy>,
    /// Whether the published kinds of transient bindings are served.
    pub(crate) serve_example_com: bool,
    /// The webhook's own user name.
    pub(crate) webhook: Arc<str>,
}

/// All hooks.
pub(crate) fn hooks(grounds: &Grounds) -> Vec<Hook> {
    let mut hooks = vec![
        stamp::<ExecAccessRequest>(grounds, &grounds.exec_templates),
        stamp::<PodAccessRequest>(grounds, &grounds.pod_templates),
        request::<ExecAccessRequest>(grounds, &grounds.exec_templates),
        request::<PodAccessRequest>(grounds, &grounds.pod_templates),
        template::<ExecAccessTemplate>(grounds),
        template::<PodAccessTemplate>(grounds),
        audit_events(grounds),
    ];
    hooks.extend(transient::hooks(grounds));
    hooks
}

/// oz's own processes are not asked about: the trail does not depend on us being up.
fn audit_events(grounds: &Grounds) -> Hook {
    let guard = AuditEventGuard {
        operator: grounds.operator.clone(),
        webhook: grounds.webhook.clone(),
    };
    let kind = kind::<AuditEvent>();
    Hook::validating(&format!("guard-{kind}"), guard)
        .on([Operation::Create, Operation::Update, Operation::Delete])
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::None)
        .when(
            "not-by-oz-itself",
            &format!(
                "!(request.operation == 'CREATE' && request.userInfo.username in [{operator}, {}]) \
                 && !(request.operation == 'DELETE' && request.userInfo.username == {operator})",
                quoted(&grounds.webhook),
                operator = quoted(&grounds.operator),
            ),
        )
        .path(&path("validate", &kind))
        .webhook_name(&format!("v{kind}.kb.io"))
}

/// Nobody is left out: a request that is not stamped is never granted.
fn stamp<R: AccessRequest>(grounds: &Grounds, templates: &Templates<R::Template>) -> Hook {
    let kind = kind::<R>();
    let handler = Stamper::<R>::new(grounds.keys.clone(), templates.clone());
    Hook::mutating(&format!("stamp-{kind}"), handler)
        .on([Operation::Create])
        .namespaces(NamespaceScope::All)
        .reinvoke(true)
        .side_effects(SideEffects::None)
        .path(&path("mutate", &kind))
        .webhook_name(&format!("m{kind}.kb.io"))
}

fn request<R: AccessRequest>(grounds: &Grounds, templates: &Templates<R::Template>) -> Hook {
    let handler = RequestValidator::<R> {
        keys: grounds.keys.clone(),
        templates: templates.clone(),
        namespace: grounds.namespace.clone(),
        operator: grounds.operator.clone(),
        records: grounds.records.clone(),
        kind: PhantomData,
    };
    validating::<R>(
        grounds,
        Hook::validating(&format!("validate-{}", kind::<R>()), handler),
    )
}

fn template<T: AccessTemplate>(grounds: &Grounds) -> Hook {
    let handler = TemplateValidator::<T> {
        namespace: grounds.namespace.clone(),
        operator: grounds.operator.clone(),
        records: grounds.records.clone(),
        kind: PhantomData,
    };
    validating::<T>(
        grounds,
        Hook::validating(&format!("validate-{}", kind::<T>()), handler),
    )
}

/// Deletion is never gated: it is how access ends. The updates of those who end it when we are down
/// are not gated either.
pub(crate) fn validating<K: Resource<DynamicType = ()>>(grounds: &Grounds, hook: Hook) -> Hook {
    let kind = kind::<K>();
    hook.also(
        ResourceRule::of::<K>()
            .subresource("status")
            .on([Operation::Update]),
    )
    .namespaces(NamespaceScope::All)
    .side_effects(SideEffects::NoneOnDryRun)
    .when(
        "not-an-update-by-those-who-end-access",
        &format!(
            "!(request.operation == 'UPDATE' && (request.userInfo.username == {} \
                 || request.userInfo.username == {} && !has(request.subResource)))",
            quoted(&grounds.operator),
            quoted(GARBAGE_COLLECTOR)
        ),
    )
    .path(&path("validate", &kind))
    .webhook_name(&format!("v{kind}.kb.io"))
}

fn kind<K: Resource<DynamicType = ()>>() -> String {
    K::kind(&()).to_ascii_lowercase()
}

fn path(verb: &str, kind: &str) -> String {
    format!("/{verb}-{}-{VERSION}-{kind}", GROUP.replace('.', "-"))
}

/// A string of CEL; JSON's escapes are CEL's as well.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
