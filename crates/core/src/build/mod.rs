//! The objects of a grant, one file per kind. The builders are infallible: all input was validated and
//! decided before.

mod network_policy;
mod pod;
mod role;
mod role_binding;

pub use network_policy::network_policy;
pub use pod::{changeable, content, lowered_deadline, pod};
pub(crate) use role::rules;
pub use role::{handed_out, role};
pub(crate) use role_binding::bare as bare_role_binding;
pub use role_binding::role_binding;
