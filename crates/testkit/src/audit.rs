//! The API server's audit log: the requests with their users and responses. The tests and benches
//! count API writes with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::ops::Deref;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

/// The audit log of one cluster.
///
/// The line of a request is written when its handler is done. A client may see the response a
/// moment earlier; therefore wait for a count with [`eventually`](crate::eventually), and before
/// taking a [mark](Self::mark) wait for the requests that precede it.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

/// A position in the log: later lines follow it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditMark(u64);

/// One answered request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// The user; the impersonated user, if there was one.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The API group; empty for the core group, and for requests that are not for a resource.
    pub api_group: String,
    /// The plural, for example `configmaps`; empty for requests that are not for a resource.
    pub resource: String,
    /// The subresource, for example `status`; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name; empty for a list, and for a refused create with `generateName` or without a name
    /// in the path.
    pub name: String,
    /// The HTTP status of the response.
    pub code: u16,
    /// True if the request was a dry run (`dryRun=All`).
    pub dry_run: bool,
    /// The time at which the request arrived.
    pub received: Timestamp,
    /// The time at which the response was complete; for a watch, the time at which it ended or
    /// started.
    pub stage_timestamp: Timestamp,
    /// The user agent of the client.
    pub user_agent: String,
    /// The path and query.
    pub request_uri: String,
    /// The webhooks that failed to answer a request that their failure policy let pass.
    pub failed_open: Vec<String>,
}

impl AuditEntry {
    /// Checks whether the request changes stored data: it is not a dry run, and its kind is not one
    /// of the review kinds, which are created only to be answered.
    #[must_use]
    pub fn is_write(&self) -> bool {
        const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
        const REVIEWS: [&str; 2] = ["authorization.k8s.io", "authentication.k8s.io"];
        // A connect is logged as create of pods/exec and similar subresources.
        const CONNECTS: [&str; 4] = ["exec", "attach", "portforward", "proxy"];
        WRITES.contains(&self.verb.as_str())
            && !self.dry_run
            && !REVIEWS.contains(&self.api_group.as_str())
            && !CONNECTS.contains(&self.subresource.as_str())
    }

    /// Returns the duration of the response.
    #[must_use]
    pub fn took(&self) -> SignedDuration {
        self.stage_timestamp.duration_since(self.received)
    }

    /// Checks whether the request succeeded (status below 400).
    #[must_use]
    pub const fn succeeded(&self) -> bool {
        self.code < 400
    }
}

/// A list of entries in the order in which they were logged. Each method narrows it further.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditEntries(Vec<AuditEntry>);

impl Deref for AuditEntries {
    type Target = [AuditEntry];

    fn deref(&self) -> &[AuditEntry] {
        &self.0
    }
}

impl AuditEntries {
    /// Keeps the entries for which `keep` returns true.
    #[must_use]
    pub fn filter(mut self, keep: impl FnMut(&AuditEntry) -> bool) -> Self {
        self.0.retain(keep);
        self
    }

    /// Keeps the entries of one user.
    #[must_use]
    pub fn by_user(self, user: &str) -> Self {
        self.filter(|entry| entry.user == user)
    }

    /// Keeps the entries with one verb.
    #[must_use]
    pub fn with_verb(self, verb: &str) -> Self {
        self.filter(|entry| entry.verb == verb)
    }

    /// Keeps the entries for one resource of one group (empty for the core group), subresources
    /// included.
    #[must_use]
    pub fn on(self, api_group: &str, resource: &str) -> Self {
        self.filter(|entry| entry.api_group == api_group && entry.resource == resource)
    }

    /// Keeps the entries in one namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        self.filter(|entry| entry.namespace == namespace)
    }

    /// Keeps the entries that changed data: [writes](AuditEntry::is_write) that succeeded.
    #[must_use]
    pub fn writes(self) -> Self {
        self.filter(|entry| entry.is_write() && entry.succeeded())
    }

    /// Returns the number of entries per user, verb and resource. The resource is written
    /// `resource[/subresource][.group]`.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(String, String, String), usize> {
        let mut counts = BTreeMap::new();
        for entry in &self.0 {
            let mut resource = entry.resource.clone();
            for (separator, part) in [("/", &entry.subresource), (".", &entry.api_group)] {
                if !part.is_empty() {
                    resource.push_str(separator);
                    resource.push_str(part);
                }
            }
            *counts
                .entry((entry.user.clone(), entry.verb.clone(), resource))
                .or_default() += 1;
        }
        counts
    }
}

impl AuditLog {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the current end of the log.
    ///
    /// # Errors
    ///
    /// Fails when the cluster keeps no audit log, as the user's own cluster.
    pub fn mark(&self) -> Result<AuditMark> {
        let metadata = std::fs::metadata(&self.path).with_context(|| self.failed())?;
        Ok(AuditMark(metadata.len()))
    }

