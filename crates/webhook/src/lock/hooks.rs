//! The registration of the hooks of locks.

use oz_admission::{FailurePolicy, Hook, NamespaceScope, Operation, SideEffects};
use oz_api::AccessLock;
use oz_core::kinds::Kind as _;

use super::validate::LockGuard;
use crate::hooks::{Grounds, in_groups, path};

/// Returns two registrations of one hook. A lock takes effect also while the webhook is down, and
/// break-glass groups never wait for the webhook. A change that grants access again is recorded
/// first.
pub(crate) fn hooks(grounds: &Grounds) -> [Hook; 2] {
    let glass = in_groups(&grounds.break_glass);
    let hook = |verb: &str, operations: &[Operation]| {
        let guard = LockGuard {
            records: grounds.records.clone(),
            break_glass: grounds.break_glass.clone(),
        };
        let kind = AccessLock::NAME;
        Hook::validating(&format!("guard-{verb}-{kind}"), guard)
            .on(operations.iter().copied())
            .namespaces(NamespaceScope::All)
            .side_effects(SideEffects::NoneOnDryRun)
            .path(&path::<AccessLock>(verb))
            .webhook_name(&format!("guard-{verb}-{kind}.kb.io"))
    };
    let all = [Operation::Create, Operation::Update, Operation::Delete];
    let change = [Operation::Update, Operation::Delete];
    [
        hook("lock", &all).failure(FailurePolicy::Ignore).when(
            "made-or-by-break-glass",
            &format!("request.operation == 'CREATE' || ({glass})"),
        ),
        hook("unlock", &change).when("not-break-glass", &format!("!({glass})")),
    ]
}
