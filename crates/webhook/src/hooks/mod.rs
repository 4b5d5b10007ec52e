//! The registration of the webhooks: the requests that each receives, its published name and path,
//! and its exceptions.

pub(crate) mod composites;
mod connections;
mod copies;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::Resource;
use oz_admission::{
    FailurePolicy, Hook, NamespaceScope, Operation, ResourceRule, SideEffects, mutate_fn,
};
use oz_api::{AccessReview, labels};
use oz_audit::Sink;
use oz_composites::Account;
use oz_core::access::extra::ExtraKeys;
use oz_core::access::seal::Keys;
use oz_core::canary::UsedWords;
use oz_core::for_each_kind;
use oz_core::kinds::{AccessRequest, AccessTemplate, Family, Kind};
use oz_core::transient::Policy;
use oz_runtime::Feeds;
use oz_trail::{AuditEvent, Mode};

use crate::connect::{self, Connect, Connections};
use crate::deletion::DeletionObserver;
use crate::guard_copies::Copies;
use crate::guard_namespace::NamespaceGuard;
use crate::guard_role_binding::RoleBindingGuard;
use crate::limits::RequestCounter;
use crate::lock::{self, Locks};
use crate::policy::{self, Judges};
use crate::stamp::{Sealing, Stamper};
use crate::transient::{self, WaitingBindings};
use crate::validate_audit_event::AuditEventGuard;
use crate::validate_request::RequestValidator;
use crate::validate_template::TemplateValidator;
use crate::watched::Watched;
use crate::{approval, harness, note_author, review};

/// The user that follows owner references; it must be able to do so while the webhook is down.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// The same component in a cluster where each controller has a separate account.
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// The data and components on which the hooks base their decisions.
pub(crate) struct Grounds {
    pub(crate) keys: Keys,
    /// The used words of the operator's canary.
    pub(crate) words: Arc<UsedWords>,
    pub(crate) records: Arc<dyn Sink>,
    /// oz's own namespace.
    pub(crate) namespace: Arc<str>,
    /// The namespaces that the operator serves; empty for all.
    pub(crate) served: Arc<[String]>,
    /// The operator's user name.
    pub(crate) operator: Arc<str>,
    /// The keys of the extra attributes of requesters that are stamped.
    pub(crate) extra_keys: ExtraKeys,
    /// The policy that limits transient bindings.
    pub(crate) policy: Arc<Policy>,
    /// True if the published kinds of transient bindings are served.
    pub(crate) serve_example_com: bool,
    /// The account with which composites read and write, if they run.
    pub(crate) composite_account: Option<Account>,
    /// The parents of composites with children that hand out rights; empty if composites do not
    /// run.
    pub(crate) parents: composites::Parents,
    /// The namespaces of policies.
    pub(crate) policy_namespaces: Vec<String>,
    /// True if harness runs are served.
    pub(crate) harness: bool,
    /// The webhook's own user name.
    pub(crate) webhook: Arc<str>,
    /// The broker's user name.
    pub(crate) broker: Arc<str>,
    /// The gate's user name.
    pub(crate) gate: Arc<str>,
    pub(crate) connections: Connections,
    pub(crate) counter: RequestCounter,
    pub(crate) copies: Copies,
    /// The groups with access to every pod, also while oz is down.
    pub(crate) break_glass: Vec<String>,
}

