//! Whether and where sessions are recorded, and what is put on record of it.

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
use parking_lot::{Mutex, MutexGuard};

use crate::answer::Refused;
use crate::socket::runs_command;
use crate::spool::{Recovered, ShareFull, Spool, Waiting};
use crate::storage::Storage;
use crate::tape::{Tape, Writer};

/// How long a process that stops waits for recordings to be stored.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a session that is to be opened waits for room in the share of its user.
const SHARE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the trail is left alone after it did not take a record, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Where recordings go.
#[derive(Clone, Debug)]
pub(crate) struct Recordings {
    pub(crate) spool: Arc<Spool>,
    pub(crate) storage: Storage,
    /// The error of the last recording, if it could not begin.
    failed: Arc<Mutex<Option<String>>>,
}

/// What is to be done about one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nobody asks for a recording.
    None,
    /// It is recorded.
    Record(RecordingConfig),
    /// It should be, and cannot.
    Cannot(String),
}

/// About a session that is being opened.
pub(crate) struct Opening<'a> {
    pub(crate) grant: &'a Grant,
    pub(crate) user: &'a Requester,
    pub(crate) way: &'static str,
    pub(crate) key: &'a SessionKey,
    pub(crate) options: &'a Options,
    pub(crate) at: jiff::Timestamp,
}

impl Plan {
    /// Whether there is no session without.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self, Self::Record(config) if config.mode == RecordingMode::Required)
    }

    /// For a session of this grant, by this user. Waits a little where the user has no room in the spool.
    ///
    /// # Errors
    /// Where it must be recorded, and cannot; and where recordings of the user take their share of the spool: a user
    /// who fills it does not go on unrecorded.
    pub(crate) async fn of(
        recordings: Option<&Recordings>,
        (grant, user): (&Grant, &Requester),
        way: &str,
        asked: Option<&Upgrade>,
    ) -> Result<Self, Refused> {
        // Forwarded ports and logs are no sessions that somebody types in; what they carried is counted.
        let config = grant.sessions.recording.filter(|_| runs_command(way));
        let Some(config) = config else {
            return Ok(Self::None);
        };
        if let Some(recordings) = recordings {
            recordings.room_for(user).await?;
        }
        let why = match recordings {
            None => "the gate has nowhere to keep recordings (gate.recordings.url of the chart)"
                .to_owned(),
            // What would be so by whatever protocol is told first: kubectl that is refused over WebSockets asks
            // again over SPDY, and shows what it is told then.
            Some(recordings) => match recordings.spool.room() {
                Err(full) => full.to_string(),
                Ok(()) if asked.is_some_and(Upgrade::is_recorded) => {
                    return Ok(Self::Record(config));
                }
                Ok(()) => recordings.failure().take().unwrap_or_else(|| {
                    "its protocol is none that is recorded; use kubectl 1.30 or newer, or ozctl"
                        .to_owned()
                }),
            },
        };
        if config.mode != RecordingMode::Required {
            return Ok(Self::Cannot(why));
        }
        let message = format!(
            "template {} has every session recorded (spec.accessConfig.recording.mode: Required), and this one \
             cannot be: {why}",
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
            failed: Arc::default(),
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failed.lock()
    }

    /// Waits for room in a user's share of the spool, a little.
    ///
    /// # Errors
    /// That there is none.
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
        let begun = Tape::begin(recorder, recording, required).await;
        let begun = begun.map_err(|error| {
            format!("failed to begin the recording: {error}; try again in a moment")
        });
        *self.failure() = begun.as_ref().err().cloned();
        begun.map_err(|message| Refused::unavailable("NotRecorded", message))
    }

    /// Waits for what is in the spool to be stored, as long as a process that stops can.
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
                "not all recordings are stored; what is in the spool is taken up by the next process that has it"
            );
        }
    }

    /// Puts on record what an earlier process left, which broke off.
    ///
    /// Each is found again by the next process until its record is where it is to be.
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
            let message = format!(
                "the recording of session {key} is as long as the gate was: it stopped in the middle"
            );
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
                tracing::warn!(session = %key, %error, "failed to forget a recording that is on record");
            }
        }
    }
}

/// Waits until something is on record, for as long as that takes.
pub(crate) async fn on_record(trail: &impl Sink, record: &Record) {
    let mut pause = FIRST_PAUSE;
    while let Err(failure) = trail.record(record).await {
        tracing::warn!(%failure, record = record.line(), "a recording is not on record yet");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// That a recording is whole: which, its head, and to whom it is encrypted.
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

/// What a recording says about its session.
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
mod tests;
