//! Composites with functions behind HTTP, on the cluster and the oz that the transient bindings of this suite share.

mod accounts;
mod authors;
mod claims;
mod examples;
mod face;
mod functions;
mod hooks;
mod lending;
mod lifecycle;
mod plan;
mod policy;
mod refused;
mod related;
mod stored;
mod world;

pub(crate) use hooks::{HANGS, HOST, Hooks, config_maps};
pub(crate) use world::{
    EXAMPLE_POLICIES, LENDING_POLICIES, OTHER_ACCOUNT, OTHER_POLICIES, POLICIES, World, bound,
    install, role, stamps,
};
