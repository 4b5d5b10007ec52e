//! Approvals and denials of requests: the webhook stamps each with its author, and denies it if it
//! would not count. Only its author withdraws it, and only while its request is pending. The audit
//! record is written first.

mod approvable;
mod bindings;
mod hooks;
mod runs;
mod stamp;
mod validate;

pub(crate) use approvable::{Approvable, Requests};
pub(crate) use bindings::Bindings;
pub(crate) use hooks::hooks;
pub(crate) use runs::Runs;
