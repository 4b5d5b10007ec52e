//! The recording of sessions: which sessions are recorded and where, and the audit records about it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use oz_api::{RecordingConfig, RecordingMode, Requester, encode};
use oz_audit::{Sink, Trail};
use oz_core::access::grant::Grant;
use oz_gating::query::Options;
use oz_gating::recording::{About, ENCRYPTED_TO, Head, Recorder, SessionKey};
use oz_gating::upgrade::Upgrade;
use oz_recording::age::Recipient;
use oz_runtime::Clock;
use oz_trail::{Action, Decision, Record, arguments};
use parking_lot::Mutex;

use crate::answer::Refused;
use crate::socket::runs_command;
use crate::spool::{Recovered, ShareFull, Spool, Waiting};
use crate::storage::Storage;
use crate::tape::{Tape, Writer};

/// The time for which a process that stops waits until recordings are stored.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for which a session that is to be opened waits for room in the share of its user.
const SHARE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the audit trail did not accept a record: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The maximum number of users in `failures`.
const MAX_FAILURES: usize = 1_000;

/// The places that recordings go to.
#[derive(Clone, Debug)]
pub(crate) struct Recordings {
    pub(crate) spool: Arc<Spool>,
    pub(crate) storage: Storage,
    /// The reason why the last recording of a user could not begin, by user.
    failures: Arc<Mutex<HashMap<String, String>>>,
}

/// The plan for the recording of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// No recording is requested.
    None,
    /// The session is recorded.
    Record(RecordingConfig),
    /// The session should be recorded and cannot be, for this reason.
    Cannot(String),
}

/// The data of a session that is being opened.
pub(crate) struct Opening<'a> {
    pub(crate) grant: &'a Grant,
    pub(crate) user: &'a Requester,
    pub(crate) way: &'static str,
    pub(crate) key: &'a SessionKey,
    pub(crate) options: &'a Options,
    pub(crate) at: jiff::Timestamp,
}

impl Plan {
    /// Checks whether the session requires the recording.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self, Self::Record(config) if config.mode == RecordingMode::Required)
    }

    /// Returns the plan for a session of this grant by this user. Waits for a short time if the user has no room in the
    /// spool.
    ///
    /// # Errors
    /// When the session must be recorded and cannot be; and when recordings of the user take their whole share of the
    /// spool: a user who fills it does not continue unrecorded.
    pub(crate) async fn decide(
        recordings: Option<&Recordings>,
        (grant, user): (&Grant, &Requester),
        way: &str,
        asked: Option<&Upgrade>,
    ) -> Result<Self, Refused> {
        // Forwarded ports and logs have no input of a user to record; the bytes that they carry are counted.
        let config = grant.sessions.recording.filter(|_| runs_command(way));
        let Some(config) = config else {
            return Ok(Self::None);
        };
        if let Some(recordings) = recordings {
            recordings.room_for(user).await?;
        }
        let why = match recordings {
            None => "the gate has no storage for recordings (gate.recordings.url of the chart)"
                .to_owned(),
            // The reasons that hold for every protocol come first: kubectl that is refused over WebSockets asks again
            // over SPDY, and shows the second refusal.
            Some(recordings) => match recordings.spool.room() {
                Err(full) => full.to_string(),
                Ok(()) if asked.is_some_and(Upgrade::is_recorded) => {
                    return Ok(Self::Record(config));
                }
                Ok(()) => recordings.take_failure(user).unwrap_or_else(|| {
                    "its protocol cannot be recorded; use kubectl 1.30 or newer, or ozctl"
                        .to_owned()
                }),
            },
        };
        if config.mode != RecordingMode::Required {
            return Ok(Self::Cannot(why));
        }
        let message = format!(
            "template {} requires a recording of each session (spec.accessConfig.recording.mode: \
             Required), and this session cannot be recorded: {why}",
            grant.template
        );
        Err(Refused::new(StatusCode::FORBIDDEN, "NotRecorded", message))
    }
}

impl Recordings {
    pub(crate) fn new(spool: Arc<Spool>, storage: Storage) -> Self {
        Self {
            spool,
            storage,
            failures: Arc::default(),
        }
    }

    /// Returns the reason why the user's last recording could not begin, once.
    fn take_failure(&self, user: &Requester) -> Option<String> {
        self.failures.lock().remove(&user.user)
    }

    /// Remembers why a recording of the user could not begin: kubectl asks again, over a protocol that cannot be
    /// recorded, and shows the second refusal.
    fn remember_failure(&self, user: &Requester, why: String) {
        let mut failures = self.failures.lock();
        if failures.len() >= MAX_FAILURES {
            failures.clear();
        }
        failures.insert(user.user.clone(), why);
    }

