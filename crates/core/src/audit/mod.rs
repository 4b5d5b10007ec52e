//! The record of who did what: one vocabulary for operator and webhook.

mod record;

pub use record::{Action, Decision, PodRef, Record, RequestRef};
