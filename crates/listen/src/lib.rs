//! Sockets that anybody may reach: how many connections are held, for how long, and whose.
//!
//! [`ConnectionSlots`] hold connections of which nothing is known yet. They are few, and a connection that
//! comes when all are taken gets that of the oldest: many that wait keep nobody out. [`plain`] serves
//! probes and metrics within such slots.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod connection_slots;
pub mod plain;

pub use connection_slots::{ConnectionSlot, ConnectionSlots};
