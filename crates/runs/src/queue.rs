//! The queue of runs on the same workspace.

use jiff::Timestamp;
use oz_api::harness::HarnessRun;

use super::objects::workspace_name;

/// Checks whether a run has ended or is being deleted.
#[must_use]
pub fn has_left(run: &HarnessRun) -> bool {
    run.metadata.deletion_timestamp.is_some() || super::run::is_over(run)
}

/// Returns the workspace of a run: the one that it names, or the one that oz creates for it; `None` for a run without
/// both names.
#[must_use]
pub fn workspace_of(run: &HarnessRun) -> Option<String> {
    let given = run.status.as_ref();
    let given = given.and_then(|status| status.workspace_ref.clone());
    given
        .or_else(|| run.spec.workspace_ref.clone())
        .or_else(|| run.metadata.name.as_deref().map(workspace_name))
}

/// Returns the runs of `all` that precede a run on the workspace that it names, in order: those that have not ended and
/// were created earlier. The UID decides among those of the same second.
#[must_use]
pub fn ahead<'a>(
    run: &HarnessRun,
    all: impl IntoIterator<Item = &'a HarnessRun>,
) -> Vec<&'a HarnessRun> {
    let Some(workspace) = &run.spec.workspace_ref else {
        return Vec::new();
    };
    let mut ahead: Vec<&HarnessRun> = all
        .into_iter()
        .filter(|other| other.metadata.namespace == run.metadata.namespace)
        .filter(|other| other.spec.workspace_ref.as_ref() == Some(workspace) && !has_left(other))
        .filter(|other| place(other) < place(run))
        .collect();
    ahead.sort_by(|one, other| place(one).cmp(&place(other)));
    ahead
}

/// Returns the sort key of runs: the creation time, and the UID for runs of the same second.
pub fn place(run: &HarnessRun) -> (Option<Timestamp>, Option<&str>) {
    let created = run.metadata.creation_timestamp.as_ref();
    (created.map(|time| time.0), run.metadata.uid.as_deref())
}
