//! Ending sessions: which, and what is put on record of what came of it.

use jiff::Timestamp;
use serde::Serialize;

use crate::audit::{Action, Record};
use crate::duration::GoDuration;

/// Sessions in a pod that must not go on: every process of one grant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sessions {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod: in another one of its name nothing is to be ended.
    pub pod_uid: String,
    /// What the processes are known by.
    pub mark: String,
    /// When they were granted: what began before is none of them.
    pub granted_at: Timestamp,
    /// Whether the pod goes with the grant, and so all sessions in it: nothing is run there.
    pub with_pod: bool,
    /// What is put on record if any were ended: see [`Sessions::ended`].
    pub record: Record,
}

impl Sessions {
    /// The record of what came of ending them. None if nobody knows of any, or if it cannot be told
    /// whether they go on.
    #[must_use]
    pub fn ended(&self, came: &SessionsEnded) -> Option<Record> {
        let known = came.opened.is_some();
        let record = if self.with_pod && known {
            self.over("Its sessions end with their pod")
        } else if self.with_pod {
            return None;
        } else if came.ended > 0 || came.left > 0 {
            let record = self.record.clone();
            record
                .detail("ended", came.ended.to_string())
                .detail("left", came.left.to_string())
        } else if known && came.out_of_reach.is_empty() {
            self.over("No process of its sessions was left to end")
        } else {
            return None;
        };
        let Some(Opened { first, count }) = came.opened else {
            return Some(record);
        };
        let lasted = record.time.duration_since(first);
        Some(
            record
                .detail("sessions", count.to_string())
                .detail("firstOpened", first.to_string())
                .detail(
                    "lastedAtMost",
                    GoDuration::from_secs(lasted.as_secs()).to_string(),
                ),
        )
    }

    /// The record that they are over, of themselves.
    fn over(&self, how: &str) -> Record {
        let mut record = self.record.clone();
        record.action = Action::SessionEnded;
        record.id = Record::id(record.action, &self.mark);
        how.clone_into(&mut record.message);
        record
    }
}

/// The sessions of a grant, as far as they are on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// When the first of them was opened.
    pub first: Timestamp,
    /// How many there were.
    pub count: u64,
}

/// What came of ending sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionsEnded {
    /// How many processes were ended.
    pub ended: u32,
    /// How many could not be.
    pub left: u32,
    /// Containers in which nothing can be run, so that nothing could be ended.
    pub out_of_reach: Vec<String>,
    /// The sessions that are on record, if none of them has been ended before.
    pub opened: Option<Opened>,
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::audit::Decision;

    #[test]
    fn the_end_of_sessions_is_on_record_as_far_as_it_is_known() {
        let now = Timestamp::constant(1_790_000_000, 0);
        let (action, id) = (Action::SessionCut, "request-uid");
        let sessions = Sessions {
            namespace: "shop".into(),
            pod: "web-0".into(),
            pod_uid: "pod-uid".into(),
            mark: id.into(),
            granted_at: now,
            with_pod: false,
            record: Record::about(now, action, Decision::End, id, "Expired", "were ended"),
        };
        let ago = |seconds| now - SignedDuration::from_secs(seconds);
        let came = |ended, left, out_of_reach: &[&str], opened: Option<Opened>| SessionsEnded {
            ended,
            left,
            out_of_reach: out_of_reach.iter().map(|&name| name.into()).collect(),
            opened,
        };
        let told = |came: &SessionsEnded| {
            let record = sessions.ended(came)?;
            assert_eq!(record.id, Record::id(record.action, id));
            let details = record.details.into_iter();
            let details: Vec<String> = details.map(|(key, value)| key + "=" + &value).collect();
            Some((record.action, details.join(" ")))
        };
        let two = Some(Opened {
            first: ago(200),
            count: 2,
        });
        let since = format!("firstOpened={} lastedAtMost=3m20s sessions=2", ago(200));
        for (came, expected) in [
            (came(0, 0, &[], None), None),
            (
                came(0, 0, &[], two),
                Some((Action::SessionEnded, since.clone())),
            ),
            (came(0, 0, &["app"], two), None),
            (
                came(2, 0, &[], None),
                Some((action, "ended=2 left=0".to_owned())),
            ),
            (came(1, 1, &["app"], two), {
                let (first, rest) = since.split_once(' ').unwrap();
                let (lasted, many) = rest.split_once(' ').unwrap();
                Some((action, format!("ended=1 {first} {lasted} left=1 {many}")))
            }),
        ] {
            assert_eq!(told(&came), expected);
        }
        let with_pod = Sessions {
            with_pod: true,
            ..sessions.clone()
        };
        assert_eq!(with_pod.ended(&came(0, 0, &[], None)), None);
        let record = with_pod.ended(&came(0, 0, &[], two)).unwrap();
        assert_eq!(record.action, Action::SessionEnded);
        assert_eq!(record.details["lastedAtMost"], "3m20s");
    }
}
