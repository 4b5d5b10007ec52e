//! Answers to requests: each is stamped with who gives it, and refused if it would not count. Whoever gave one takes
//! it back while its request waits, and nobody else does. What happens is on record first.

mod approvable;
mod bindings;
mod hooks;
mod stamp;
mod validate;

pub(crate) use approvable::{Approvable, Requests};
pub(crate) use bindings::Bindings;
pub(crate) use hooks::hooks;
