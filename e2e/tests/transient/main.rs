//! Transient bindings on a real API server: one cluster and one oz for all tests, a namespace for
//! each. ClusterRole `view` may be bound, and what begins with `team-` if it is harmless.

mod conflict;
mod ending;
mod examples;
mod ozctl;
mod published;
mod refusal;
mod support;
mod window;
