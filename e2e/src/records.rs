//! The record log of a process, read back.

use anyhow::{Context, Result};
use kube::Resource;
use oz_testkit::Process;
use oz_trail::{Action, Record};

/// All records that a process has written.
///
/// # Errors
/// When its output cannot be read, or a line of it is no record: nothing else belongs there.
pub fn records_in(process: &Process) -> Result<Vec<Record>> {
    process
        .lines()?
        .iter()
        .filter(|line| !line.starts_with("{\"checkpoint\":"))
        .map(|line| serde_json::from_str(line).with_context(|| format!("not a record: {line}")))
        .collect()
}

/// What was recorded about the request with this name, in order.
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

/// What was recorded about one object, in order: not about others that had its name.
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
