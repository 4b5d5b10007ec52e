//! The destinations in the status of a run: the counts that its proxy reported, merged and bounded.

use jiff::Timestamp;
use oz_api::harness::wire::{EgressCount, MAX_DESTINATIONS};
use oz_api::harness::{MAX_EGRESS, RunEgress};

/// The maximum length of the name of a host, and of a credential, in bytes.
const NAME: usize = 253;
/// The maximum count of a report, which no proxy reaches in its interval: a larger count is an error.
const COUNT: u64 = 10_000_000;

/// Returns the destinations of a report, within the limits of [`MAX_DESTINATIONS`] and of the texts, without control
/// characters. Entries that count nothing are left out.
#[must_use]
pub fn cleaned(counts: Vec<EgressCount>) -> Vec<EgressCount> {
    let counts = counts.into_iter().take(MAX_DESTINATIONS).map(clean);
    counts
        .filter(|count| count.granted > 0 || count.refused > 0 || count.uses > 0)
        .collect()
}

fn clean(count: EgressCount) -> EgressCount {
    EgressCount {
        host: text(count.host).to_ascii_lowercase(),
        port: count.port,
        granted: count.granted.min(COUNT),
        refused: count.refused.min(COUNT),
        reason: count.reason.filter(|_| count.refused > 0),
        credential: count.credential.map(text).filter(|name| !name.is_empty()),
        uses: count.uses.min(COUNT),
    }
}

fn text(mut text: String) -> String {
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    text.truncate(text.floor_char_boundary(NAME));
    text
}

/// Returns the destinations of a status after a report at `now`: the latest [`MAX_EGRESS`], the latest first.
#[must_use]
pub fn merged(before: Vec<RunEgress>, counts: &[EgressCount], now: Timestamp) -> Vec<RunEgress> {
    let mut all = before;
    for count in counts {
        let known = all
            .iter()
            .position(|entry| entry.host == count.host && entry.port == count.port);
        let mut entry = known.map_or_else(
            || RunEgress {
                host: count.host.clone(),
                port: count.port,
                ..RunEgress::default()
            },
            |at| all.remove(at),
        );
        let add = |sum: i64, more: u64| sum.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
        entry.granted = add(entry.granted, count.granted);
        entry.refused = add(entry.refused, count.refused);
        if let Some(reason) = count.reason {
            entry.reason = Some(reason.to_string());
        }
        if count.credential.is_some() {
            entry.credential.clone_from(&count.credential);
        }
        entry.first.get_or_insert(now);
        entry.last = entry.last.max(Some(now));
        all.insert(0, entry);
    }
    all.truncate(MAX_EGRESS);
    all
}

/// Returns the sum of two lists of counts, at most [`MAX_DESTINATIONS`] destinations, the latest last.
#[must_use]
pub fn summed(older: Vec<EgressCount>, newer: Vec<EgressCount>) -> Vec<EgressCount> {
    let mut all = older;
    for count in newer {
        let known = all
            .iter()
            .position(|entry| entry.host == count.host && entry.port == count.port);
        let before = known.map(|at| all.remove(at)).unwrap_or_default();
        all.push(EgressCount {
            granted: before.granted.saturating_add(count.granted),
            refused: before.refused.saturating_add(count.refused),
            uses: before.uses.saturating_add(count.uses),
            reason: count.reason.or(before.reason),
            credential: count.credential.or(before.credential),
            ..count
        });
    }
    let excess = all.len().saturating_sub(MAX_DESTINATIONS);
    all.drain(..excess);
    all
}

#[cfg(test)]
mod tests {
    use oz_api::harness::wire::EgressReason;

    use super::*;

    fn count(host: &str, granted: u64, refused: u64) -> EgressCount {
        EgressCount {
            host: host.to_owned(),
            port: 443,
            granted,
            refused,
            reason: (refused > 0).then_some(EgressReason::HostNotGranted),
            ..EgressCount::default()
        }
    }

    fn timestamp(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn texts_of_report_are_bounded_and_have_no_control_characters() {
        let long = format!("A\n\u{7f}{}", "ä".repeat(400));
        let mut sent = count(&long, 1, u64::MAX);
        sent.credential = Some(long);
        let cleaned = cleaned(vec![sent, count("b.example.com", 0, 0)]);
        let [one] = cleaned.as_slice() else {
            panic!("{cleaned:?}");
        };
        assert!(
            one.host.len() <= NAME && one.host.starts_with("a  ä"),
            "{}",
            one.host
        );
        assert!(one.credential.as_ref().unwrap().len() <= NAME);
        assert_eq!(one.refused, COUNT);
    }

    #[test]
    fn destinations_of_report_beyond_the_limit_are_dropped() {
        let many = (0..500).map(|at| count(&format!("{at}.example.com"), 1, 0));
        assert_eq!(cleaned(many.collect()).len(), MAX_DESTINATIONS);
    }

    #[test]
    fn reason_without_refusal_is_dropped() {
        let mut sent = count("a.example.com", 1, 0);
        sent.reason = Some(EgressReason::Protocol);
        assert_eq!(cleaned(vec![sent])[0].reason, None);
    }

    #[test]
    fn counts_of_destination_add_up_and_latest_twenty_are_kept() {
        let first = merged(Vec::new(), &[count("a.example.com", 2, 1)], timestamp(1));
        let again = merged(first, &[count("a.example.com", 1, 0)], timestamp(5));
        let [one] = again.as_slice() else {
            panic!("{again:?}");
        };
        assert_eq!((one.granted, one.refused), (3, 1));
        assert_eq!(
            (one.first, one.last),
            (Some(timestamp(1)), Some(timestamp(5)))
        );
        assert_eq!(one.reason.as_deref(), Some("HostNotGranted"));

        let many: Vec<_> = (0..30)
            .map(|at| count(&format!("{at}.example.com"), 1, 0))
            .collect();
        let all = merged(again, &many, timestamp(6));
        assert_eq!(all.len(), MAX_EGRESS);
        assert_eq!(all[0].host, "29.example.com");
        // The destination that is used again is the latest.
        let all = merged(all, &[count("10.example.com", 1, 0)], timestamp(7));
        assert_eq!(all[0].host, "10.example.com");
        assert_eq!(all.len(), MAX_EGRESS);
    }

    #[test]
    fn counts_that_wait_are_summed_with_later_ones() {
        let all = summed(
            vec![count("a.example.com", 1, 1), count("b.example.com", 1, 0)],
            vec![count("a.example.com", 1, 0)],
        );
        assert_eq!(all.len(), 2);
        assert_eq!(all[1].host, "a.example.com");
        assert_eq!((all[1].granted, all[1].refused), (2, 1));
        assert_eq!(all[1].reason, Some(EgressReason::HostNotGranted));
    }
}
