//! Composites: controllers that are functions. An object of a parent kind has children that a function returns; the
//! function is a policy in Rego or an HTTP server. The parts are the declaration ([`declared`]), the requests and
//! responses of the function ([`protocol`]), the desired children ([`desired`]) and the pass over a parent, stage by
//! stage ([`Composite`]). Further parts are the authors and supervision of declarations ([`author`], [`supervise`]), the
//! modules of a policy ([`bundle`]), the related objects that the function receives ([`related`]), the rights that
//! children may grant ([`rights`]) and their expiry ([`ends`]), and the changes that are withheld or delayed
//! ([`guard`], [`settling`]).
//! See docs/adr/0021-a-composite-is-one-more-controller.md.

mod account;
mod adoption;
mod annotations;
pub mod answer;
pub mod author;
mod bare;
mod besides;
pub mod bundle;
pub mod declared;
pub mod desired;
pub mod ends;
pub mod expired;
mod function;
pub mod guard;
mod kind;
mod mode;
mod needs;
mod owner;
mod pass;
pub mod protocol;
mod rego;
pub mod related;
pub mod rights;
pub mod settling;
mod since;
mod source;
pub mod stored;
pub mod supervise;
#[cfg(test)]
mod tests;
mod timeline;
mod value;
mod window;

pub use account::{Account, AccountError, Accounts};
pub use adoption::ADOPTABLE_BY;
pub use answer::AnswerError;
pub use besides::besides_status;
pub use declared::{Declared, Family};
pub use function::{Called, Function, POLICY_FAILED, compared};
pub use pass::{Composite, Facts, Pass, Question, Refused};
pub use since::POLICY_INVALID;
pub use source::{Declaration, Source};
pub use timeline::Moment;
pub use window::Window;
