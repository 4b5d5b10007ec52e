//! The contract with agents and runtimes (docs/reference/harness-contract.md): the program as it is started in a
//! pod, with real files and a broker behind TLS; the test is the agent.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test should stop where it failed"
)]

mod broker;
mod cat;
mod hostile;
mod restarts;
mod runs;
mod world;
