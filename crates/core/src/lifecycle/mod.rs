//! What is the same for everything that is granted and ends: until when ([`window`]), what was decided,
//! sealed ([`seal`]), where it stands ([`state`]), why it ends ([`end`]), what somebody else did to it
//! ([`drift`]), the steps of a revocation ([`revoke`]), and the events ([`transitions`]).

pub mod drift;
mod end;
pub(crate) mod revoke;
pub mod seal;
mod state;
pub(crate) mod transitions;
pub mod window;

pub use end::End;
pub use state::{Otherwise, State, due};
