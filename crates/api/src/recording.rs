//! `spec.accessConfig.recording`: the recording of sessions that go through the gate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is kept of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordingConfig {
    /// Off: nothing is kept. Offered: sessions are recorded as long as the gate can, and are let through where it
    /// cannot. Required: a session that cannot be recorded is refused, and one that cannot be any more ends.
    pub mode: RecordingMode,

    /// What is kept of what users type on a terminal. Echoed: what comes back within a second; of all else, such as
    /// passwords, how many characters it was. All: everything. None: nothing, neither of what is piped in.
    pub input: RecordedInput,

    /// What is kept of sessions without a terminal. Digest: the first MiB of each stream, and how long it was, with
    /// its SHA-256. All: everything. Left out, it is All where the mode is Required, and Digest where it is Offered.
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
            (None, RecordingMode::Offered | RecordingMode::Off) => NonInteractive::Digest,
        }
    }
}

/// Whether sessions are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RecordingMode {
    /// No.
    #[default]
    Off,
    /// As long as that is possible.
    Offered,
    /// There is no session without.
    Required,
}

/// What is kept of what goes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RecordedInput {
    /// What comes back.
    #[default]
    Echoed,
    /// Everything.
    All,
    /// Nothing.
    None,
}

/// What is kept of sessions without a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NonInteractive {
    /// How each stream begins, how long it was, and its digest.
    Digest,
    /// Everything.
    All,
}
