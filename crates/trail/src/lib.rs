//! The audit trail: the audit records and the vocabulary that all components share, chained so that a change, an
//! omission or an insertion is detected; the rules by which the trail is verified ([`verify`]); and the notification
//! routes of audit records ([`notify`]).

mod action;
mod audit_event;
mod caller;
mod canonical;
mod chain;
mod checkpoint;
mod event;
mod flood;
mod head;
mod keys;
mod mode;
pub mod notify;
mod query;
mod quota;
mod record;
mod redact;
mod shortening;
pub mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use action::{Action, Decision};
pub use audit_event::{AuditEvent, AuditEventSpec};
pub use canonical::{canonical, digest_without};
pub use chain::{Chain, DECIDED_AT, Entry, Link};
pub use checkpoint::Checkpoint;
pub use event::{name_of, time_in_name};
pub use flood::{Admitted, FloodCounter};
pub use head::{Head, Medium};
pub use keys::{AuditKey, KeyError, Published, Trust};
pub use mode::Mode;
pub use query::Query;
pub use quota::{CONNECTIONS_PER_MINUTE, Quota, is_recorded_each};
pub use record::{PodRef, Record, Repeated, RequestRef};
pub use redact::arguments;
pub use shortening::{PruneOrder, Shortening, excess};
pub use writer::Writer;