    /// Returns all entries since the cluster started.
    ///
    /// # Errors
    ///
    /// As [`AuditLog::since`].
    pub fn entries(&self) -> Result<AuditEntries> {
        self.since(AuditMark::default())
    }

    /// Returns the entries that were logged after `mark` was taken.
    ///
    /// # Errors
    ///
    /// Fails when the cluster keeps no audit log, or a line of it is not an audit event.
    pub fn since(&self, mark: AuditMark) -> Result<AuditEntries> {
        let mut file = File::open(&self.path).with_context(|| self.failed())?;
        // A mark may lie in a line that was incomplete at that time: the line precedes the mark.
        file.seek(SeekFrom::Start(mark.0.saturating_sub(1)))
            .with_context(|| self.failed())?;
        let mut reader = BufReader::new(file);
        let mut entries = Vec::new();
        let mut line = String::new();
        if mark.0 > 0 {
            reader
                .read_until(b'\n', &mut Vec::new())
                .with_context(|| self.failed())?;
        }
        loop {
            line.clear();
            reader.read_line(&mut line).with_context(|| self.failed())?;
            // The last line may be incomplete.
            if !line.ends_with('\n') {
                return Ok(AuditEntries(entries));
            }
            let event: Event = serde_json::from_str(&line).with_context(|| self.failed())?;
            // A watch is logged when it starts and when it ends.
            if event.stage != "ResponseStarted" {
                entries.push(event.into());
            }
        }
    }

    fn failed(&self) -> String {
        format!("failed to read the audit log {}", self.path.display())
    }
}

/// An event of audit.k8s.io/v1, with the fields that are used here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: Status,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The user of a request.
#[derive(Deserialize)]
pub(crate) struct User {
    #[serde(default)]
    pub(crate) username: String,
    #[serde(default)]
    pub(crate) groups: Vec<String>,
}

/// The object of a request.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectRef {
    pub(crate) api_group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The status of a response.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) message: String,
}

impl From<Event> for AuditEntry {
    fn from(event: Event) -> Self {
        let query = event
            .request_uri
            .split_once('?')
            .map_or("", |(_, query)| query);
        Self {
            user: event.impersonated_user.unwrap_or(event.user).username,
            verb: event.verb,
            api_group: event.object_ref.api_group,
            resource: event.object_ref.resource,
            subresource: event.object_ref.subresource,
            namespace: event.object_ref.namespace,
            name: event.object_ref.name,
            code: event.response_status.code,
            dry_run: query.split('&').any(|pair| pair.starts_with("dryRun=")),
            received: event.request_received_timestamp,
            stage_timestamp: event.stage_timestamp,
            user_agent: event.user_agent,
            request_uri: event.request_uri,
            failed_open: event
                .annotations
                .into_iter()
                .filter(|(key, _)| key.starts_with("failed-open."))
                .map(|(_, webhook)| webhook)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(verb: &str, query: &str, object: &str, code: u16) -> String {
        format!(
            r#"{{"stage":"ResponseComplete","verb":"{verb}","requestURI":"/x?{query}",
            "user":{{"username":"root"}},"impersonatedUser":{{"username":"alice"}},
            "objectRef":{object},"responseStatus":{{"code":{code}}},
            "requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z",
            "stageTimestamp":"2026-01-01T00:00:01.000000Z"}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn only_stored_changes_count_as_writes() {
        let map = r#"{"resource":"configmaps","namespace":"a","name":"b"}"#;
        let exec = r#"{"resource":"pods","subresource":"exec"}"#;
        let review = r#"{"resource":"subjectaccessreviews","apiGroup":"authorization.k8s.io"}"#;
        let lines = [
            line("create", "", map, 201),
            line("patch", "fieldManager=x&dryRun=All", map, 200),
            line("update", "", map, 409),
            line("get", "", map, 200),
            line("create", "", exec, 101),
            line("create", "", review, 201),
        ];
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{}", lines.join("\n")).unwrap();
        let log = AuditLog::new(file.path().to_owned());

        let entries = log.entries().unwrap();
        let writes = entries.clone().by_user("alice").writes();

        assert_eq!(entries.len(), 6);
        let count = (
            "alice".to_owned(),
            "create".to_owned(),
            "configmaps".to_owned(),
        );
        assert_eq!(writes.counts(), BTreeMap::from([(count, 1)]));
    }

    #[test]
    fn a_mark_hides_what_came_before_and_a_half_written_line_waits() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let log = AuditLog::new(file.path().to_owned());
        let complete = line("get", "", "{}", 200);
        writeln!(file, "{complete}").unwrap();
        let mark = log.mark().unwrap();

        write!(file, "{complete}\n{{\"stage\":").unwrap();

        assert_eq!(log.entries().unwrap().len(), 2);
        assert_eq!(log.since(mark).unwrap().len(), 1);
    }
}
