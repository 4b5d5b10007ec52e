//! The objects that no operator removed.

use std::time::Instant;

use anyhow::Result;
use kube::api::DeleteParams;
use kube::core::ObjectMeta;
use oz_core::kinds::{ChildKind, ChildRemoval, Family, child_kinds};

use super::Here;
use super::harness::is_of_run;
use super::objects::{PAUSE, STOP, children, delete};

impl Here<'_> {
    /// Removes the objects that no operator removed: those of access, and those of harness runs if
    /// they are served, those that give access first. The pods of Jobs that do not end in time stay
    /// confined, by NetworkPolicies that stay as well.
    pub(super) async fn remove_leftovers(&self) -> Result<()> {
        let mut unfinished = None;
        for kind in child_kinds() {
            if unfinished == Some(kind.family) || kind.family == Family::Harness && !self.ends_runs
            {
                continue;
            }
            match kind.removal {
                ChildRemoval::Plain => {
                    for child in self.children_of_family(&kind).await? {
                        self.remove(&kind, &child, &DeleteParams::default()).await?;
                    }
                }
                ChildRemoval::AfterPods => {
                    let is_finished = self.remove_with_pods(&kind).await?;
                    unfinished = (!is_finished).then_some(kind.family);
                }
                ChildRemoval::Never => {}
            }
        }
        Ok(())
    }

    /// Removes objects that stay until their pods are gone, and waits for that. Returns whether all
    /// are gone.
    async fn remove_with_pods(&self, kind: &ChildKind) -> Result<bool> {
        let began = Instant::now();
        loop {
            let left = self.children_of_family(kind).await?;
            if left.is_empty() {
                return Ok(true);
            }
            if began.elapsed() > STOP {
                let jobs = left.len();
                tracing::warn!(
                    jobs,
                    "pods of harness runs did not end in time; their NetworkPolicies stay"
                );
                return Ok(false);
            }
            let going = left.iter().filter(|one| one.deletion_timestamp.is_none());
            for child in going {
                self.remove(kind, child, &DeleteParams::foreground())
                    .await?;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns the children of a kind that are of its family. The label of runs counts only for
    /// kinds of which harness runs have children: a user who may change an object can add it.
    async fn children_of_family(&self, kind: &ChildKind) -> Result<Vec<ObjectMeta>> {
        let mut all = children(&self.client, &kind.resource).await?;
        let is_of_runs =
            |other: &ChildKind| other.family == Family::Harness && other.resource == kind.resource;
        if child_kinds().iter().any(is_of_runs) {
            all.retain(|child| is_of_run(child) == (kind.family == Family::Harness));
        }
        Ok(all)
    }

    async fn remove(
        &self,
        kind: &ChildKind,
        child: &ObjectMeta,
        parameters: &DeleteParams,
    ) -> Result<()> {
        let (resource, namespace, name) = (&kind.resource, &child.namespace, &child.name);
        let kind = &resource.kind;
        tracing::warn!(kind, namespace, name, "removing without the operator");
        delete(&self.client, resource, child, parameters).await
    }
}
