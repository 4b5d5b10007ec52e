//! Harness runs at the edge: what is watched and read for `oz_core::harness`.

mod definitions;
mod policies;
mod templates;

pub(crate) use definitions::definitions;
