//! `oz-harness netinit` in new network namespaces: one is the pod, the other one the outside. Threads of the test
//! are the containers: they enter the namespace and become the user. The tests require root and iproute2, and are
//! skipped without them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test should stop where it failed"
)]

mod hostile;
mod pod;
mod start;
