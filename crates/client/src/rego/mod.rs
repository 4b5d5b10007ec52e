//! Rego policies on behalf of a user: reading the input, from a text ([`document`]) or from the cluster ([`object`]),
//! and evaluating a policy as the operator would ([`evaluate`], [`preview`]).

mod evaluate;
mod input;

pub use evaluate::{EvaluationError, compile, evaluate, preview, timeout};
pub use input::{DocumentError, ObjectError, document, object};
