//! How whatever was granted ends, the same for every kind: why ([`end`]), and what statuses of 0.1 said
//! of it ([`legacy`]).

mod end;
mod legacy;

pub use end::End;
pub(crate) use legacy::is_blocked_told;
