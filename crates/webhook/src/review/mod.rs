//! Reviews of emergencies and of break-glass: oz opens them, one of the permitted reviewers writes
//! the finding, sealed, and they cannot be deleted by users. Attestations of the users who could
//! get access: a user who may create reviews creates one, sealed, and it stays. A finding or an
//! attestation is recorded first.

mod hooks;
mod seal;
mod validate;

pub(crate) use hooks::hooks;
