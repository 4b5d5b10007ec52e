//! The audit trail for its readers: selecting audit records ([`select`], [`newest`]), following them as they are
//! written ([`Tail`]), verifying that none is missing or changed ([`Collected`]), and having the oldest deleted
//! ([`prune`]).

mod instant;
mod prune;
mod select;
mod tail;
mod verify;

pub use instant::{InstantError, instant};
pub use prune::{PruneError, prune, pruned};
pub use select::{export, in_log, newest, record, select};
pub use tail::{Tail, Tailed};
pub use verify::{Collected, Kept, Verified, VerifyError, kept_since, pinned};
