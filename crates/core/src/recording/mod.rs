//! Recordings of sessions: what is kept of one, in which form, and how it is known to be whole. Pure: the gate
//! says what passed and when, and stores what comes of it.

mod chain;
mod key;

pub use chain::Head;
pub use key::{PartName, SessionKey};
