//! Sessions through the gate: those that are over, by the audit trail ([`past`]), those that are open, by the gate
//! ([`live`]), and what is stored of them ([`source`]): to play it ([`playback`]), to read it ([`transcript`]) and to
//! compare it with the audit trail ([`verification`]). Another user produced the content of a recording: only its
//! letters, their colours and their positions are for a terminal ([`harmless`]).

mod error;
mod gate;
pub mod harmless;
mod identities;
pub mod live;
pub mod past;
pub mod playback;
pub mod source;
pub mod transcript;
pub mod verification;

pub use self::error::{BreakOff, PartError, SessionError};
pub use self::gate::GateError;
pub use self::identities::Identities;