/// Returns the hooks of all kinds. Those of oz's own transient bindings are registered also if no
/// binding is allowed, so that a user who creates one learns that it has no effect. Templates are
/// watched through `feeds`.
pub(crate) fn hooks(grounds: &Grounds, feeds: &Feeds) -> Vec<Hook> {
    let mut all = Vec::new();
    let connections = &grounds.connections;
    let judges = Judges::new(
        feeds,
        connections.grants.clone(),
        connections.policies.clone(),
        grounds.extra_keys.clone(),
    );
    let mut approved: Vec<Box<dyn approval::Approvable>> = Vec::new();
    let (locks, reviews) = (Locks::new(feeds), Watched(feeds.store()));
    for_each_kind!(requests R => {
        let templates = Watched(feeds.store());
        approved.push(Box::new(approval::Requests::<R> {
            templates: templates.clone(),
            judges: judges.clone(),
        }));
        all.push(stamp::<R>(grounds, &templates, &judges));
        all.push(request::<R>(grounds, templates, (&locks, &reviews)));
    });
    for_each_kind!(requested R => {
        if is_served::<R>(grounds) {
            all.push(deletion::<R>(grounds));
        }
    });
    for_each_kind!(bindings B => {
        approved.push(Box::new(approval::Bindings::<B>::new(&judges, &grounds.namespace)));
    });
    let run_templates = grounds.harness.then(|| harness::RunTemplates::new(feeds));
    if let Some(templates) = run_templates.clone() {
        let judges = judges.clone();
        approved.push(Box::new(approval::Runs { templates, judges }));
    }
    all.extend(approval::hooks(grounds, approved, &locks));
    all.extend(lock::hooks(grounds));
    all.extend(policy::hooks(grounds, judges.clone()));
    all.extend(review::hooks(grounds));
    for_each_kind!(templates T => {
        all.push(template::<T>(grounds));
        if T::NOTES_AUTHOR {
            all.push(note_author::<T>(grounds));
        }
    });
    all.extend([
        audit_events(grounds),
        connection(grounds, &locks, Mode::Observing),
        connection(grounds, &locks, Mode::Enforcing),
        connection(grounds, &locks, Mode::BreakGlass),
        guard_namespace(grounds),
        guard_role_binding(grounds),
        copies::roles(grounds),
        copies::bindings(grounds),
    ]);
    all.extend(composites::guards(grounds));
    all.extend(composites::stamps(grounds));
    all.extend(composites::policies(grounds));
    if let Some(templates) = &run_templates {
        all.extend(harness::hooks(grounds, feeds, &locks, (&judges, templates)));
    }
    let mut waiting = WaitingBindings::default();
    for_each_kind!(bindings B => { waiting.watch::<B>(feeds) });
    if grounds.serve_example_com {
        for_each_kind!(published B => { waiting.watch::<B>(feeds) });
    }
    let watches = transient::Watches {
        locks,
        reviews,
        waiting,
    };
    for_each_kind!(bindings B => {
        all.extend(transient::hooks::<B>(grounds, &judges, &watches));
    });
    if grounds.serve_example_com {
        for_each_kind!(published B => {
            all.extend(transient::hooks::<B>(grounds, &judges, &watches));
        });
    }
    all
}

/// Returns the hook of AuditEvents. It is not called for oz's own processes: the audit trail does
/// not depend on the webhook.
fn audit_events(grounds: &Grounds) -> Hook {
    let guard = AuditEventGuard {
        operator: grounds.operator.clone(),
        webhook: grounds.webhook.clone(),
        broker: grounds.broker.clone(),
        gate: grounds.gate.clone(),
    };
    let kind = AuditEvent::NAME;
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
        .path(&path::<AuditEvent>("validate"))
        .webhook_name(&format!("v{kind}.kb.io"))
}

/// Returns the stamp hook, which has no exceptions: a request without a stamp is never granted.
fn stamp<R: AccessRequest>(
    grounds: &Grounds,
    templates: &Watched<R::Template>,
    judges: &Judges,
) -> Hook {
    let kind = R::NAME;
    let (keys, operator) = (grounds.keys.clone(), grounds.operator.clone());
    let handler = Stamper::<R> {
        sealing: Sealing::new(keys.clone()),
        words: (keys, Arc::clone(&grounds.words)),
        templates: templates.clone(),
        judges: judges.clone(),
        operator,
        kind: PhantomData,
    };
    Hook::mutating(&format!("stamp-{kind}"), handler)
        .on([Operation::Create])
        .namespaces(NamespaceScope::All)
        .reinvoke(true)
        .side_effects(SideEffects::None)
        .path(&path::<R>("mutate"))
        .webhook_name(&format!("m{kind}.kb.io"))
}

fn request<R: AccessRequest>(
    grounds: &Grounds,
    templates: Watched<R::Template>,
    (locks, reviews): (&Locks, &Watched<AccessReview>),
) -> Hook {
    let handler = RequestValidator::<R> {
        keys: grounds.keys.clone(),
        templates,
        reviews: reviews.clone(),
        namespace: grounds.namespace.clone(),
        served: grounds.served.clone(),
        operator: grounds.operator.clone(),
        records: grounds.records.clone(),
        counter: grounds.counter.clone(),
        locks: locks.clone(),
        kind: PhantomData,
    };
    validating::<R>(
        grounds,
        Hook::validating(&format!("validate-{}", R::NAME), handler),
    )
}

/// Checks whether the kind is served.
fn is_served<R: Kind>(grounds: &Grounds) -> bool {
    match R::FAMILY {
        Family::Access => true,
        Family::Published => grounds.serve_example_com,
        Family::Harness => grounds.harness,
        Family::Composites => grounds.composite_account.is_some(),
    }
}

