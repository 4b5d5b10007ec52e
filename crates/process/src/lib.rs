//! What the oz binaries share to be processes: flags, logs, signals, the audit trail and the key
//! that seals stamps and grants. Apart from both, so that they cannot come to differ.

mod address;
mod args;
pub mod audit;
mod clock_alarm;
mod key_secret;
mod signals;
mod signing_key;
mod transient;
mod warnings;

pub use address::Address;
pub use args::{Common, LogFormat};
pub use clock_alarm::ClockAlarm;
pub use signals::shutdown_on_signal;
pub use signing_key::{KeyNews, follow_signing_keys, replace_signing_key, signing_keys};
pub use transient::TransientArgs;
pub use warnings::Warnings;
