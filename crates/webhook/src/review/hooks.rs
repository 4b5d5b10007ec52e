//! The registration of the hooks of reviews.

use oz_admission::{Hook, NamespaceScope, Operation, ResourceRule, SideEffects};
use oz_api::AccessReview;
use oz_core::kinds::Kind as _;

use super::seal::Sealer;
use super::validate::ReviewValidator;
use crate::hooks::{Grounds, by_the_system, path, quoted};

/// Returns the hooks of reviews.
pub(crate) fn hooks(grounds: &Grounds) -> [Hook; 2] {
    let kind = AccessReview::NAME;
    let not_by_oz = format!("request.userInfo.username != {}", quoted(&grounds.operator));
    let seal = Hook::mutating(
        &format!("seal-{kind}"),
        Sealer {
            keys: grounds.keys.clone(),
        },
    )
    .on([Operation::Create, Operation::Update])
    .namespaces(NamespaceScope::All)
    .reinvoke(true)
    .side_effects(SideEffects::None)
    .when("not-by-oz", &not_by_oz)
    .path(&path::<AccessReview>("mutate"))
    .webhook_name(&format!("m{kind}.kb.io"));
    let validator = ReviewValidator {
        keys: grounds.keys.clone(),
        operator: grounds.operator.clone(),
        records: grounds.records.clone(),
    };
    let validate = Hook::validating(&format!("validate-{kind}"), validator)
        .on([Operation::Create, Operation::Update, Operation::Delete])
        .also(
            ResourceRule::from_type::<AccessReview>()
                .subresource("status")
                .on([Operation::Update]),
        )
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::NoneOnDryRun)
        .when("not-by-oz", &not_by_oz)
        .when(
            "not-a-deletion-by-the-system",
            &format!(
                "!(request.operation == 'DELETE' && ({}))",
                by_the_system(grounds)
            ),
        )
        .path(&path::<AccessReview>("validate"))
        .webhook_name(&format!("v{kind}.kb.io"));
    [seal, validate]
}
