//! Policies through the public API: their answers, their errors, their limits.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "helpers of tests: a failed one should stop where it failed"
)]

mod builtins;
mod common;
mod data;
mod hostile;
mod properties;
mod refused;
mod rewrite;
mod table;
mod tables;
