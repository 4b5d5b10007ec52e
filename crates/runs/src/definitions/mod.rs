//! The status of templates and policies: whether runs can use them, their violations, and the state of a discovery.
//! They have no children.

mod policy;
mod ready;
mod secrets;
mod template;
mod unserved;

pub use policy::{
    DISCOVERY_ACTIVE, DISCOVERY_EXPIRED, Policies, PolicyFacts, PolicyQuestion, PolicyStands,
    VERIFIED,
};
pub use ready::{READY, Unusable, reason};
pub use secrets::{CHECK_MISSING_AFTER, Readable, SECRETS_READABLE, is_unreadable, review};
pub use template::{ClusterTemplates, Templates};
