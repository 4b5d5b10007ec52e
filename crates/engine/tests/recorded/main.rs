//! The engine against a scripted API server, which sends the responses of the test and reports
//! every call that is missing or unexpected: for order, preconditions and forbidden writes.

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
