//! Runs any [`oz_core::controller::Controller`]: the only crate that waits, reads and writes.
//!
//! A controller decides; this crate watches the kinds that it needs, calls it with the existing
//! objects and the present time, carries out its plans and reconciles again at the instant that the
//! plan names. This crate has no knowledge of grants or pods.
//!
//! ```no_run
//! # use oz_engine::{Engine, Observe};
//! # use oz_runtime::{Election, Listen, Runtime};
//! # async fn wire<C, O>(controller: C, observe: O, shutdown: tokio_util::sync::CancellationToken)
//! # -> Result<(), Box<dyn std::error::Error>>
//! # where C: oz_core::controller::Controller, O: Observe<C> {
//! let (client, clock) = oz_runtime::client(kube::Config::infer().await?)?;
//! let mut runtime = Runtime::new("oz", client, clock);
//! runtime
//!     .election(Election::lease("oz-system", "oz-operator", "oz-operator-0"))
//!     .listen(Listen::Address(([0, 0, 0, 0], 8080).into()));
//! let mut engine = Engine::new(runtime);
//! engine.controller(controller, observe);
//! engine.run(shutdown).await?;
//! # Ok(()) }
//! ```
//!
//! See docs/adr/0014-why-not-kube-runtimes-controller.md.

mod assemble;
mod background;
mod controllers;
mod engine;
mod events;
mod failure;
mod flows;
mod metrics;
mod observe;
mod ports;
mod run;
mod signal;

pub use controllers::{Controllers, Running, Setup, StartError};
pub use engine::Engine;
pub use failure::{failure, of_call};
pub use flows::Flows;
pub use observe::{Cx, Observe, Watches};
pub use ports::Port;
pub use run::Packed;
pub use signal::Signal;