    /// Waits for a short time for room in a user's share of the spool.
    ///
    /// # Errors
    /// When there is no room.
    async fn room_for(&self, user: &Requester) -> Result<(), Refused> {
        let share = self.spool.share(&user.user);
        let _ = tokio::time::timeout(SHARE_TIMEOUT, share.resumes()).await;
        share.room().map_err(|full: ShareFull| {
            let status = StatusCode::TOO_MANY_REQUESTS;
            Refused::new(status, "RecordingShareFull", full.to_string())
        })
    }

    /// Begins to record a session.
    pub(crate) async fn begin(
        &self,
        opening: &Opening<'_>,
        config: &RecordingConfig,
    ) -> Result<Writer, Refused> {
        let recorder = Recorder::new(about(opening), config);
        let recording = self.spool.begin(opening.key.clone(), &opening.user.user);
        let required = config.mode == RecordingMode::Required;
        match Tape::begin(recorder, recording, required).await {
            Ok(writer) => {
                self.take_failure(opening.user);
                Ok(writer)
            }
            Err(error) => {
                tracing::warn!(session = %opening.key, %error, "failed to begin a recording");
                let why = error.without_names();
                let message =
                    format!("failed to begin the recording: {why}; try again in a moment");
                self.remember_failure(opening.user, message.clone());
                Err(Refused::unavailable("NotRecorded", message))
            }
        }
    }

    /// Waits until the recordings in the spool are stored, for as long as a process that stops can wait.
    pub(crate) async fn flush(&self) {
        if let Err(Waiting {
            parts,
            bytes,
            oldest,
        }) = self.spool.flush(FLUSH_TIMEOUT).await
        {
            tracing::warn!(
                parts,
                bytes,
                ?oldest,
                "not all recordings are stored; the next process with this spool stores the rest"
            );
        }
    }

    /// Records the interrupted recordings of an earlier process in the audit trail.
    ///
    /// The next process finds each of them again until its record is where it belongs.
    pub(crate) async fn recovered(&self, trail: &Trail, clock: &dyn Clock, left: Vec<Recovered>) {
        for Recovered {
            key,
            head,
            header,
            recipients,
        } in left
        {
            let about = header.and_then(|line| {
                let header: oz_gating::recording::Header = serde_json::from_slice(&line).ok()?;
                Some(header.oz)
            });
            let message = format!("the recording of session {key} ends where the gate stopped");
            let what = (&key, &head, recipients.as_slice());
            let mut record = recorded(clock.now(), what, "Interrupted", message);
            if let Some(about) = about {
                record.request.kind = about.request_kind;
                record.request.uid = about.request_uid;
                record.user = Some(Requester {
                    user: about.user,
                    uid: about.user_uid,
                    groups: Vec::new(),
                });
            }
            on_record(trail, &record).await;
            if let Err(error) = self.spool.forget(&key).await {
                tracing::warn!(session = %key, %error, "failed to remove a recording that is in \
                    the audit trail");
            }
        }
    }
}

/// Waits until a record is in the audit trail, without a timeout.
pub(crate) async fn on_record(trail: &impl Sink, record: &Record) {
    let mut pause = FIRST_PAUSE;
    while let Err(failure) = trail.record(record).await {
        tracing::warn!(%failure, record = record.line(), "the audit record of a recording is not \
            written yet");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns the record of a complete recording: its name, its head, and the recipients of its encryption.
pub(crate) fn recorded(
    now: jiff::Timestamp,
    (key, head, recipients): (&SessionKey, &Head, &[Recipient]),
    reason: &str,
    message: String,
) -> Record {
    let (action, decision) = (Action::SessionRecorded, Decision::Note);
    let mut record = Record::about(now, action, decision, &key.to_string(), reason, message)
        .detail("session", key.to_string())
        .detail("parts", head.parts.to_string())
        .detail("head", head.digest.clone());
    if !recipients.is_empty() {
        let recipients: Vec<String> = recipients.iter().map(Recipient::to_string).collect();
        record = record.detail(ENCRYPTED_TO, recipients.join(","));
    }
    record.request.namespace.clone_from(&key.namespace);
    record.request.name.clone_from(&key.request);
    record
}

/// Returns the data about a session that its recording contains.
pub(crate) fn about(opening: &Opening<'_>) -> About {
    let Opening {
        grant,
        user,
        way,
        key,
        options,
        at,
    } = *opening;
    let command = options.command();
    About {
        session: key.to_string(),
        request_uid: grant.request.uid.clone(),
        request_kind: grant.request.kind.clone(),
        user: user.user.clone(),
        user_uid: user.uid.clone(),
        pod: grant.pod.name.clone(),
        pod_uid: grant.pod.uid.clone(),
        container: grant.container(options.container()).map(str::to_owned),
        way: way.to_owned(),
        tty: options.tty(),
        command_digest: (!command.is_empty()).then(|| encode::digest(&command)),
        command: arguments(&command, grant.sessions.record_arguments),
        opened_at: at,
        part: 0,
        previous: String::new(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
