//! AccessPolicies at admission: the judgement of a request ([`judge`]), and the check and the audit
//! record of a written policy ([`validate`]).

mod hooks;
mod judge;
mod validate;

pub(crate) use hooks::hooks;
pub(crate) use judge::{Asking, Judges, RunAsking};
