//! The history of each request, derived from the records only: the rows of `summary.csv`, `approvals.csv`,
//! `reviews.csv`, `attestations.csv` and `sample.csv`. The stored data grows with requests, approvals and reviews, not
//! with records.

use std::collections::BTreeMap;

use jiff::Timestamp;
use oz_trail::{Action, Decision, Entry, Record};

use super::sample::{Sample, rank};
use crate::csv;

/// The history of one request, as far as the records contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestAccount {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    requester: String,
    template: String,
    template_digest: String,
    pod: String,
    container: String,
    reason: String,
    ticket: String,
    approved_by: String,
    /// The on-call checks that replaced approvals.
    on_call: String,
    emergency: bool,
    granted: Option<Timestamp>,
    until: Option<Timestamp>,
    ended: Option<Timestamp>,
    ended_by: String,
    sessions: u64,
    sessions_refused: u64,
    first: Timestamp,
}

const COLUMNS: [&str; 18] = [
    "kind",
    "namespace",
    "request",
    "uid",
    "requester",
    "template",
    "templateDigest",
    "pod",
    "container",
    "reason",
    "ticket",
    "approvedBy",
    "grantedAt",
    "until",
    "endedAt",
    "endedBy",
    "sessions",
    "sessionsRefused",
];

const APPROVAL_COLUMNS: [&str; 11] = [
    "time",
    "action",
    "decision",
    "by",
    "rules",
    "kind",
    "namespace",
    "request",
    "uid",
    "reason",
    "record",
];

const REVIEW_COLUMNS: [&str; 13] = [
    "time",
    "action",
    "decision",
    "by",
    "finding",
    "requester",
    "kind",
    "namespace",
    "name",
    "uid",
    "dueAt",
    "reason",
    "record",
];

const ATTESTATION_COLUMNS: [&str; 11] = [
    "time",
    "action",
    "by",
    "namespace",
    "name",
    "entitlements",
    "file",
    "kept",
    "removed",
    "gaps",
    "record",
];

/// The histories and totals that are derived from records.
#[derive(Clone, Debug)]
pub struct Accounts {
    requests: BTreeMap<String, RequestAccount>,
    /// `approvals.csv`.
    approvals: Table,
    /// `reviews.csv`.
    reviews: Table,
    /// `attestations.csv`.
    attestations: Table,
    totals: BTreeMap<(Action, Decision), u64>,
    records: u64,
}

/// A table with one row for each record, the oldest first.
#[derive(Clone, Debug)]
struct Table {
    columns: &'static [&'static str],
    /// The rows, by the instant and the digest of the record.
    rows: BTreeMap<(Timestamp, String), String>,
}

impl Table {
    const fn new(columns: &'static [&'static str]) -> Self {
        Self {
            columns,
            rows: BTreeMap::new(),
        }
    }

    fn take(&mut self, entry: &Entry) {
        let cells = self.columns.iter().map(|column| cell(entry, column));
        let key = (entry.record.time, entry.link.digest.clone());
        self.rows.insert(key, csv::row(cells));
    }

    fn text(&self) -> String {
        let mut text = csv::row(self.columns);
        text.extend(self.rows.values().map(String::as_str));
        text
    }
}

/// Returns the value of a record in a column: a field that every record has, or the detail of that name.
fn cell(entry: &Entry, column: &str) -> String {
    let Record {
        request, details, ..
    } = &entry.record;
    match column {
        "time" => entry.record.time.to_string(),
        "action" => entry.record.action.to_string(),
        "decision" => entry.record.decision.to_string(),
        "by" => csv::optional(entry.record.user.as_ref().map(|user| &user.user)),
        "kind" => request.kind.clone(),
        "namespace" => request.namespace.clone(),
        "request" | "name" => request.name.clone(),
        "uid" => request.uid.clone(),
        "record" => entry.link.digest.clone(),
        detail => csv::optional(details.get(detail)),
    }
}

