//! Removal of harness runs: the operator ends active runs while it exists. Workspaces, their claims and ended runs
//! remain.

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, ListParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource as _};
use oz_api::harness::HarnessRun;
use oz_core::kinds::{Entry, Family, child_kinds};
use oz_runs::pod::RUN_LABEL;
use oz_runs::run::is_over;

use super::objects::{children, delete, unless_missing};

/// Deletes the runs that are not over, and returns the number of remaining runs and of their remaining children
/// without which they do not run.
pub(super) async fn end(client: &Client) -> Result<usize> {
    let all = Api::<HarnessRun>::all(client.clone());
    let listed = unless_missing(all.list(&ListParams::default()).await);
    let Some(listed) = listed.context("failed to list HarnessRuns")? else {
        return Ok(0);
    };
    let mut left = 0;
    let of_runs = child_kinds().into_iter();
    for kind in of_runs.filter(|kind| kind.family == Family::Harness && kind.is_awaited) {
        let children = children(client, &kind.resource).await?;
        left += children.iter().filter(|child| is_of_run(child)).count();
    }
    let kind = Entry::from_type::<HarnessRun>();
    for run in listed.iter().filter(|run| !is_over(run)) {
        left += 1;
        if run.meta().deletion_timestamp.is_none() {
            delete(client, &kind.resource, run.meta(), &DeleteParams::default()).await?;
        }
    }
    Ok(left)
}

/// Checks whether an object is a part of a harness run.
pub(super) fn is_of_run(object: &ObjectMeta) -> bool {
    let labels = object.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(RUN_LABEL))
}
