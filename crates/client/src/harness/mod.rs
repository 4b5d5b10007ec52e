//! Harness runs on behalf of a user: the resolved template and its missing parts ([`Template`]), the changes of a run
//! ([`follow`], [`fresh`]), and the reasons why a run waits ([`explain`]).

mod events;
mod explain;
mod follow;
mod template;

pub use events::{fresh, in_the_way};
pub use explain::{Explanation, Finding, explain};
pub use follow::{Followed, follow};
pub use template::{Template, find, no_template, policies};

use crate::failure::Failure;

/// Returns, for a cluster without these kinds, a failure with the required action; any other failure is unchanged.
pub fn installed(failure: Failure) -> Failure {
    if !failure.is_unknown_kind() {
        return failure;
    }
    let exit = failure.exit();
    Failure::new("the cluster does not know the kinds of harness runs (paddock.dev/v1alpha1)")
        .next("have an administrator install oz's chart with harness.enabled=true, or choose another cluster with --context")
        .with(exit)
}
