//! ozctl as a process, against an API server that answers from a table: its output, byte for byte,
//! its use of the environment, and its behaviour after failures.
#![allow(clippy::unwrap_used, reason = "what the tests share fails as they do")]

mod approvals;
mod attest;
mod composites;
mod harness;
mod hostile;
mod kubeconfig;
mod kubeconfig_files;
mod locks;
mod outlived;
mod output;
mod plugins;
mod recordings;
mod rego;
mod reviews;
mod sessions;
mod shells;
mod shop;
mod stub;
mod trail;
mod waits;
mod watch;
