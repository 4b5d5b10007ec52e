//! How a [`Step::Effect`](oz_core::controller::Step::Effect) is carried out: by whoever is registered
//! for its port. Apart from the writer: what a port does is outside of Kubernetes, holds no slot of
//! passes that are due and no turn to write, and decides itself how long it takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use oz_core::controller::{Effect, Failure};
use serde_json::Value;

/// Carries out the effects of one port.
pub trait Port: Send + Sync + 'static {
    /// Carries out this effect and answers what came of it, for [`Outcome::answers`]. The effect may
    /// have been carried out before under the same key: by an earlier pass, or by a process that was
    /// killed before it could say so. A transient failure is tried again with backoff.
    ///
    /// Nothing else bounds it in time: what may hang is to be given up in here.
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
