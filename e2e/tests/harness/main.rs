//! Harness runs on a real API server: one cluster for all tests, a namespace for each.

mod verbs;
