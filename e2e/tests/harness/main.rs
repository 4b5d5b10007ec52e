//! Harness runs on a real API server: one cluster and one oz for all tests, a namespace for each.

mod definitions;
mod support;
