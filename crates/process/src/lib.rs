//! What the oz binaries share to be processes: flags, logs, signals, the audit trail and the key
//! that seals stamps and grants. Apart from both, so that they cannot come to differ.

mod address;
mod args;
pub mod audit;
mod signals;
mod signing_key;
mod transient;

pub use address::Address;
pub use args::{Common, LogFormat};
pub use signals::shutdown_on_signal;
pub use signing_key::signing_keys;
pub use transient::TransientArgs;
