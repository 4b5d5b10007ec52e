//! The confinement of the pods that oz creates: their owner, deadline, maximum size, security contexts and
//! NetworkPolicy. Dedicated pods of grants ([`mutate`](crate::mutate), [`build`](crate::build)) and the pods of harness
//! runs, seeds and transcript readers (`oz_runs`) use the same functions. The difference between these kinds of pods is
//! a parameter, and its documentation states the reason.

pub mod ceilings;
pub mod deadline;
pub mod json;
mod name_server;
pub mod network;
mod owner;
pub mod security;

pub use ceilings::{CeilingError, Ceilings};
pub use name_server::{NameServer, NameServerError};
pub use owner::Owner;
