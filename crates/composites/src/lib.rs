//! Composites: controllers that are functions. An object of a parent kind comes with children that a function
//! names, which lives in a policy in Rego or behind HTTP. What is declared ([`declared`]), what the function is
//! asked and answers ([`protocol`]), which children that means ([`desired`]), and what is done about it
//! ([`Composite`]). Who may declare one ([`author`], [`supervise`]), what its policy is made of ([`bundle`]), what
//! else the function sees ([`related`]), what children may hand out ([`rights`]) and until when they last
//! ([`ends`]), and what is not done, or more slowly ([`guard`], [`settling`]).

mod account;
mod adoption;
mod annotations;
pub mod author;
mod bare;
mod besides;
pub mod bundle;
mod claim;
mod controller;
pub mod declared;
pub mod desired;
pub mod ends;
mod function;
pub mod guard;
mod kind;
pub mod protocol;
mod rego;
pub mod related;
pub mod rights;
pub mod settling;
mod source;
pub mod supervise;
#[cfg(test)]
mod tests;
mod timeline;
mod value;
mod window;

pub use account::{Account, Accounts};
pub use adoption::ADOPTABLE_BY;
pub use besides::besides_status;
pub use controller::{Composite, Facts, Pass, Question, Refused};
pub use declared::{Declared, Family};
pub use function::{Called, Function, POLICY_FAILED, compared};
pub use source::{Declaration, Source};
pub use timeline::Moment;
pub use window::Window;
