//! The components of a process that uses the Kubernetes API, regardless of its purpose: a client
//! that reads the server's time, leadership, readiness, probes, watches that one broken object does
//! not stop, Secrets with keys, signals and flags. This crate does not depend on the purpose of the
//! process.

pub mod clock;
pub mod kubeconfig;
pub mod raw;

mod address;
#[cfg(feature = "programs")]
mod args;
mod call;
mod causes;
mod client;
mod clock_alarm;
mod connection;
mod events;
mod feeds;
mod keep;
mod kind;
mod lease;
mod metrics;
mod probes;
mod readiness;
mod recorder;
mod roots;
mod runtime;
mod scan;
#[cfg(feature = "programs")]
mod secret_cell;
mod signals;
mod store;
mod supervise;
mod tasks;
#[doc(hidden)]
pub mod telemetry;
mod warnings;

pub use address::{Address, AddressError};
#[cfg(feature = "programs")]
pub use args::{Common, LogFormat};
pub use call::{CallError, root_cause, within};
pub use causes::with_causes;
pub use client::{ClientError, client};
pub use clock::{Clock, ServerClock, SystemClock};
pub use clock_alarm::ClockAlarm;
pub use connection::connect;
pub use events::Events;
pub use feeds::{Feeds, Identity};
pub use keep::{AsText, Keep, mark};
pub use kind::Kind;
pub use lease::{Election, Leadership, LeaseTiming};
use metrics::Metrics;
pub use raw::Undecodable;
pub use readiness::{Gate, Notice, Readiness};
pub use recorder::{Event, EventType, Recorder};
pub use runtime::{Listen, Runtime, RuntimeError};
pub use scan::{get, scan};
#[cfg(feature = "programs")]
pub use secret_cell::{Data, SecretCell};
pub use signals::shutdown_on_signal;
pub use store::{
    Ages, Change, Closed, Complaint, Guarded, Health, Retried, Selection, Store, StoreEvent,
    SubscriberId, Subscription, WatchError, guarded_store, guarded_watch,
};
pub use supervise::Running;
pub use tasks::{Task, TaskError, Who};
pub use warnings::Warnings;

/// The examples of the README, which are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
