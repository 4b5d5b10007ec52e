//! The engine against a real API server: what only that can disprove.

#[path = "../timebox/mod.rs"]
mod timebox;

mod children;
mod harness;
mod kinds;
mod leadership;
mod orphans;
mod time;
