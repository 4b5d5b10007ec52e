//! The registration of the hooks of harness runs.

use std::sync::Arc;

use oz_admission::{Hook, Mutate, NamespaceScope, Operation, ResourceRule, SideEffects};
use oz_api::harness::HarnessRun;
use oz_core::for_each_kind;
use oz_runtime::Feeds;

use super::rules::{Checked, Reviewed};
use super::run::{RunValidator, WatchedDefinitions};
use super::stamp::{RunStamper, Stamped, Stamper};
use super::templates::RunTemplates;
use super::validate::{Installation, Validator};
use crate::hooks::{Grounds, not_by_those_who_end_access};
use crate::lock::Locks;
use crate::policy::Judges;
use crate::stamp_authors::{AuthorStamper, Authored};
use crate::watched::Watched;

/// Returns the hooks of harness runs. Templates, policies and
/// workspaces are watched through `feeds`.
pub(crate) fn hooks(
    grounds: &Grounds,
    feeds: &Feeds,
    locks: &Locks,
    (judges, templates): (&Judges, &RunTemplates),
) -> Vec<Hook> {
    let mut all = Vec::new();
    let stamper = RunStamper::new(grounds.keys.clone(), judges.clone(), templates.clone());
    all.push(stamping::<HarnessRun>(stamper));
    for_each_kind!(workspaces K => { all.push(stamp::<K>(grounds)) });
    for_each_kind!(run_policies K => { all.push(stamp_authors::<K>(grounds)) });
    all.push(run(grounds, feeds, locks, templates));
    for_each_kind!(workspaces K => { all.push(checked::<K>(grounds)) });
    for_each_kind!(run_policies K => { all.push(checked::<K>(grounds)) });
    for_each_kind!(run_templates K => { all.push(checked::<K>(grounds)) });
    all
}

/// Returns the stamp hook, which has no exceptions: an object without a stamp is never run, and
/// gets no Secret.
fn stamp<K: Stamped>(grounds: &Grounds) -> Hook {
    stamping::<K>(Stamper::<K>::new(grounds.keys.clone()))
}

fn stamping<K: Reviewed>(handler: impl Mutate<Object = K>) -> Hook {
    Hook::mutating(&format!("stamp-{}", K::NAME), handler)
        .on([Operation::Create])
        .namespaces(NamespaceScope::All)
        .reinvoke(true)
        .side_effects(SideEffects::None)
        .path(&path::<K>("mutate"))
        .webhook_name(&format!("m{}.kb.io", K::NAME))
}

/// Returns the hook that stamps each change of an object. It is not called for the operator, which
/// writes only the status, and for the garbage collector, which changes no spec.
fn stamp_authors<K: Authored + Reviewed>(grounds: &Grounds) -> Hook {
    let handler = AuthorStamper::<K>::new(grounds.keys.clone());
    Hook::mutating(&format!("stamp-{}", K::NAME), handler)
        .on([Operation::Create, Operation::Update])
        .namespaces(NamespaceScope::All)
        .reinvoke(true)
        .side_effects(SideEffects::None)
        .when(
            "not-an-update-by-those-who-end-access",
            &not_by_those_who_end_access(grounds),
        )
        .path(&path::<K>("mutate"))
        .webhook_name(&format!("m{}.kb.io", K::NAME))
}

fn run(grounds: &Grounds, feeds: &Feeds, locks: &Locks, templates: &RunTemplates) -> Hook {
    let handler = RunValidator {
        keys: grounds.keys.clone(),
        installation: installation(grounds),
        watched: WatchedDefinitions {
            templates: templates.clone(),
            policies: Watched(feeds.store()),
            workspaces: Watched(feeds.store()),
        },
        reviews: Watched(feeds.store()),
        locks: locks.clone(),
    };
    validating::<HarnessRun>(grounds, Hook::validating("validate-harnessrun", handler))
}

fn checked<K: Checked>(grounds: &Grounds) -> Hook {
    let handler = Validator::<K>::new(installation(grounds));
    let hook = Hook::validating(&format!("validate-{}", K::NAME), handler);
    validating::<K>(grounds, hook)
}

fn installation(grounds: &Grounds) -> Installation {
    Installation {
        namespace: Arc::clone(&grounds.namespace),
        served: Arc::clone(&grounds.served),
        operator: Arc::clone(&grounds.operator),
        broker: Arc::clone(&grounds.broker),
        records: Arc::clone(&grounds.records),
    }
}

/// Configures a hook so that it checks neither deletions, which end runs, nor the updates of the
/// components that end runs while the webhook is down.
fn validating<K: Reviewed>(grounds: &Grounds, hook: Hook) -> Hook {
    let status = ResourceRule::from_type::<K>().subresource("status");
    hook.also(status.on([Operation::Update]))
        .namespaces(NamespaceScope::All)
        .side_effects(SideEffects::NoneOnDryRun)
        .when(
            "not-an-update-by-those-who-end-access",
            &not_by_those_who_end_access(grounds),
        )
        .path(&path::<K>("validate"))
        .webhook_name(&format!("v{}.kb.io", K::NAME))
}

/// Returns the path of a hook for a kind, as the original defines it.
fn path<K: Reviewed>(verb: &str) -> String {
    let group = K::group(&()).replace('.', "-");
    format!("/{verb}-{group}-{}-{}", K::version(&()), K::NAME)
}
