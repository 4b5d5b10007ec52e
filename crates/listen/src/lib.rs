//! Sockets that anybody may reach: how many connections are held, for how long, and whose.
//!
//! A [`Room`] holds connections of which nothing is known yet. It has few places, and whoever comes
//! when all are taken has that of whoever has been there for longest: a crowd that waits keeps nobody
//! out. [`plain`] serves probes and metrics in such a room.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod plain;
mod room;

pub use room::{Guest, Room};
