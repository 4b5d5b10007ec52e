//! Reviews of emergencies and of break-glass: oz opens them, one of those who may writes what they found, sealed, and
//! nobody deletes one. Attestations of who could get in: whoever may create reviews makes one, sealed, and it stays.
//! What is found or attested is on record first.

mod hooks;
mod seal;
mod validate;

pub(crate) use hooks::hooks;
