//! RegoControllers, on the cluster and the oz that the transient bindings of this suite share.

mod documents;
mod face;
mod guard;
mod parent_end;
mod refused;
mod rights;
mod runs;
mod world;

pub(crate) use world::{ONE, World};
