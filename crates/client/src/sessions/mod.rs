//! Sessions through the gate: past ones, from the audit trail ([`past`]), open ones, from the gate ([`live`]), and their
//! recordings ([`source`]): playing ([`playback`]), reading ([`transcript`]), and the comparison with the audit trail
//! ([`verification`]). The UIDs of the requests distinguish those of one name (`requests`). Another user produced the
//! content of a recording: only its letters, their colours and their positions are for a terminal ([`harmless`]).

mod error;
mod find;
mod gate;
pub mod harmless;
mod identities;
pub mod live;
pub mod past;
pub mod playback;
mod requests;
mod shared_name;
pub mod source;
pub mod transcript;
pub mod verification;

pub use self::error::{BreakOff, PartError, SessionError};
pub use self::find::FoundSession;
pub use self::gate::GateError;
pub use self::identities::Identities;
pub use self::shared_name::NamedRequest;
