//! CEL expressions from users: command policies, access policies, and the bodies of notifications. Each expression is checked before it is parsed
//! and again before it is evaluated, so that its cost is known from its text alone. The webhook evaluates expressions,
//! on a thread for which it waits a limited time; the operator and the command line compile them, to report errors.

mod apart;
pub mod body;
mod bounds;
mod error;
mod expression;
mod names;
mod patterns;
pub mod policy;
pub mod ticket;
mod time;

pub use apart::{STACK, apart};
pub use error::{CelError, UnknownName};
pub use expression::{Expression, Expressions};
pub use kube_cel::cel::Value;

/// The variables of `commandPolicy` with the values that a user typed.
pub const COMMAND: [&str; 2] = ["argv", "container"];
