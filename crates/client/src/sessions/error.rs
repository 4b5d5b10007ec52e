//! The errors about sessions and their recordings.

use std::path::PathBuf;

use avt::InvalidSize;
use oz_gating::recording::{PartName, SessionKey};
use oz_recording::UnpackError;
use oz_recording::age::{AgeError, Recipient};
use oz_recording::frames::FramesError;
use tower::BoxError;

use super::gate::GateError;
use super::shared_name::{self, NamedRequest};
use crate::failure::Failure;

/// The reason why a session, or a recording, cannot be found or read.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The API server denied the request, or did not respond.
    #[error(transparent)]
    Cluster(Failure),
    /// The text names no session.
    #[error("{text} is not a session: write REQUEST, or REQUEST/SESSION")]
    Malformed {
        /// The text.
        text: String,
        /// True if an open session was to be named.
        is_open: bool,
    },
    /// No session of the request is recorded.
    #[error("there is no recording of request {request} in namespace {namespace}")]
    NoRecording {
        /// The namespace.
        namespace: String,
        /// The name of the request.
        request: String,
    },
    /// The name stands for several requests, one after the other.
    #[error(
        "{request} in namespace {namespace} is the name of {} requests: {}",
        .requests.len(),
        shared_name::list(.requests)
    )]
    SharedName {
        /// The namespace.
        namespace: String,
        /// The name of the requests.
        request: String,
        /// The requests, that with the last session first.
        requests: Vec<NamedRequest>,
    },
    /// The session is not recorded.
    #[error("there is no recording of session {0}")]
    NotRecorded(SessionKey),
    /// No session of the request is open.
    #[error("no session of request {request} in namespace {namespace} is open{}", because(.incomplete))]
    NotOpen {
        /// The namespace.
        namespace: String,
        /// The name of the request.
        request: String,
        /// The reasons why the gate may not know all sessions.
        incomplete: Vec<String>,
    },
    /// The gate's list of recordings is malformed.
    #[error("failed to list the gate's recordings of request {request}: {error}")]
    Recordings {
        /// The name of the request.
        request: String,
        /// The cause.
        error: serde_json::Error,
    },
    /// The gate's list of open sessions is malformed.
    #[error("failed to list the open sessions of request {request}: {error}")]
    Open {
        /// The name of the request.
        request: String,
        /// The cause.
        error: serde_json::Error,
    },
    /// The gate's description of a session is malformed.
    #[error("failed to read the gate's response about the session: {0}")]
    Description(serde_json::Error),
    /// A recording cannot be read from the gate.
    #[error("failed to read {path}: {error}")]
    Read {
        /// The path.
        path: String,
        /// The cause.
        error: GateError,
    },
    /// The gate does not do what it was asked for about an open session.
    #[error("failed to ask for {path}: {error}")]
    Ask {
        /// The path.
        path: String,
        /// The cause.
        error: GateError,
    },
    /// A recording cannot be read from a directory.
    #[error("failed to read {}: {error}", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The content of a part cannot be read.
    #[error("failed to read {name}: {error}")]
    Part {
        /// The name of the part.
        name: Box<PartName>,
        /// The cause.
        error: PartError,
    },
    /// A part is encrypted, and no identity was given.
    #[error("{name} is encrypted to {}", list(.to))]
    Encrypted {
        /// The name of the part.
        name: Box<PartName>,
        /// The recipients that the part names.
        to: Vec<Recipient>,
    },
    /// A part is encrypted to others than the given identities.
    #[error("{name} is encrypted to {}, and the identity given is of {}", list(.to), list(.ours))]
    OtherIdentity {
        /// The name of the part.
        name: Box<PartName>,
        /// The recipients that the part names.
        to: Vec<Recipient>,
        /// The recipients of the given identities.
        ours: Vec<Recipient>,
    },
    /// No terminal has the size that a recording names.
    #[error(transparent)]
    Screen(InvalidSize),
    /// The data of a watched session broke off.
    #[error("watching session {key} was interrupted: {error}")]
    BrokenOff {
        /// The session.
        key: Box<SessionKey>,
        /// The cause.
        error: BreakOff,
    },
}

