//! Runs with credentials and hosts on the real node: an agent reaches its API with a key that it never sees, and nothing
//! else. The upstream, its authority and the name server are the test's own.

mod attempts;
mod clients;
mod infrastructure;
mod installed;
mod memory;
mod revocation;
mod search;
mod story;
mod world;

pub(crate) use installed::lent;
pub(crate) use world::upstream;
