//! Dedicated pods, in memory.

mod ending;
mod exchanged;
mod granting;
mod order;
mod readiness;
mod reworded;
mod rules;
mod world;
