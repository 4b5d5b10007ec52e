//! The rules of exec access, without a cluster: a [`World`] carries plans out in memory.

mod approving;
mod emergencies;
mod ending;
mod following;
mod granting;
mod hidden;
mod judged;
mod locking;
mod on_call;
mod order;
mod over;
mod refusing;
mod reserved;
mod reworded;
mod tickets;
mod unlisted;
mod upgrade;
mod world;
