//! Reviews of emergencies: oz opens them, one of those who may writes what they found, sealed, and nobody deletes
//! one. What is found is on record first.

mod hooks;
mod seal;
mod validate;

pub(crate) use hooks::hooks;
