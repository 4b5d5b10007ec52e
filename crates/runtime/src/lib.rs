//! What a process against the Kubernetes API is made of, whatever it does there: a client that tells
//! the server's time, leadership, readiness, probes, watches that one broken object does not stop,
//! Secrets with keys, signals and flags. Nothing here knows what the process is for.

pub mod clock;
pub mod raw;

mod address;
mod args;
mod call;
mod client;
mod clock_alarm;
mod events;
mod feeds;
mod lease;
mod metrics;
mod probes;
mod readiness;
mod scan;
pub mod secret_cell;
mod signals;
mod store;
mod warnings;

pub use address::Address;
pub use args::{Common, LogFormat};
pub use call::{CallError, within};
pub use client::{ClientError, client};
pub use clock::{Clock, ServerClock, SystemClock};
pub use clock_alarm::ClockAlarm;
pub use events::{Events, Publisher, events};
pub use feeds::Feeds;
pub use lease::{Election, Elector, Leadership, LeaseTiming};
pub use metrics::Metrics;
pub use probes::{Probes, listen};
pub use raw::Undecodable;
pub use readiness::{Gate, Readiness};
pub use scan::{get, scan};
pub use signals::shutdown_on_signal;
pub use store::{
    Ages, Change, Guarded, Health, Selection, Store, SubscriberId, Watch, WatchError,
    cluster_scoped, guarded_store, guarded_watch,
};
pub use warnings::Warnings;
