//! `spec.accessConfig.recording`: the recording of sessions that go through the gate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Recording of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordingConfig {
    /// Off: nothing is kept. BestEffort: sessions are recorded as long as the gate can, and are let through where it
    /// cannot. Required: a session that cannot be recorded is refused, and one that cannot be any more ends.
    pub mode: RecordingMode,

    /// Recorded input of sessions with a terminal. Echoed: the input that the terminal echoes within a
    /// second, and only the number of characters of other input, such as passwords. All: all input. None:
    /// no input, including piped input.
    pub input: RecordedInput,

    /// What is kept of sessions without a terminal. Digest: the first MiB of each stream, and how long it was, with
    /// its SHA-256. All: everything. Left out, it is All where the mode is Required, and Digest where it is BestEffort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_interactive: Option<NonInteractive>,
}

impl RecordingConfig {
    /// Returns the recorded parts of sessions without a terminal: sessions that must be recorded are recorded as a
    /// whole, unless the template configures otherwise.
    #[must_use]
    pub fn kept_without_terminal(&self) -> NonInteractive {
        match (self.non_interactive, self.mode) {
            (Some(kept), _) => kept,
            (None, RecordingMode::Required) => NonInteractive::All,
            (None, RecordingMode::BestEffort | RecordingMode::Off) => NonInteractive::Digest,
        }
    }
}

/// The mode of the recording of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RecordingMode {
    /// Sessions are not recorded.
    #[default]
    Off,
    /// As long as that is possible.
    BestEffort,
    /// There is no session without.
    Required,
}

/// The recorded input of sessions with a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RecordedInput {
    /// The input that the terminal echoes.
    #[default]
    Echoed,
    /// All input.
    All,
    /// No input.
    None,
}

/// Recorded data of sessions without a terminal. Digest: the first MiB of each stream, its length and
/// SHA-256. All: the whole streams. If unset, All for mode Required and Digest for mode Offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NonInteractive {
    /// The first MiB of each stream, its length and SHA-256.
    Digest,
    /// The whole streams.
    All,
}
