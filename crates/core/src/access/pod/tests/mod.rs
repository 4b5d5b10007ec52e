//! Pods of one's own, in memory.

mod ending;
mod exchanged;
mod granting;
mod readiness;
mod reworded;
mod world;
