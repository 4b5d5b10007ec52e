//! The hooks of transient bindings: the requester is stamped as for access requests, and a binding
//! is denied through oz to a user who could not create it themselves.

mod hooks;
mod stamp;
mod validate;
mod waiting;
mod watches;

pub(crate) use hooks::hooks;
pub(crate) use waiting::WaitingBindings;
pub(crate) use watches::Watches;