/// Returns the hook that observes deletions, which end access: they do not depend on its response,
/// and deletions by Kubernetes or oz that end access do not call it.
fn deletion<R: Kind>(grounds: &Grounds) -> Hook {
    let kind = R::title().to_ascii_lowercase();
    // Both groups of transient bindings contain kinds with these names.
    let kind = match R::FAMILY {
        Family::Published => format!("published-{kind}"),
        _ => kind,
    };
    let handler = DeletionObserver::<R>::new(grounds.records.clone());
    Hook::validating(&format!("observe-deletion-{kind}"), handler)
        .on([Operation::Delete])
        .failure(FailurePolicy::Ignore)
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::NoneOnDryRun)
        .path(&path_of::<R>("observe-deletion"))
        .webhook_name(&format!("d{kind}.kb.io"))
        .when(
            "not-by-oz-or-the-system",
            &format!("!({})", by_the_system(grounds)),
        )
}

/// Returns the condition for a request by oz, or by the components that follow owner references and
/// delete the contents of namespaces.
pub(crate) fn by_the_system(grounds: &Grounds) -> String {
    format!(
        "request.userInfo.username in [{}, {}] || {}",
        quoted(&grounds.operator),
        quoted(CONTROLLER_MANAGER),
        in_groups(&SYSTEM.map(ToOwned::to_owned)),
    )
}

fn template<T: AccessTemplate>(grounds: &Grounds) -> Hook {
    let handler = TemplateValidator::<T> {
        namespace: grounds.namespace.clone(),
        operator: grounds.operator.clone(),
        records: grounds.records.clone(),
        policies: grounds.connections.policies.clone(),
        kind: PhantomData,
    };
    validating::<T>(
        grounds,
        Hook::validating(&format!("validate-{}", T::NAME), handler),
    )
}

/// Returns the hook that notes the author of a template. It is not called for the garbage
/// collector, which follows owner references of templates as well and changes no spec.
fn note_author<T: AccessTemplate>(grounds: &Grounds) -> Hook {
    let kind = T::NAME;
    let handler = mutate_fn(note_author::note_author::<T>);
    Hook::mutating(&format!("note-author-{kind}"), handler)
        .on([Operation::Create, Operation::Update])
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::None)
        .reinvoke(true)
        .path(&path::<T>("mutate"))
        .webhook_name(&format!("m{kind}.kb.io"))
        .when(
            "not-an-update-by-those-who-end-access",
            &format!(
                "!(request.operation == 'UPDATE' && request.userInfo.username in [{}, {}])",
                quoted(&grounds.operator),
                quoted(GARBAGE_COLLECTOR)
            ),
        )
}

/// Configures a hook so that it checks neither deletions, which end access, nor the updates of the
/// components that end access while the webhook is down.
pub(crate) fn validating<K: Kind>(grounds: &Grounds, hook: Hook) -> Hook {
    hook.also(
        ResourceRule::from_type::<K>()
            .subresource("status")
            .on([Operation::Update]),
    )
    .namespaces(NamespaceScope::All)
    .side_effects(SideEffects::NoneOnDryRun)
    .when(
        "not-an-update-by-those-who-end-access",
        &not_by_those_who_end_access(grounds),
    )
    .path(&path::<K>("validate"))
    .webhook_name(&format!("v{}.kb.io", K::NAME))
}

/// Returns the condition that excludes updates by the operator, and those by the garbage collector
/// outside the status.
pub(crate) fn not_by_those_who_end_access(grounds: &Grounds) -> String {
    format!(
        "!(request.operation == 'UPDATE' && (request.userInfo.username == {} \
             || request.userInfo.username == {} && !has(request.subResource)))",
        quoted(&grounds.operator),
        quoted(GARBAGE_COLLECTOR)
    )
}

