//! The registration of the hooks of AccessPolicies.

use oz_admission::{FailurePolicy, Hook, NamespaceScope, Operation, SideEffects};
use oz_api::AccessPolicy;
use oz_core::kinds::Kind as _;

use super::judge::Judges;
use super::validate::{DELETION_TIMEOUT, PolicyDeletions, PolicyValidator};
use crate::hooks::{Grounds, path, validating};

/// Returns the hooks. A policy cannot be written without the webhook; a user with the right to
/// delete one can do so while the webhook is down.
pub(crate) fn hooks(grounds: &Grounds, judges: Judges) -> [Hook; 2] {
    let kind = AccessPolicy::NAME;
    let validator = PolicyValidator {
        operator: grounds.operator.clone(),
        records: grounds.records.clone(),
        judges,
    };
    let validate = validating::<AccessPolicy>(
        grounds,
        Hook::validating(&format!("validate-{kind}"), validator),
    );
    let deletions = PolicyDeletions {
        records: grounds.records.clone(),
    };
    let observe = Hook::validating(&format!("observe-deletion-{kind}"), deletions)
        .on([Operation::Delete])
        .failure(FailurePolicy::Ignore)
        .timeout(DELETION_TIMEOUT)
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::NoneOnDryRun)
        .path(&path::<AccessPolicy>("observe-deletion"))
        .webhook_name(&format!("d{kind}.kb.io"));
    [validate, observe]
}
