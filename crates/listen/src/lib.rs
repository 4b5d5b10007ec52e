//! Limits for sockets that any client can reach: the number of connections, their duration, and the share
//! of one address.
//!
//! [`ConnectionSlots`] hold connections from clients that are not yet identified. The slots are few. If all
//! are taken, a new connection takes the slot of the oldest, so waiting connections cannot exclude others.
//! [`plain`] serves probes and metrics within such slots.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod connection_slots;
pub mod plain;

pub use connection_slots::{ConnectionSlot, ConnectionSlots};

/// The examples of the README, which are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
