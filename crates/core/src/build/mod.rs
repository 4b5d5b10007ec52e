//! The objects of a grant, one file per kind. Infallible: all that could be wrong was validated
//! and decided before.

mod role;
mod role_binding;

pub use role::role;
pub(crate) use role::rules;
pub use role_binding::role_binding;
