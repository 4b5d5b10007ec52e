//! `ozctl`, also installed as `kubectl-oz`: requests access, uses it and gives it back. Each verb
//! has one module in [`verbs`]; shared code is in the other modules, and code that needs no
//! terminal in [`oz_client`].

mod access;
mod ask;
mod cli;
mod complete;
mod connect;
mod connection;
mod context;
mod interrupts;
mod notices;
mod output;
mod paddock;
mod session;
mod steps;
mod terminal;
mod verbs;
mod waiting;

use oz_client::{
    approvals, attest, audit, changes, choose, cluster, composites, entitlements, evidence, exit,
    explain, failure, lint, locks, names, rego, request, reviews, run, target, trail,
};

pub use cli::{command, main};
