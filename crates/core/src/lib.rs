//! Who, what and until when, over the types of `oz-api` and the records of `oz-trail`: the kinds and their rules
//! ([`kinds`], [`validate`]), what is granted and ends ([`lifecycle`]), access ([`access`], [`access_command`],
//! [`tickets`], [`sessions`]), transient bindings ([`transient`]), connections ([`connect`], [`gate`], [`canary`]),
//! what is made ([`build`], [`mutate`]), and what cluster and operator are set to ([`policies`], [`settings`]).
//!
//! Nothing in this crate reads a clock, opens a connection, rolls dice or looks at the environment. Whoever calls
//! it says what exists and what time it is; see [`controller`].

pub mod access;
pub mod access_command;
pub mod build;
pub mod canary;
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

/// What [`for_each_kind`] names the types by.
#[doc(hidden)]
pub mod types {
    pub use oz_api;
    pub use oz_trail::AuditEvent;
}
