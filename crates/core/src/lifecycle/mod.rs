//! The shared lifecycle of all objects that are granted and end: the time ([`window`]), the sealed decision
//! ([`seal`]), the state ([`machine`]), the end and its reason ([`End`]), changes by other users ([`drift`]),
//! the steps of a revocation ([`revoke`]), and the events ([`transitions`]).

pub mod drift;
mod end;
pub mod machine;
pub(crate) mod revoke;
pub mod seal;
mod stored;
pub(crate) mod transitions;
pub mod window;

pub use end::End;
pub use machine::{DueEnd, Otherwise, State, Stop, due};
pub use stored::Stored;
