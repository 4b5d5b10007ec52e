//! The record of who did what: one vocabulary for operator and webhook.

mod record;

pub use record::{Action, Actor, Decision, PodRef, Record, RequestRef};
