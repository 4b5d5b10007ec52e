//! Pods of one's own, in memory.

mod ending;
mod granting;
mod readiness;
mod world;
