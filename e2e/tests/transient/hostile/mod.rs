//! Composites against hostile authors of functions, Rego policies, parents and children, and transient bindings against
//! hostile requesters. The comment of each test states the attempt and its result, and docs/reference/attempts.md lists
//! them.

mod approving;
mod functions;
mod parents;
mod policies;
mod windows;

use anyhow::Result;
use serde_json::json;

use crate::composites::{World, config_maps};
use crate::support::*;

/// The composite of another user, which must continue to work.
pub(crate) struct Neighbour(World);

impl Neighbour {
    pub(crate) async fn set(of: &str) -> Result<Self> {
        let name = format!("{of}-beside");
        oz().await?.hooks.add(&name, config_maps);
        let world = World::set(&name, "InPlace", |_| {}).await?;
        let spec = json!({"names": ["a"], "value": "before"});
        world.fleet("one", &spec).await?;
        world.value("a", "before").await?;
        Ok(Self(world))
    }

    /// Checks that the operator carries out a change of its parent.
    pub(crate) async fn goes_on(&self) -> Result<()> {
        self.0.change("one", &json!({"value": "after"})).await?;
        self.0.value("a", "after").await.map(drop)
    }
}
