//! The shared lifecycle of all objects that are granted and end: the time ([`window`]), the sealed decision
//! ([`seal`]), the state ([`state`]), the end and its reason ([`end`]), changes by other users ([`drift`]),
//! the steps of a revocation ([`revoke`]), and the events ([`transitions`]).

pub mod drift;
mod end;
pub(crate) mod revoke;
pub mod seal;
mod state;
mod stored;
pub(crate) mod transitions;
pub mod window;

pub use end::End;
pub use state::{Otherwise, State, Stop, due};
pub use stored::Stored;
