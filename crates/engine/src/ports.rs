//! The ports that carry out each [`Step::Effect`](oz_core::controller::Step::Effect). They are
//! separate from the writer: the effect of a port is outside of Kubernetes, uses neither a slot of
//! due passes nor a write slot, and the port determines its duration.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use oz_core::controller::{Effect, Failure};
use serde_json::Value;

/// A port, which carries out effects.
pub trait Port: Send + Sync + 'static {
    /// Carries out this effect and returns its result, for [`Outcome::answers`]. The effect may have
    /// been carried out before under the same key: by an earlier pass, or by a process that was
    /// killed before it could report the result. A transient failure is retried with backoff.
    ///
    /// The engine sets no timeout: an implementation that may block must have its own.
    ///
    /// [`Outcome::answers`]: oz_core::controller::Outcome::answers
    fn carry_out<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<Value, Failure>>;
}

/// The ports of an engine, by name.
#[derive(Clone, Default)]
pub(crate) struct Ports(BTreeMap<String, Arc<dyn Port>>);

impl Ports {
    pub(crate) fn register(&mut self, name: String, port: Arc<dyn Port>) {
        self.0.insert(name, port);
    }

    pub(crate) async fn carry_out(&self, effect: &Effect) -> Result<Value, Failure> {
        match self.0.get(&effect.port) {
            Some(port) => port.carry_out(effect).await,
            None => Err(Failure::invalid(
                "UnknownPort",
                format!(
                    "failed to carry out {}: no port {} is registered",
                    effect.key, effect.port
                ),
            )),
        }
    }
}
