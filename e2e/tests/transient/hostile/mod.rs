//! Composites against those who write functions, policies, parents and children, and transient bindings against those who
//! ask for them. What is tried and what comes of it is said above each test, and listed in docs/reference/attempts.md.

mod approving;
mod functions;
mod parents;
mod policies;
mod windows;

use anyhow::Result;
use serde_json::json;

use crate::composites::{World, config_maps};
use crate::support::*;

/// A composite of somebody else's, which has to go on.
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

    /// A change of its parent is carried out.
    pub(crate) async fn goes_on(&self) -> Result<()> {
        self.0.change("one", &json!({"value": "after"})).await?;
        self.0.value("a", "after").await.map(drop)
    }
}
