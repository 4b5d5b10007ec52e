//! The end of all access: the objects that represent it, and the finalizers that oz has on them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, ListParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use oz_api::{GROUP, Name};
use oz_composites::Source;
use oz_core::for_each_kind;
use oz_core::kinds::{self, Entry, Family, Role, child_kinds};

use super::objects::{PAUSE, all_of_oz, children, delete, finalizers, release, unless_missing};
use super::{Here, composites, harness};

/// Returns the kinds with objects that represent access. A kind that is not installed is skipped.
fn access() -> impl Iterator<Item = Entry> {
    let all = kinds::all().into_iter();
    all.filter(|kind| {
        matches!(kind.role, Role::Request | Role::Binding) && kind.resource.group == GROUP
    })
}

/// Returns the kinds of one role.
fn with_role(role: Role) -> impl Iterator<Item = Entry> {
    let all = kinds::all().into_iter();
    all.filter(move |kind| kind.role == role)
}

impl Here<'_> {
    /// Deletes all objects that represent access, and waits until the granted objects are gone, but
    /// not longer than `patience`. Returns the remaining time.
    pub(super) async fn end_access(&self, patience: Duration) -> Result<Duration> {
        let began = Instant::now();
        loop {
            let mut left = 0;
            for kind in with_role(Role::Composite) {
                left += self.delete_all(&kind, |one| is_held(&kind, one)).await?;
            }
            if self.ends_runs {
                left += harness::end(&self.client).await?;
            }
            for kind in access() {
                left += self.delete_all(&kind, |_| true).await?;
            }
            let mut grants = 0;
            let of_access = child_kinds().into_iter();
            for kind in of_access.filter(|kind| kind.family == Family::Access && kind.is_awaited) {
                grants += children(&self.client, &kind.resource).await?.len();
            }
            if left + grants == 0 {
                return Ok(patience.saturating_sub(began.elapsed()));
            }
            if began.elapsed() > patience {
                tracing::warn!(
                    requests = left,
                    objects = grants,
                    "the operator did not revoke all access in time; the rest is removed without \
                     an audit record"
                );
                return Ok(Duration::ZERO);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Deletes the objects of a kind that `ends` selects, and returns their number, without those
    /// that only finalizers of others keep.
    async fn delete_all(&self, kind: &Entry, ends: impl Fn(&ObjectMeta) -> bool) -> Result<usize> {
        let mut list = all_of_oz(&self.client, &kind.resource).await?;
        list.retain(|object| ends(object));
        for object in &list {
            if object.deletion_timestamp.is_none() {
                let parameters = DeleteParams::default();
                delete(&self.client, &kind.resource, object, &parameters).await?;
            }
        }
        let waits = |object: &&ObjectMeta| !is_kept_by_others(kind, object);
        Ok(list.iter().filter(waits).count())
    }

    /// Releases objects for which no operator is left, now that nothing of them remains. An object
    /// with finalizers of others stays for those to release: it gives no access, and blocks
    /// nothing. Workspaces stay, but do not wait for the run that held them; the children of
    /// composites that end are ended before.
    pub(super) async fn let_go(&self) -> Result<()> {
        for kind in access() {
            for object in all_of_oz(&self.client, &kind.resource).await? {
                let others = finalizers(&object).filter(|name| Some(*name) != kind.finalizer);
                let others: Vec<&str> = others.collect();
                if !others.is_empty() {
                    let (namespace, finalizers) = (&object.namespace, others.join(", "));
                    let (kind, name) = (&kind.resource.kind, &object.name);
                    tracing::warn!(
                        kind,
                        namespace,
                        name,
                        finalizers,
                        "an object has finalizers of \
                        others"
                    );
                }
                self.release(&kind, &object).await?;
            }
        }
        for kind in with_role(Role::Workspace).filter(|_| self.ends_runs) {
            for object in all_of_oz(&self.client, &kind.resource).await? {
                self.release(&kind, &object).await?;
            }
        }
        for_each_kind!(composites S => { self.end_composites::<S>().await? });
        Ok(())
    }

    /// Ends the children that end, releases the parents, and then the composites, without an
    /// operator.
    async fn end_composites<S: Source>(&self) -> Result<()> {
        let kind = Entry::from_type::<S>();
        for composite in held::<S>(&self.client, &kind).await? {
            let name = Name::from_metadata(composite.meta())?.as_str();
            tracing::warn!(kind = S::NAME, name, "revoking without the operator");
            if let (Some(declared), Some(client)) = (composite.readable(), &self.account)
                && let Err(error) = composites::end(client, &declared).await
            {
                // The account may have lost a right, which is no longer restored.
                let finalizer = &declared.finalizer;
                let parents = declared.parent.to_string();
                tracing::error!(
                    kind = S::NAME,
                    name,
                    parents,
                    finalizer,
                    error = format!("{error:#}"),
                    "parents may still have this finalizer: remove it from them"
                );
            }
            self.release(&kind, composite.meta()).await?;
        }
        Ok(())
    }

    /// Removes oz's finalizer from an object that has it.
    async fn release(&self, kind: &Entry, object: &ObjectMeta) -> Result<()> {
        let Some(finalizer) = kind.finalizer.filter(|_| is_held(kind, object)) else {
            return Ok(());
        };
        let name = Name::from_metadata(object)?;
        let released = release(&self.client, &kind.resource, object, finalizer).await;
        released.with_context(|| format!("failed to release {} {name}", kind.resource.kind))
    }
}

/// Returns the composites of a kind with oz's finalizer; empty if the kind is not installed.
async fn held<S: Source>(client: &Client, kind: &Entry) -> Result<Vec<S>> {
    let all = Api::<S>::all(client.clone());
    let listed = unless_missing(all.list(&ListParams::default()).await)
        .with_context(|| format!("failed to list {}", kind.resource.plural))?;
    let listed = listed.into_iter().flatten();
    Ok(listed.filter(|one| is_held(kind, one.meta())).collect())
}

/// Checks whether an object has oz's finalizer.
fn is_held(kind: &Entry, object: &ObjectMeta) -> bool {
    finalizers(object).any(|name| Some(name) == kind.finalizer)
}

/// Checks whether an object would be gone, but for finalizers that are not oz's: a user who may
/// request access can add one to a request, and must not delay the removal with it.
fn is_kept_by_others(access: &Entry, object: &ObjectMeta) -> bool {
    object.deletion_timestamp.is_some()
        && finalizers(object).next().is_some()
        && !is_held(access, object)
}

#[cfg(test)]
mod tests {
    use oz_core::transient::FINALIZER;
    use serde_json::json;

    use super::*;

    fn metadata(value: serde_json::Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn nothing_waits_for_the_finalizers_of_others() {
        let of = |role| access().find(|kind| kind.role == role).unwrap();
        let (exec, binding) = (&of(Role::Request), &of(Role::Binding));
        let other = "example.com/other";
        let deleted = Some("2026-01-01T00:00:00Z");
        for (access, deleted, finalizers, kept) in [
            (exec, deleted, &[other][..], true),
            // oz's finalizer has no meaning on a request: no component removes it.
            (exec, deleted, &[FINALIZER], true),
            (exec, None, &[other], false),
            // It counts as gone.
            (exec, deleted, &[], false),
            (binding, deleted, &[other], true),
            (binding, deleted, &[FINALIZER], false),
            (binding, deleted, &[other, FINALIZER], false),
        ] {
            let object = metadata(json!({"deletionTimestamp": deleted, "finalizers": finalizers}));
            let kind = &access.resource.kind;
            let found = is_kept_by_others(access, &object);
            assert_eq!(found, kept, "{kind} {deleted:?} {finalizers:?}");
        }
    }
}
