//! Rego policies as functions: of an input and an instant, with bounds on their time, the data that they read and
//! their answers.
//!
//! The crate is pure, as `oz-core` is: no client, no socket, no clock. The caller passes the instant of an evaluation;
//! a time limit is measured, and changes no answer. The compiler rejects functions that are not functions of their
//! input: requests, random numbers, the environment.
//!
//! A policy has the same answer as in OPA, also where the interpreter differs: `normalise` and `rewrite` rewrite the
//! policy for that, and `builtins` has functions that replace the interpreter's. Unsupported syntax does not compile:
//! `newer_syntax` and `functions` name it.
//!
//! The process does not trust the authors of the policies that it runs. [`bounds`] measures a text before it is
//! parsed, `functions` and `growth` reject functions that do not exist or call themselves, `builtins` prevents single
//! steps from creating more than there is memory for, `thread` gives the interpreter a stack that it cannot overflow
//! within these bounds, and abandons evaluations that do not end.
//!
//! See docs/adr/0020-what-a-policy-in-process-may-do.md.

mod annotations;
pub mod bounds;
mod builtins;
mod capabilities;
mod documents;
mod error;
mod evaluate;
mod functions;
mod growth;
mod heads;
mod language;
mod names;
mod newer_syntax;
mod normalise;
mod paths;
mod policy;
mod preview;
mod rewrite;
mod scopes;
mod sources;
mod syntax;
mod testing;
mod thread;
mod tokens;
mod variables;

pub use capabilities::capabilities;
pub use error::{CompileError, CompileErrors, EvaluateError, Reason};
pub use evaluate::{Answer, Limits};
pub use language::Language;
pub use policy::{Dialect, Policy, Rule, digest, digest_text};
pub use preview::{Change, MAX_INSTANTS, Preview};
pub use sources::{MAX_DOCUMENTS, is_document};
pub use testing::{Coverage, Outcome, Test, Tests};
