//! What the oz binaries share to be processes: flags, logs, signals, the record log and the key
//! that seals stamps and grants. Apart from both, so that they cannot come to differ.

mod address;
mod args;
mod records;
mod signals;
mod signing_key;
mod transient;

pub use address::Address;
pub use args::{Common, LogFormat};
pub use records::RecordLog;
pub use signals::shutdown_on_signal;
pub use signing_key::signing_keys;
pub use transient::TransientArgs;
