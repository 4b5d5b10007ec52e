//! Tests of the decisions of a run's proxy, as the proxy asks for them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test should stop where it failed"
)]

mod credentials;
mod foreign;
mod forwarding;
mod grants;
mod heads;
mod hello;
mod names;
mod properties;
mod requests;
mod world;
