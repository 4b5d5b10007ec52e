//! What is the same for everything that is granted and ends: until when ([`window`]), what was decided,
//! sealed ([`seal`]), why it ends ([`end`]), what somebody else did to it ([`drift`]), how it is taken
//! away ([`revoke`]), and what statuses of 0.1 said of it ([`legacy`]).

pub(crate) mod drift;
mod end;
mod legacy;
pub(crate) mod revoke;
pub mod seal;
pub mod window;

pub use end::End;
pub(crate) use legacy::is_blocked_told;
