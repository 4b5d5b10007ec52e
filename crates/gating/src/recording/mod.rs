//! Recordings of sessions: their content, their form and the verification of their completeness. This module is pure:
//! the gate supplies the data of a session with its times, and stores the results.

mod cast;
mod chain;
mod echo;
mod key;
mod listing;
mod plain;
mod recorder;
#[cfg(test)]
mod tests;
mod verify;

pub use cast::{About, Code, Event, Header, MAX_LINE, Part};
pub use chain::Head;
pub use key::{Form, PartName, SessionKey};
pub use listing::{Listing, Recorded};
pub use recorder::{KEPT, Recorder, Stream};
pub use verify::{Finding, Stored, check};

/// The detail of `SessionRecorded` with the recipients of the recording, separated by commas. It is absent if there are
/// no recipients.
pub const ENCRYPTED_TO: &str = "encryptedTo";
