//! The library on a real API server: certificates, registration, reviews, watchers, tasks.
//!
//! One binary, so that all tests share one cluster; each has its own namespace, fingerprint and port.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr
)]

mod certificates;
mod chaos;
mod conversion;
mod examples;
mod fixture;
mod following;
mod registration;
mod reviews;
mod rights;
mod scopes;
mod service;
mod supplied;
mod watching;
