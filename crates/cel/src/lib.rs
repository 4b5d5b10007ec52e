//! Expressions of CEL that others write: commands' and access policies. Checked before they are parsed and
//! again before they are evaluated, so that what one costs is known from it alone. The webhook evaluates, on
//! a thread that it does not wait for without end; the operator and the command line compile, to say what is
//! wrong.

mod apart;
mod bounds;
mod expression;
mod names;
mod patterns;
pub mod policy;
pub mod ticket;
mod time;

pub use apart::{STACK, apart};
pub use expression::{Expression, Expressions};
pub use kube_cel::cel::Value;

/// The variables of `commandPolicy` that hold what somebody typed.
pub const COMMAND: [&str; 2] = ["argv", "container"];
