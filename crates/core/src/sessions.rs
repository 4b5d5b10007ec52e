//! The port that ends sessions, as controllers and the operator use it: the sessions to end, the result, and
//! its audit record. The operator implements it.

use jiff::Timestamp;
use oz_api::duration::GoDuration;
use oz_trail::{Action, Record};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::controller::{Answers, Effect, Failure, Step};

/// Name of the port.
pub const PORT: &str = "sessions";
/// The reason of sessions that could not be ended yet.
pub const NOT_ENDED: &str = "SessionsNotEnded";

/// The sessions in a pod that must end: every process of one grant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sessions {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod: the port ends nothing in another pod of this name.
    pub pod_uid: String,
    /// Mark of the processes.
    pub mark: String,
    /// Time of the grant: processes that began before do not belong to it.
    pub granted_at: Timestamp,
    /// Whether the pod is deleted with the grant, and so all sessions in it end: the port runs nothing there.
    pub with_pod: bool,
    /// Audit record that is written if sessions were ended: see [`Sessions::ended`].
    pub record: Record,
}

impl From<Sessions> for Step {
    fn from(sessions: Sessions) -> Self {
        Self::Effect(Effect {
            port: PORT.to_owned(),
            key: format!("{}/{}", sessions.mark, sessions.pod_uid),
            // Strings, numbers and instants always serialise. A null payload fails at the port with a clear
            // message, should that ever be untrue.
            payload: serde_json::to_value(sessions).unwrap_or_default(),
        })
    }
}

impl TryFrom<&Effect> for Sessions {
    type Error = Failure;

    fn try_from(effect: &Effect) -> Result<Self, Failure> {
        let Effect { port, key, payload } = effect;
        if port != PORT {
            let message = format!("effect {key} is for the port {port}, not for {PORT}");
            return Err(Failure::invalid("InvalidEffect", message));
        }
        Self::deserialize(payload).map_err(|error| {
            let message = format!("failed to read the effect {key} of the port {PORT}: {error}");
            Failure::invalid("InvalidEffect", message)
        })
    }
}

impl Sessions {
    /// Returns the audit record of the result. None if no session is known, or if their state is unknown.
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

    /// Returns the audit record of sessions that ended without the port.
    fn over(&self, how: &str) -> Record {
        let mut record = self.record.clone();
        record.action = Action::SessionEnded;
        record.id = Record::id(record.action, &self.mark);
        how.clone_into(&mut record.message);
        record
    }
}

/// The sessions of a grant, according to the audit records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Time of the first session.
    pub first: Timestamp,
    /// Number of sessions.
    pub count: u64,
}

/// The result of ending sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionsEnded {
    /// Number of ended processes.
    pub ended: u32,
    /// Number of processes that could not be ended.
    pub left: u32,
    /// Containers in which no command can run, so that no process could be ended.
    pub out_of_reach: Vec<String>,
    /// The recorded sessions, if none of them has been ended before.
    pub opened: Option<Opened>,
}

impl SessionsEnded {
    /// Returns the answer of the port; null for `None`.
    #[must_use]
    pub fn to_answer(this: Option<&Self>) -> Value {
        serde_json::to_value(this).unwrap_or_default()
    }

    /// Returns the port's answer for the sessions of this mark, in any pod; `None` if it was not called,
    /// failed, or had no answer about them.
    #[must_use]
    pub fn find(answers: &Answers, mark: &str) -> Option<Self> {
        let mut answers = answers.of_port(PORT);
        let (_, answer) = answers.find(|(key, _)| {
            key.split_once('/')
                .is_some_and(|(of_mark, _)| of_mark == mark)
        })?;
        Option::deserialize(answer).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use oz_trail::Decision;

    use super::*;

    const MARK: &str = "request-uid";

    fn sessions(now: Timestamp) -> Sessions {
        let (action, end) = (Action::SessionTerminated, Decision::End);
        Sessions {
            namespace: "shop".into(),
            pod: "web-0".into(),
            pod_uid: "pod-uid".into(),
            mark: MARK.into(),
            granted_at: now,
            with_pod: false,
            record: Record::about(now, action, end, MARK, "Expired", "were ended"),
        }
    }

    #[test]
    fn the_end_of_sessions_is_on_record_as_far_as_it_is_known() {
        let now = Timestamp::constant(1_790_000_000, 0);
        let (action, id) = (Action::SessionTerminated, MARK);
        let sessions = sessions(now);
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

    #[test]
    fn a_step_says_what_its_sessions_are_and_an_answer_is_found_by_their_mark() {
        let now = Timestamp::constant(1_790_000_000, 123_456_789);
        let id = MARK;
        let sessions = sessions(now);
        let Step::Effect(effect) = Step::from(sessions.clone()) else {
            panic!("another step");
        };
        assert_eq!(
            (effect.port.as_str(), effect.key.as_str()),
            (PORT, "request-uid/pod-uid")
        );
        assert_eq!(Sessions::try_from(&effect), Ok(sessions));

        let ended = SessionsEnded {
            ended: 2,
            left: 1,
            out_of_reach: vec!["app".into()],
            opened: Some(Opened {
                first: now,
                count: 3,
            }),
        };
        let mut answers = Answers::default();
        assert_eq!(SessionsEnded::find(&answers, id), None);
        answers.insert(&effect, SessionsEnded::to_answer(None));
        assert_eq!(SessionsEnded::find(&answers, id), None);
        answers.insert(&effect, SessionsEnded::to_answer(Some(&ended)));
        assert_eq!(SessionsEnded::find(&answers, id), Some(ended));
        assert_eq!(SessionsEnded::find(&answers, "request"), None);

        let other = Effect {
            port: "tickets".into(),
            ..effect.clone()
        };
        let broken = Effect {
            payload: Value::Null,
            ..effect
        };
        for (wrong, says) in [(other, "tickets"), (broken, "null")] {
            let failure = Sessions::try_from(&wrong).unwrap_err();
            assert_eq!(failure.class, crate::controller::FailureClass::Invalid);
            assert!(failure.message.contains(says), "{failure}");
        }
    }
}
