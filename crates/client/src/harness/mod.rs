//! Harness runs on behalf of somebody: what a template comes to and what it lacks ([`Template`]), what happens to
//! a run ([`follow`], [`fresh`]), and why one waits ([`explain`]).

mod events;
mod explain;
mod follow;
mod template;

pub use events::{fresh, in_the_way};
pub use explain::{Explanation, Finding, explain};
pub use follow::{Followed, follow};
pub use template::{Template, find, no_template, policies};

use oz_core::names::OPERATOR;

use crate::cluster::Cluster;
use crate::explain::operator::{arguments, deployments, operator};
use crate::failure::{Failure, Result};

/// The operator's flag that names our own image for the pods of runs.
const IMAGE_FLAG: &str = "--harness-image=";

/// Says of a cluster without these kinds what has to be done there; any other failure stays.
pub fn installed(failure: Failure) -> Failure {
    if !failure.is_unknown_kind() {
        return failure;
    }
    let exit = failure.exit();
    Failure::new("the cluster does not know the kinds of harness runs (paddock.dev/v1alpha1)")
        .next("have an administrator install oz's chart with harness.enabled=true, or choose another cluster with --context")
        .with(exit)
}

/// Our own image for the pods of runs, as the operator in this namespace is told it.
///
/// # Errors
/// When its Deployment cannot be read, or names none.
pub async fn own_image(cluster: &Cluster, namespace: &str) -> Result<String> {
    let next = "name an image with cat in it by --reader-image, as NAME@sha256:DIGEST";
    let found = deployments(cluster, namespace).await;
    let found = found.map_err(|failure| {
        failure
            .during(&format!("failed to read which image {OPERATOR} gives runs"))
            .or_next(next)
    })?;
    let flag = operator(&found).and_then(|deployment| {
        let mut arguments = arguments(deployment).into_iter();
        let image = arguments.find_map(|argument| argument.strip_prefix(IMAGE_FLAG));
        image.filter(|image| !image.is_empty()).map(str::to_owned)
    });
    flag.ok_or_else(|| {
        Failure::new(format!(
            "no operator of namespace {namespace} says by {IMAGE_FLAG} which image runs get"
        ))
        .next(next)
    })
}
