//! Dedicated pods, in memory.

mod ending;
mod exchanged;
mod granting;
mod readiness;
mod reworded;
mod world;
