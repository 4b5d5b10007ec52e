//! The webhooks of transient bindings as they are registered.

use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource;
use oz_admission::{Hook, NamespaceScope, Operation, SideEffects};
use oz_core::api::{TransientClusterRoleBinding, TransientRoleBinding, example_com};
use oz_core::transient::Kind;

use super::stamp::BindingStamper;
use super::validate::BindingValidator;
use crate::hooks::{Grounds, validating};

/// The hooks of every kind that is served. Those of our own kinds are there whether or not anything
/// may be bound: who creates one is to learn that nothing comes of it.
pub(crate) fn hooks(grounds: &Grounds) -> Vec<Hook> {
    let mut hooks = vec![
        stamp::<TransientRoleBinding>(grounds),
        stamp::<TransientClusterRoleBinding>(grounds),
        validate::<TransientRoleBinding>(grounds),
        validate::<TransientClusterRoleBinding>(grounds),
    ];
    if grounds.serve_example_com {
        hooks.extend([
            stamp::<example_com::RoleBinding>(grounds),
            stamp::<example_com::ClusterRoleBinding>(grounds),
            validate::<example_com::RoleBinding>(grounds),
            validate::<example_com::ClusterRoleBinding>(grounds),
        ]);
    }
    hooks
}

/// Nobody is left out: what is not stamped is never bound.
fn stamp<K: Kind>(grounds: &Grounds) -> Hook {
    let handler = BindingStamper::<K>::new(grounds.keys.clone());
    Hook::mutating(&format!("stamp-{}", K::NAME), handler)
        .on([Operation::Create])
        .namespaces(NamespaceScope::All)
        .reinvoke(true)
        .side_effects(SideEffects::None)
        .path(&path::<K>("mutate"))
        .webhook_name(&format!("m{}.kb.io", K::NAME))
}

fn validate<K: Kind>(grounds: &Grounds) -> Hook {
    let handler = BindingValidator::<K> {
        keys: grounds.keys.clone(),
        policy: Arc::clone(&grounds.policy),
        served: Arc::clone(&grounds.served),
        operator: grounds.operator.clone(),
        records: grounds.records.clone(),
        kind: PhantomData,
    };
    let hook = Hook::validating(&format!("validate-{}", K::NAME), handler);
    validating::<K>(grounds, hook)
        .path(&path::<K>("validate"))
        .webhook_name(&format!("v{}.kb.io", K::NAME))
}

fn path<K: Kind>(verb: &str) -> String {
    let (group, version) = (<K as Resource>::group(&()), K::version(&()));
    let kind = K::kind(&()).to_ascii_lowercase();
    format!("/{verb}-{}-{version}-{kind}", group.replace('.', "-"))
}
