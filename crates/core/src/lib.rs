//! The rules and decisions about access, over the types of `oz-api` and the audit records of `oz-trail`: the
//! kinds and their rules ([`kinds`], [`validate`]), the lifecycle of grants ([`lifecycle`]), access
//! ([`access`], [`access_command`], [`tickets`], [`sessions`]), transient bindings ([`transient`]),
//! connections ([`connect`], [`gate`], [`canary`]), the created objects ([`build`], [`mutate`], [`confine`]),
//! and the settings of cluster and operator ([`policies`], [`settings`]).
//!
//! Nothing in this crate reads a clock, opens a connection, uses randomness or reads the environment. The
//! caller passes in the existing objects and the time; see [`controller`].

pub mod access;
pub mod access_command;
pub mod build;
pub mod canary;
pub mod confine;
pub mod connect;
pub mod controller;
pub mod gate;
pub mod kinds;
pub mod lifecycle;
pub mod mutate;
pub mod policies;
pub mod sessions;
pub mod settings;
pub mod tickets;
pub mod transient;
pub mod validate;

/// The types to which [`for_each_kind`] refers.
#[doc(hidden)]
pub mod types {
    pub use oz_api;
    pub use oz_trail::AuditEvent;
}
