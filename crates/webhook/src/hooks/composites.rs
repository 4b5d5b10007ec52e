//! The hooks of CompositeControllers and RegoControllers, and of their parents, as they are registered.

use oz_admission::{
    FailurePolicy, Hook, ManagerBuilder, NamespaceScope, Operation, ResourceRule, Rules, Selection,
    SideEffects,
};
use oz_api::composite::CompositeController;
use oz_api::rego::RegoController;
use oz_composites::Source;

use super::{GARBAGE_COLLECTOR, Grounds, quoted};
use crate::guard_composite::CompositeGuard;
use crate::observe_policy::PolicyObserver;
use crate::stamp_parent::ParentStamper;

/// Declarations are asked about only where composites run.
pub(super) fn guards(grounds: &Grounds) -> impl Iterator<Item = Hook> {
    let hooks = [guard::<CompositeController>, guard::<RegoController>];
    hooks.into_iter().filter_map(|hook| hook(grounds))
}

/// Status and deletion are not asked about, and neither are updates of those who take finalizers off when one
/// ends: that goes on without us.
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

/// The kinds of parents whose authors must be known, by what declares them.
pub(crate) type Parents = Vec<(&'static str, Rules)>;

/// Follows which kinds these are.
pub(crate) fn parents(manager: &mut ManagerBuilder) -> Parents {
    vec![
        followed::<CompositeController>(manager),
        followed::<RegoController>(manager),
    ]
}

fn followed<S: Source>(manager: &mut ManagerBuilder) -> (&'static str, Rules) {
    let declarations = manager.cache::<S>(Selection::default());
    (S::NAME, declarations.rules(asks_authors::<S>))
}

/// Returns the rules for the parents of a declaration whose authors are checked; none for an invalid declaration. For built-in
/// kinds, the rules include the status subresource, which can change annotations; that of a custom resource cannot.
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

/// Other people's objects do not wait for us: one that was not stamped gets no children that hand out rights, and adopts
/// nothing.
pub(super) fn stamps(grounds: &Grounds) -> impl Iterator<Item = Hook> {
    grounds.parents.iter().map(|(declared, rules)| {
        let name = format!("stamp-parents-{declared}");
        Hook::mutating_on(&name, None, ParentStamper::new(grounds.keys.clone()))
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

/// Policies are other people's ConfigMaps: nobody waits for us, and what Kubernetes itself puts into each namespace is
/// none.
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
