//! The log of a process with its audit records.

use anyhow::{Context, Result};
use kube::Resource;
use oz_testkit::Process;
use oz_trail::{Action, Record};

/// Returns all records that a process has written.
///
/// # Errors
/// When its output cannot be read, or a line of it is not a record: the output contains only records.
pub fn records_in(process: &Process) -> Result<Vec<Record>> {
    process
        .lines()?
        .iter()
        .filter(|line| !line.starts_with("{\"checkpoint\":"))
        .map(|line| serde_json::from_str(line).with_context(|| format!("not a record: {line}")))
        .collect()
}

/// Returns the recorded actions about the request with this name, in order.
///
/// # Errors
/// As [`records_in`].
pub fn records_of(process: &Process, namespace: &str, request: &str) -> Result<Vec<Action>> {
    Ok(records_in(process)?
        .into_iter()
        .filter(|record| record.request.namespace == namespace && record.request.name == request)
        .map(|record| record.action)
        .collect())
}

/// Returns the recorded actions about one object, in order: not about other objects that had its name.
///
/// # Errors
/// As [`records_in`].
pub fn records_about(process: &Process, object: &impl Resource) -> Result<Vec<Action>> {
    let uid = object.meta().uid.as_deref().context("no UID")?;
    Ok(records_in(process)?
        .into_iter()
        .filter(|record| record.request.uid == uid)
        .map(|record| record.action)
        .collect())
}
