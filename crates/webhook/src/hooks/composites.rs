//! The registration of the hooks of CompositeControllers and RegoControllers, and of their parents.

use kube::core::DynamicObject;
use oz_admission::{
    FailurePolicy, Hook, ManagerBuilder, NamespaceScope, Operation, ResourceRule, Rules, Selection,
    SideEffects,
};
use oz_composites::Source;
use oz_core::for_each_kind;

use super::{GARBAGE_COLLECTOR, Grounds, quoted};
use crate::guard_composite::CompositeGuard;
use crate::observe_policy::PolicyObserver;
use crate::stamp_authors::AuthorStamper;

/// Returns the hooks for declarations, if composites run.
pub(super) fn guards(grounds: &Grounds) -> Vec<Hook> {
    let mut hooks = Vec::new();
    for_each_kind!(composites S => { hooks.extend(guard::<S>(grounds)) });
    hooks
}

/// Returns the hook for declarations of one kind. It does not check status and deletion, nor the
/// updates of the components that remove finalizers at the end of a declaration: the removal works
/// while the webhook is down.
fn guard<S: Source>(grounds: &Grounds) -> Option<Hook> {
    let account = grounds.composite_account.clone()?;
    let name = format!("guard-{}", S::NAME);
    let hook = Hook::validating(&name, CompositeGuard::<S>::new(account))
        .on([Operation::Create, Operation::Update])
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::None)
        .path(&format!("/{name}"))
        .webhook_name(&format!("{name}.kb.io"))
        .when(
            "not-an-update-by-those-who-end-composites",
            &format!(
                "!(request.operation == 'UPDATE' && request.userInfo.username in [{}, {}])",
                quoted(&grounds.operator),
                quoted(GARBAGE_COLLECTOR)
            ),
        );
    Some(hook)
}

/// The rules for the kinds of parents with checked authors, by the kind of their declaration.
pub(crate) type Parents = Vec<(&'static str, Rules)>;

/// Watches the declarations for the kinds of parents.
pub(crate) fn parents(manager: &mut ManagerBuilder) -> Parents {
    let mut parents = Parents::new();
    for_each_kind!(composites S => { parents.push(followed::<S>(manager)) });
    parents
}

fn followed<S: Source>(manager: &mut ManagerBuilder) -> (&'static str, Rules) {
    let declarations = manager.cache::<S>(Selection::default());
    (S::NAME, declarations.rules(asks_authors::<S>))
}

/// Returns the rules for the parents of a declaration that requires checks of their authors; none
/// for an invalid declaration. For built-in kinds, the rules include the status subresource, which
/// can change annotations; that of a custom resource cannot.
fn asks_authors<S: Source>(declaration: &S) -> Vec<ResourceRule> {
    let declared = declaration.declared().ok();
    let Some(declared) = declared.filter(|declared| declared.asks_authors()) else {
        return Vec::new();
    };
    let parent = &declared.parent;
    let group = parent.group();
    let rule = ResourceRule::new(group, parent.version(), &parent.resource);
    let is_built_in = !group.contains('.') || group.ends_with(".k8s.io");
    let status = is_built_in.then(|| rule.clone().subresource("status"));
    std::iter::once(rule).chain(status).collect()
}

/// Returns the hooks that stamp parents. They fail open, since the objects belong to users: a
/// parent without a stamp gets no children that hand out rights, and adopts nothing.
pub(super) fn stamps(grounds: &Grounds) -> impl Iterator<Item = Hook> {
    grounds.parents.iter().map(|(declared, rules)| {
        let name = format!("stamp-parents-{declared}");
        Hook::mutating_on(
            &name,
            None,
            AuthorStamper::<DynamicObject>::new(grounds.keys.clone()),
        )
        .rules_from(rules)
        .on([Operation::Create, Operation::Update])
        .failure(FailurePolicy::Ignore)
        .namespaces(NamespaceScope::All)
        .reinvoke(true)
        .side_effects(SideEffects::None)
        .path(&format!("/{name}"))
        .webhook_name(&format!("{name}.kb.io"))
    })
}

/// Returns the hook for policies. It fails open, since policies are ConfigMaps of users; the
/// ConfigMap that Kubernetes creates in each namespace is no policy.
pub(super) fn policies(grounds: &Grounds) -> Option<Hook> {
    if grounds.policy_namespaces.is_empty() {
        return None;
    }
    let observer = PolicyObserver {
        records: grounds.records.clone(),
    };
    let hook = Hook::validating("observe-policy", observer)
        .on([Operation::Create, Operation::Update, Operation::Delete])
        .failure(FailurePolicy::Ignore)
        .namespaces(NamespaceScope::Only(grounds.policy_namespaces.clone()))
        .side_effects(SideEffects::NoneOnDryRun)
        .path("/observe-policy")
        .webhook_name("observe-policy.kb.io")
        .when(
            "not-what-every-namespace-has",
            "!has(request.name) || request.name != 'kube-root-ca.crt'",
        );
    Some(hook)
}
