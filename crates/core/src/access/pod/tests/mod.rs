//! Dedicated pods, in memory.

mod ending;
mod exchanged;
mod granting;
mod old_machine;
mod order;
mod readiness;
mod reworded;
mod world;
