//! What the oz binaries share: the audit trail, the key that seals stamps and grants, and the flags by
//! which transient bindings are allowed. Apart from both, so that they cannot come to differ.

pub mod audit;
mod signing_key;
mod transient;

pub use signing_key::{KeyNews, follow_signing_keys, replace_signing_key, signing_keys};
pub use transient::TransientArgs;
