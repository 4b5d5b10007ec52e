//! The result of a command, as the kubelet reports it on the last channel.

use serde::Deserialize;

use super::messages::{ERROR, Piece};

/// The maximum length of a status that is read, in bytes.
const MAX_STATUS: usize = 16 << 10;

/// The status of a command, collected in pieces.
#[derive(Clone, Debug, Default)]
pub struct Exit {
    status: Vec<u8>,
}

#[derive(Deserialize)]
struct Status {
    status: String,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Cause {
    reason: String,
    message: String,
}

impl Exit {
    /// Adds a piece from any channel.
    pub fn said(&mut self, piece: Piece<'_>) {
        if piece.channel == ERROR {
            let room = MAX_STATUS.saturating_sub(self.status.len());
            self.status
                .extend_from_slice(&piece.bytes[..room.min(piece.bytes.len())]);
        }
    }

    /// Returns the exit code, once it was received.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        let status: Status = serde_json::from_slice(&self.status).ok()?;
        if status.status == "Success" {
            return Some(0);
        }
        let causes = status.details?.causes;
        let code = causes.iter().find(|cause| cause.reason == "ExitCode")?;
        code.message.parse().ok()
    }
}