impl Default for Accounts {
    fn default() -> Self {
        Self {
            requests: BTreeMap::new(),
            approvals: Table::new(&APPROVAL_COLUMNS),
            reviews: Table::new(&REVIEW_COLUMNS),
            attestations: Table::new(&ATTESTATION_COLUMNS),
            totals: BTreeMap::new(),
            records: 0,
        }
    }
}

impl Accounts {
    /// Adds one record.
    pub fn take(&mut self, entry: &Entry) {
        let record = &entry.record;
        let times = record
            .repeated
            .as_ref()
            .map_or(1, |repeated| repeated.count);
        let total = self.totals.entry((record.action, record.decision));
        let total = total.or_default();
        *total = total.saturating_add(times);
        self.records += 1;
        match record.action {
            action if is_approval(action) => self.approvals.take(entry),
            Action::ReviewGiven | Action::ReviewRefused | Action::ReviewOverdue => {
                self.reviews.take(entry);
            }
            Action::EntitlementsAttested => self.attestations.take(entry),
            _ => {}
        }
        if record.request.uid.is_empty() || !is_about_request(record.action) {
            return;
        }
        let account = self.requests.entry(record.request.uid.clone());
        let account = account.or_insert_with(|| RequestAccount {
            uid: record.request.uid.clone(),
            first: record.time,
            ..RequestAccount::default()
        });
        account.take(record, times);
    }

    /// Returns the number of events with this action and decision.
    #[must_use]
    pub fn total(&self, action: Action, decision: Decision) -> u64 {
        let found = self.totals.get(&(action, decision));
        found.copied().unwrap_or_default()
    }

    /// Returns the number of records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the number of requests in the records, and the number of these that were granted.
    #[must_use]
    pub fn requests(&self) -> (usize, usize) {
        let granted = self.requests.values().filter(|one| one.granted.is_some());
        (self.requests.len(), granted.count())
    }

    /// Returns the number of granted requests that name their approvers.
    #[must_use]
    pub fn approved(&self) -> usize {
        let granted = self.requests.values().filter(|one| one.granted.is_some());
        granted.filter(|one| !one.approved_by.is_empty()).count()
    }

    /// Returns a table with one line for each request, the oldest first.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut all: Vec<&RequestAccount> = self.requests.values().collect();
        all.sort_by(|one, other| (one.first, &one.uid).cmp(&(other.first, &other.uid)));
        let mut text = csv::row(COLUMNS);
        for account in all {
            text.push_str(&csv::row(account.cells()));
        }
        text
    }

    /// Returns a table with one line for each approval or denial of a request, the oldest first.
    #[must_use]
    pub fn approvals(&self) -> String {
        self.approvals.text()
    }

    /// Returns a table with one line for each review that was written, refused or overdue, the oldest first.
    #[must_use]
    pub fn reviews(&self) -> String {
        self.reviews.text()
    }

    /// Returns a table with one line for each attestation of entitlements, the oldest first.
    #[must_use]
    pub fn attestations(&self) -> String {
        self.attestations.text()
    }

    /// Returns the sample of the granted requests, in the order of their ranks.
    #[must_use]
    pub fn sample(&self, sample: &Sample) -> String {
        let granted = self.requests.values().filter(|one| one.granted.is_some());
        let mut ranked: Vec<(String, &RequestAccount)> = granted
            .map(|account| (rank(sample.seed, &account.uid), account))
            .collect();
        ranked.sort_by(|(one, _), (other, _)| one.cmp(other));
        ranked.truncate(usize::try_from(sample.size).unwrap_or(usize::MAX));
        let mut text = csv::row(["rank"].into_iter().chain(COLUMNS));
        for (rank, account) in ranked {
            text.push_str(&csv::row([rank].into_iter().chain(account.cells())));
        }
        text
    }
}

