//! The hooks of transient bindings: who asks is stamped as for access requests, and nobody gets
//! through oz what they could not bind themselves.

mod hooks;
mod stamp;
mod validate;
mod waiting;

pub(crate) use hooks::hooks;
pub(crate) use waiting::WaitingBindings;
