//! The registration of the hooks for approvals and denials.

use oz_admission::{Hook, NamespaceScope, Operation, SideEffects};
use oz_api::AccessRequestApproval as Answer;
use oz_core::kinds::Kind as _;

use super::approvable::Approvable;
use super::stamp::Stamper;
use super::validate::ApprovalValidator;
use crate::hooks::{Grounds, by_the_system, not_by_those_who_end_access, path};
use crate::lock::Locks;
use crate::stamp::Sealing;

/// Returns the hooks for approvals and denials of these kinds.
pub(crate) fn hooks(
    grounds: &Grounds,
    approved: Vec<Box<dyn Approvable>>,
    locks: &Locks,
) -> [Hook; 2] {
    let kind = Answer::NAME;
    let stamp = Hook::mutating(
        &format!("stamp-{kind}"),
        Stamper(Sealing::new(grounds.keys.clone())),
    )
    .on([Operation::Create])
    .namespaces(NamespaceScope::All)
    .reinvoke(true)
    .side_effects(SideEffects::None)
    .path(&path::<Answer>("mutate"))
    .webhook_name(&format!("m{kind}.kb.io"));
    let validator = ApprovalValidator {
        keys: grounds.keys.clone(),
        namespace: grounds.namespace.clone(),
        served: grounds.served.clone(),
        records: grounds.records.clone(),
        locks: locks.clone(),
        approved,
    };
    let validate = Hook::validating(&format!("validate-{kind}"), validator)
        .on([Operation::Create, Operation::Update, Operation::Delete])
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::NoneOnDryRun)
        .when(
            "not-an-update-by-those-who-end-access",
            &not_by_those_who_end_access(grounds),
        )
        .when(
            "not-a-deletion-by-oz-or-the-system",
            &format!(
                "!(request.operation == 'DELETE' && ({}))",
                by_the_system(grounds)
            ),
        )
        .path(&path::<Answer>("validate"))
        .webhook_name(&format!("v{kind}.kb.io"));
    [stamp, validate]
}
