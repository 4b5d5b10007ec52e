//! The engine against a scripted API server, which answers what the test says and reports every
//! call that is missing or too many: for order, preconditions and what must not be written.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test should stop where it failed"
)]

#[path = "../timebox/mod.rs"]
mod timebox;

mod ends;
mod failures;
mod lists;
mod mock;
mod objects;
mod running;
mod steps;
mod values;
