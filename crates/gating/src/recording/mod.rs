//! Recordings of sessions: what is kept of one, in which form, and how it is known to be whole. Pure: the gate
//! says what passed and when, and stores what comes of it.

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

/// The detail of `SessionRecorded` that names to whom a recording is encrypted, with commas between; it is absent where
/// none is.
pub const ENCRYPTED_TO: &str = "encryptedTo";
