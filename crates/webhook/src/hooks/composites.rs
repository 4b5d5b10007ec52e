//! The hooks of CompositeControllers and RegoControllers as they are registered.

use oz_admission::{Hook, NamespaceScope, Operation, SideEffects};
use oz_core::composite::Source;
use oz_core::composite::api::CompositeController;
use oz_core::composite::rego::RegoController;

use super::{GARBAGE_COLLECTOR, Grounds, quoted};
use crate::guard_composite::CompositeGuard;

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