/// Returns one of three registrations of the hook for connections. In observing namespaces, it only
/// records connections and must not block them, except those to the credentials of harness runs. In
/// enforcing namespaces, no connection is possible
/// without it, except by break-glass groups, and it records their connections. Nodes, the system's
/// controllers and the operator do not call it.
fn connection(grounds: &Grounds, locks: &Locks, mode: Mode) -> Hook {
    let handler = Connect {
        mode,
        connections: grounds.connections.clone(),
        locks: locks.clone(),
    };
    let (name, path, failure, enforced) = match mode {
        // The path of the original's watcher.
        Mode::Observing => ("vpod", "/watch-v1-pod", FailurePolicy::Ignore, false),
        Mode::Enforcing => ("connect", "/connect-enforced", FailurePolicy::Fail, true),
        Mode::BreakGlass => (
            "connect-break-glass",
            "/connect-break-glass",
            FailurePolicy::Ignore,
            true,
        ),
    };
    let hook = Hook::mutating_on(
        &format!("observe-{name}"),
        connections::streams(enforced || grounds.harness),
        handler,
    );
    let hook = connections::changed(enforced)
        .into_iter()
        .fold(hook, Hook::also)
        .namespaces(NamespaceScope::Matching(enforcing(enforced)))
        .side_effects(SideEffects::NoneOnDryRun)
        .failure(failure)
        .timeout(connect::TIMEOUT)
        .path(path)
        .webhook_name(&format!("{name}.kb.io"))
        .when(
            "not-the-system",
            &format!(
                "!(request.userInfo.username == {} || {})",
                quoted(&grounds.operator),
                in_groups(&SYSTEM.map(ToOwned::to_owned)),
            ),
        );
    let hook = if enforced {
        hook.when(
            "not-an-update-that-keeps-the-images",
            &connections::another_image(),
        )
    } else {
        hook
    };
    let glass = in_groups(&grounds.break_glass);
    match mode {
        Mode::Observing => hook,
        Mode::Enforcing => hook.when("not-break-glass", &format!("!({glass})")),
        Mode::BreakGlass => hook.when("break-glass", &glass),
    }
}

/// The groups that connect to pods to run the cluster.
const SYSTEM: [&str; 2] = ["system:nodes", "system:serviceaccounts:kube-system"];

/// Returns the selector for the namespaces with the label, or for those without.
fn enforcing(yes: bool) -> LabelSelector {
    if yes {
        return LabelSelector {
            match_labels: Some(BTreeMap::from([(
                labels::ENFORCE.to_owned(),
                "true".to_owned(),
            )])),
            match_expressions: None,
        };
    }
    LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: labels::ENFORCE.to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec!["true".to_owned()]),
        }]),
    }
}

/// Returns the condition that the user is a member of one of these groups.
pub(crate) fn in_groups(groups: &[String]) -> String {
    let groups: Vec<String> = groups.iter().map(|group| quoted(group)).collect();
    format!(
        "has(request.userInfo.groups) && request.userInfo.groups.exists(group, group in [{}])",
        groups.join(", ")
    )
}

/// Returns the hook for the removal of the label that makes a namespace enforcing; all other
/// changes of namespaces do not call it. A user who may write only the status or the finalizers of
/// a namespace can write its labels as well: the API server protects only the spec from such a
/// write.
fn guard_namespace(grounds: &Grounds) -> Hook {
    let label = quoted(labels::ENFORCE);
    let has = |object: &str| {
        format!(
            "has({object}.metadata.labels) && {label} in {object}.metadata.labels && \
             {object}.metadata.labels[{label}] == 'true'"
        )
    };
    let others = ResourceRule::from_type::<Namespace>()
        .subresource("status")
        .subresource("finalize")
        .on([Operation::Update]);
    let guard = NamespaceGuard {
        records: grounds.records.clone(),
    };
    Hook::validating("guard-namespace", guard)
        .on([Operation::Update])
        .also(others)
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::NoneOnDryRun)
        .path("/guard-namespace")
        .webhook_name("guard-namespace.kb.io")
        .when(
            "the-enforcing-label-is-removed",
            &format!("({}) && !({})", has("oldObject"), has("object")),
        )
        .when(
            "not-break-glass",
            &format!("!({})", in_groups(&grounds.break_glass)),
        )
}

/// Returns the hook for bindings to Roles with names that are reserved for grants.
fn guard_role_binding(grounds: &Grounds) -> Hook {
    Hook::validating("guard-rolebinding", RoleBindingGuard)
        .on([Operation::Create])
        .failure(FailurePolicy::Ignore)
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::None)
        .path("/guard-rolebinding")
        .webhook_name("guard-rolebinding.kb.io")
        .when(
            "to-a-role-of-a-grant",
            "object.roleRef.kind == 'Role' && object.roleRef.name.startsWith('oz-grant-')",
        )
        .when(
            "not-by-oz-or-break-glass",
            &format!(
                "!(request.userInfo.username == {} || {})",
                quoted(&grounds.operator),
                in_groups(&grounds.break_glass)
            ),
        )
}

/// Returns the path of a hook for a kind, as the original defines it.
pub(crate) fn path<K: Kind>(verb: &str) -> String {
    path_of::<K>(verb)
}

/// Returns the path of a hook for a kind that is not in the registry.
fn path_of<K: Resource<DynamicType = ()>>(verb: &str) -> String {
    let (group, version) = (K::group(&()), K::version(&()));
    let kind = K::kind(&()).to_ascii_lowercase();
    format!("/{verb}-{}-{version}-{kind}", group.replace('.', "-"))
}

/// Returns a string literal of CEL; the escapes of JSON are valid in CEL.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
