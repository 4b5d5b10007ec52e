//! What the status of templates and policies says: whether runs can be made of them, what is wrong with them
//! if not, and where a discovery stands. Nothing is created for them.

mod policy;
mod ready;
mod template;

pub use policy::{DISCOVERY_ACTIVE, DISCOVERY_EXPIRED, Policies, PolicyStands};
pub use ready::{READY, Unusable, reason};
pub use template::{ClusterTemplates, Templates};
