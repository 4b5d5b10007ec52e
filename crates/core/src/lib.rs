//! The pure part of oz: API types, validation, decisions, builders and plans.
//!
//! Nothing in this crate reads a clock, opens a connection, rolls dice or looks at the environment.
//! Whoever calls it says what exists and what time it is; see [`controller`].

pub mod access;
pub mod access_command;
pub mod api;
pub mod audit;
pub mod build;
pub mod canary;
pub mod composite;
pub mod conditions;
pub mod connect;
pub mod controller;
pub mod csv;
pub mod duration;
pub mod encode;
pub mod entitlements;
pub mod evidence;
pub mod gate;
pub mod harness;
pub mod kinds;
pub mod labels;
pub mod lifecycle;
pub mod mutate;
pub mod names;
pub mod notify;
pub mod policies;
pub mod recording;
pub mod sessions;
pub mod settings;
pub mod tickets;
pub mod transient;
pub mod validate;
