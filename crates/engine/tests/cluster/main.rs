//! Tests of the engine that require a real API server.

#[path = "../timebox/mod.rs"]
mod timebox;

mod children;
mod harness;
mod kinds;
mod leadership;
mod orphans;
mod time;
