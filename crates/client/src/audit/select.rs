//! The selection of audit records, from the cluster or from logs.

use oz_trail::{Action, Entry, Query};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::failure::Result;
use crate::trail;

/// Returns the audit records in a log. Checkpoints are not among them; [`super::Collected`] reads them.
pub fn in_log(text: &str) -> impl Iterator<Item = Entry> {
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
}

/// Returns the audit records that match a query, oldest first.
#[must_use]
pub fn select(mut entries: Vec<Entry>, query: &Query) -> Vec<Entry> {
    entries.retain(|entry| query.matches(entry));
    trail::sort(&mut entries);
    entries
}

/// Returns the newest audit records of the chosen namespace for one run and one action, at most `limit`, the oldest of
/// them first.
///
/// # Errors
/// The audit records cannot be read.
pub async fn newest(
    cluster: &Cluster,
    run: Option<String>,
    action: Option<Action>,
    limit: usize,
) -> Result<Vec<Entry>> {
    let query = Query {
        grant: run,
        namespace: Some(cluster.namespace.clone()),
        action,
        ..Query::default()
    };
    let mut entries = select(trail::entries(cluster, &query).await?, &query);
    let older = entries.len().saturating_sub(limit);
    Ok(entries.split_off(older))
}

/// Returns one audit record, complete, by the name of its AuditEvent.
///
/// # Errors
/// It cannot be read.
pub async fn record(cluster: &Cluster, name: &str) -> Result<Value> {
    let event = cluster.answer(trail::events(cluster).get(name)).await?;
    Ok(event.data["spec"].clone())
}

/// Formats audit records as a log has them: each chain in its order, since verification treats a record in any other
/// place as moved.
#[must_use]
pub fn export(entries: &[Entry]) -> String {
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by_key(|entry| (&entry.link.writer, entry.link.seq));
    let lines = entries
        .into_iter()
        .map(|entry| format!("{}\n", entry.written_value()));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use oz_trail::verify::{Evidence, Terms, verify};
    use oz_trail::{AuditKey, Chain, Decision, Record, Trust, Writer};

    use super::*;

    #[test]
    fn exported_lines_verify_even_if_a_clock_was_set_back() {
        let (now, key) = (
            Timestamp::constant(1_790_000_000, 0),
            AuditKey::new(&[7; 32]),
        );
        let mut entries = Vec::new();
        for replica in ["oz-0", "oz-1"] {
            let writer = Writer::new("oz-operator", replica, now, 1);
            let (mut chain, first) = Chain::begin(writer, now, &[], &key);
            entries.push(first);
            for minutes in [30, 0, 31] {
                let time = now + SignedDuration::from_mins(minutes);
                let (action, note) = (Action::KeyRotated, Decision::Note);
                let record = Record::about(time, action, note, "x", "Test", "test");
                entries.push(chain.append(record, &key));
            }
        }
        entries.sort_by_key(|entry| entry.record.time);
        let mut evidence = Evidence::default();
        evidence.log("exported", &export(&entries));
        let terms = Terms {
            trust: Trust::pinned([key.public().as_str()]).unwrap(),
            ..Terms::default()
        };
        let report = verify(evidence, &terms);
        assert!(report.is_whole(), "{:?}", report.problems);
        assert_eq!(report.records(), 8);
    }
}