/// The reason why the content of a part cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// It cannot be decompressed.
    #[error(transparent)]
    Packed(#[from] UnpackError),
    /// It cannot be decrypted.
    #[error(transparent)]
    Age(#[from] AgeError),
    /// The frames cannot be decrypted.
    #[error(transparent)]
    Frames(#[from] FramesError),
    /// The lines are not lines of a recording.
    #[error("{0}")]
    Lines(String),
}

/// The reason why watching a session broke off.
#[derive(Debug, thiserror::Error)]
pub enum BreakOff {
    /// The connection broke.
    #[error("{0}")]
    Connection(BoxError),
    /// A line has more bytes than a recording may have in one.
    #[error("a line is too long")]
    LongLine,
    /// A line is not a line of a recording.
    #[error(transparent)]
    Line(#[from] serde_json::Error),
    /// The session ended without a line.
    #[error("nothing was sent")]
    Silence,
    /// The viewer could not show a line.
    #[error(transparent)]
    Shown(Failure),
}

impl SessionError {
    /// Returns the error about recordings at this path of the gate.
    pub(super) fn read(path: &str, error: GateError) -> Self {
        let path = path.to_owned();
        match error {
            GateError::Cluster(failure) => Self::Cluster(failure),
            error => Self::Read { path, error },
        }
    }

    /// Returns the error about open sessions at this path of the gate.
    pub(super) fn ask(path: &str, error: GateError) -> Self {
        let path = path.to_owned();
        match error {
            GateError::Cluster(failure) => Self::Cluster(failure),
            error => Self::Ask { path, error },
        }
    }

    /// Returns the next step, if it is known.
    #[must_use]
    pub fn next_step(&self) -> Option<&'static str> {
        Some(match self {
            Self::Malformed { is_open: false, .. } => "`ozctl sessions list` lists the sessions",
            Self::Malformed { is_open: true, .. } => {
                "`ozctl sessions list --live` lists the open sessions"
            }
            Self::SharedName { .. } => "write the UID in place of the name, or REQUEST/SESSION",
            Self::NoRecording { .. } | Self::NotRecorded(_) => {
                "`ozctl sessions list` lists the sessions that ended"
            }
            Self::NotOpen { .. } => "`ozctl sessions list --live` lists the open sessions",
            Self::Read {
                error: GateError::Refused { .. },
                ..
            } => "reading recordings requires ClusterRole oz-recording-viewer in their namespace",
            Self::Ask {
                error: GateError::Refused { status, .. },
                ..
            } if *status == http::StatusCode::FORBIDDEN => {
                "listing, watching and ending open sessions requires ClusterRole \
                    oz-session-moderator in their namespace"
            }
            Self::Encrypted { .. } => {
                "give the age identity of a recipient: `--identity FILE`. `ozctl sessions verify` \
                    needs none"
            }
            Self::OtherIdentity { .. } => {
                "give the identity of a recipient: `age-keygen -y FILE` prints the recipient of an \
                    identity"
            }
            Self::BrokenOff { .. } => {
                "it may still be open: `ozctl sessions list --live` lists the open sessions"
            }
            _ => return None,
        })
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let next = error.next_step();
        match (error, next) {
            (SessionError::Cluster(failure), _) => failure,
            (error, Some(next)) => Self::new(error.to_string()).next(next),
            (error, None) => Self::new(error.to_string()),
        }
    }
}

fn because(incomplete: &[String]) -> String {
    match incomplete {
        [] => String::new(),
        incomplete => format!(" ({})", incomplete.join("; ")),
    }
}

fn list(recipients: &[Recipient]) -> String {
    if recipients.is_empty() {
        return "an unnamed recipient".to_owned();
    }
    let all: Vec<String> = recipients.iter().map(ToString::to_string).collect();
    all.join(", ")
}
