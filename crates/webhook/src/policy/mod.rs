//! AccessPolicies at admission: what they come to for a request ([`judge`]), whether one may be written as it
//! is, and that it was ([`validate`]).

mod hooks;
mod judge;
mod validate;

pub(crate) use hooks::hooks;
pub(crate) use judge::{Asking, Judges};
