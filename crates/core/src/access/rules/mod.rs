//! The rules between a request and its grant, for every kind of object that is granted and ends. [`before_grant`] applies
//! them in the order of [`RULES`], and the first that does not hold decides. A kind says by its [`Proposal`] what the rules
//! read; its specific requirements, such as a pod or a role, follow after the rules. [`at_creation`] applies the same list
//! to a [`NewObject`], as far as its rules can be decided at the creation. [`while_granted`] finds the rules that end a
//! grant, which a kind says by [`Held`].

mod conditions;
mod creation;
mod held;
mod identity;
mod permission;
mod proposal;
mod served;
mod stop;

pub use creation::{
    Creation, CreationDenial, CreationStop, CreationStopOf, NewObject, at_creation,
};
pub use held::{Held, HeldFacts};
pub use proposal::{Known, Passed, Proposal, StopOf};
pub use served::{Served, reserved};

use crate::lifecycle::End;

/// A rule between a request and its grant.
trait Rule<P: Proposal>: Sync {
    /// Checks whether the rule holds, before anything is granted, and adds its result to `passed`.
    ///
    /// # Errors
    /// The reason why nothing is granted.
    fn before_grant(&self, proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>>;

    /// Returns the end of a grant for which the rule no longer holds; `None` if it holds, or is a rule before the grant
    /// only.
    fn while_granted(&self, held: &dyn Held, facts: &HeldFacts<'_>) -> Option<End> {
        let _ = (held, facts);
        None
    }
}

/// The name of a rule, and what it requires, for users.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Name.
    pub name: &'static str,
    /// The requirement, as a sentence.
    pub requires: &'static str,
}

/// Declares the rules in their order.
macro_rules! rules {
    ($($name:literal, $requires:literal => $rule:path;)*) => {
        /// The rules, in the order in which they apply.
        pub const RULES: &[Description] = &[$(Description {
            name: $name,
            requires: $requires,
        }),*];

        fn rules<'a, P: Proposal + 'a>() -> impl Iterator<Item = &'a dyn Rule<P>> {
            let rules: [&'a dyn Rule<P>; RULES.len()] = [$(&$rule),*];
            rules.into_iter()
        }

        fn creation_rules<'a, N: NewObject + 'a>()
        -> impl Iterator<Item = &'a dyn creation::CreationRule<N>> {
            let rules: [&'a dyn creation::CreationRule<N>; RULES.len()] = [$(&$rule),*];
            rules.into_iter()
        }
    };
}

// Rules that need no read of another object come first. Other users and servers are asked after everything that the request
// alone decides. A rule about a fact that another process can change at the same moment comes last.
rules! {
    "Spec", "The fields of the object are valid." => identity::Spec;
    "Stamp", "The webhook stamped the object with the user who created it." => identity::Stamped;
    "Lock", "No AccessLock selects the access." => identity::NotLocked;
    "Template", "The template exists and is not being deleted." => permission::Template;
    "Permission", "The template, or the policies of the namespace, permit the access to this user." => permission::Permission;
    "AccessPolicy", "No AccessPolicy denied the object when it was created." => permission::AccessPolicies;
    "Gate", "The gate is installed, if the sessions go through it." => permission::Gate;
    "Terms", "The fields of the template are valid." => permission::TemplateTerms;
    "Emergency", "The terms of a declared emergency are valid." => conditions::EmergencyTerms;
    "Capacity", "The limits allow one more object of this kind." => conditions::Capacity;
    "Ticket", "Every ticket check accepted the change ticket after the creation of the object." => conditions::TicketChecked;
    "Approval", "All required approvals are given, or replaced by on-call checks that accept the requester; an emergency requires none." => conditions::Approved;
    "Window", "The window is open and has not ended." => conditions::Window;
    "FirstStamp", "No other object has the same stamp." => identity::FirstStamp;
    "TicketNow", "Every ticket check accepts the change ticket now." => conditions::TicketStillAccepted;
    "Reviews", "The user has fewer unreviewed emergencies than the maximum of the template, or of the access policies for a binding." => conditions::Reviews;
}

/// Applies all rules to an object without a grant, and returns their results.
///
/// # Errors
/// The reason of the first rule that does not hold. `passed` has the results of the rules before it.
pub fn before_grant<P: Proposal>(proposal: &P, passed: &mut Passed) -> Result<(), StopOf<P>> {
    rules::<P>().try_for_each(|rule| rule.before_grant(proposal, passed))
}

/// Returns the ends of a grant for which rules no longer hold. `P` is the proposal of its kind.
#[must_use]
pub fn while_granted<P: Proposal>(held: &dyn Held, facts: &HeldFacts<'_>) -> Vec<End> {
    let ends = rules::<P>().filter_map(|rule| rule.while_granted(held, facts));
    ends.collect()
}
