//! Transient bindings on a real API server: one cluster and one oz for all tests, a namespace for each. ClusterRole
//! `view`
//! may be bound, and so may roles with the prefix `team-` if they are harmless.

mod approving;
mod composites;
mod conflict;
mod ending;
mod examples;
mod hostile;
mod ozctl;
mod published;
mod refusal;
mod regos;
mod support;
mod window;
