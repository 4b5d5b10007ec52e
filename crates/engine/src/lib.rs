//! Runs any [`oz_core::controller::Controller`]: the only place that waits, reads and writes.
//!
//! A controller decides; this crate watches what it needs, calls it with what exists and what time
//! it is, carries its plans out and comes back at the instant that the plan names. Nothing here
//! knows what a grant or a pod is.
//!
//! ```no_run
//! # use oz_engine::{Engine, Leadership, Observe};
//! # async fn wire<C, O>(controller: C, observe: O, shutdown: tokio_util::sync::CancellationToken)
//! # -> Result<(), Box<dyn std::error::Error>>
//! # where C: oz_core::controller::Controller, O: Observe<C> {
//! let (client, clock) = oz_engine::client(kube::Config::infer().await?)?;
//! let mut engine = Engine::new(client, clock);
//! engine
//!     .leadership(Leadership::lease("oz-system", "oz-operator-0"))
//!     .listen(([0, 0, 0, 0], 8080).into())
//!     .controller(controller, observe);
//! engine.run(shutdown).await?;
//! # Ok(()) }
//! ```

pub mod clock;
pub mod raw;

mod background;
mod client;
mod engine;
mod events;
mod failure;
mod feeds;
mod lease;
mod metrics;
mod observe;
mod probes;
mod readiness;
mod run;
mod scan;
mod sessions;
mod sink;
mod store;
mod supervise;

pub use client::{ClientError, client};
pub use clock::{Clock, ServerClock, SystemClock};
pub use engine::{Engine, EngineError, Leadership};
pub use failure::failure;
pub use lease::LeaseTiming;
pub use observe::{Cx, Observe, Watches};
pub use raw::Undecodable;
pub use readiness::{Gate, Readiness};
pub use run::Packed;
pub use scan::scan;
pub use sessions::{EndSessions, LeaveSessions};
pub use sink::{LogSink, Sink};
pub use store::{
    Ages, Change, Guarded, Health, Selection, Store, Watch, WatchError, guarded_store,
    guarded_watch,
};
