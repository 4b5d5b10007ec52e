//! Policies in Rego as functions: of an input and an instant, bounded in time, in what they read and in what
//! they answer.
//!
//! Pure as `oz-core` is: no client, no socket, no clock. What a policy is asked at is given; a limit of time is
//! measured, and changes no answer. What is no function of its input is refused when a policy is compiled:
//! requests, random numbers, the environment.
//!
//! What a policy answers is what OPA answers, also where the interpreter differs: `rewrite` rewrites a policy for that.
//!
//! An author of policies is not trusted with the process that runs them. [`bounds`] measures a text before it is
//! parsed, `functions` and `growth` refuse what does not exist or calls itself, `builtins` keeps single steps from
//! making more than there is memory for, `thread` gives the interpreter a stack that it cannot overflow within
//! these bounds, and leaves behind what does not end.

pub mod bounds;
mod builtins;
mod error;
mod evaluate;
mod functions;
mod growth;
mod heads;
mod policy;
mod preview;
mod rewrite;
mod sprintf;
mod syntax;
mod testing;
mod thread;
mod variables;

pub use error::{CompileError, CompileErrors, EvaluateError, Reason};
pub use evaluate::{Answer, Limits};
pub use policy::{Dialect, Language, Policy, Rule, digest, digest_text};
pub use preview::{Change, MAX_INSTANTS, Preview};
pub use testing::{Coverage, Outcome, Test, Tests};