impl RequestAccount {
    fn take(&mut self, record: &Record, times: u64) {
        let Record { request, user, .. } = record;
        let user = user.as_ref().map(|user| &user.user);
        fill(&mut self.kind, Some(&request.kind));
        fill(&mut self.namespace, Some(&request.namespace));
        fill(&mut self.name, Some(&request.name));
        fill(&mut self.template, Some(&record.template));
        fill(&mut self.ticket, record.details.get("ticket"));
        match record.action {
            Action::AccessGranted | Action::EmergencyGranted | Action::RunStarted => {
                self.requester = csv::optional(user);
                self.granted = Some(record.time);
                self.until = record.until;
                self.template_digest = csv::optional(record.template_digest.as_ref());
                self.approved_by = csv::optional(record.details.get("approvedBy"));
                self.on_call = csv::optional(record.details.get("onCallChecks"));
                // An emergency of a run has both records.
                self.emergency |= record.action == Action::EmergencyGranted;
                self.reason = csv::optional(record.details.get("reason"));
                self.pod(record);
            }
            Action::TargetPinned => self.pod(record),
            Action::AccessExpired
            | Action::AccessRevoked
            | Action::ApprovalTimedOut
            | Action::RunEnded => {
                self.ended = Some(record.time);
                self.ended_by = format!("{} ({})", record.action, record.reason);
            }
            Action::RequestDenied => {
                fill(&mut self.requester, user);
                self.ended = Some(record.time);
                self.ended_by = format!("{} ({})", record.action, record.reason);
            }
            Action::SessionOpened => self.sessions = self.sessions.saturating_add(times),
            Action::SessionRefused => {
                self.sessions_refused = self.sessions_refused.saturating_add(times);
            }
            _ => {}
        }
    }

    fn pod(&mut self, record: &Record) {
        let Some(pod) = &record.pod else { return };
        self.pod.clone_from(&pod.name);
        self.container = csv::optional(pod.container.as_ref());
    }

    fn approvers(&self) -> String {
        match (self.approved_by.as_str(), self.on_call.as_str()) {
            _ if self.emergency => "nobody (emergency)".to_owned(),
            (approvers, "") => approvers.to_owned(),
            ("", checks) => format!("nobody (on call by {checks})"),
            (approvers, checks) => format!("{approvers}; on call by {checks}"),
        }
    }

    fn cells(&self) -> [String; 18] {
        [
            self.kind.clone(),
            self.namespace.clone(),
            self.name.clone(),
            self.uid.clone(),
            self.requester.clone(),
            self.template.clone(),
            self.template_digest.clone(),
            self.pod.clone(),
            self.container.clone(),
            self.reason.clone(),
            self.ticket.clone(),
            self.approvers(),
            csv::optional(self.granted),
            csv::optional(self.until),
            csv::optional(self.ended),
            self.ended_by.clone(),
            self.sessions.to_string(),
            self.sessions_refused.to_string(),
        ]
    }
}

/// Sets a value if it is not known yet.
fn fill(known: &mut String, told: Option<&String>) {
    if known.is_empty()
        && let Some(told) = told
    {
        known.clone_from(told);
    }
}

fn is_approval(action: Action) -> bool {
    matches!(
        action,
        Action::ApprovalRequested
            | Action::ApprovalEscalated
            | Action::ApprovalGiven
            | Action::ApprovalDenied
            | Action::ApprovalRefused
            | Action::ApprovalWithdrawn
            | Action::ApprovalTimedOut
    )
}

/// Checks whether the UID in a record with this action is that of an access request, of a transient binding or of a harness
/// run.
fn is_about_request(action: Action) -> bool {
    is_approval(action)
        || matches!(
            action,
            Action::RequestCreated
                | Action::RequestDenied
                | Action::AccessGranted
                | Action::EmergencyGranted
                | Action::TargetPinned
                | Action::AccessExpired
                | Action::AccessRevoked
                | Action::SessionOpened
                | Action::SessionRefused
                | Action::RunStarted
                | Action::RunEnded
        )
}
