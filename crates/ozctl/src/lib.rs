//! `ozctl`, also installed as `kubectl-oz`: asks for access, uses it and gives it back. One module
//! for each verb in [`verbs`]; what they share is beside it.

mod access;
mod choose;
mod cli;
mod cluster;
mod complete;
mod connection;
mod context;
mod exit;
mod explain;
mod failure;
mod interrupts;
mod lint;
mod names;
mod output;
mod proxy;
mod request;
mod session;
mod target;
mod terminal;
mod trouble;
mod verbs;
mod waiting;

pub use cli::{command, main};
