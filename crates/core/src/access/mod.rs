//! The access domain: the requester ([`stamp`]), the pod ([`target`]), the rules of the template ([`decide`]), the
//! decision ([`grant`]), its effects for all kinds of access ([`kind`]), and the specifics of each kind ([`exec`],
//! [`pod`]).

pub mod approval;
mod ask;
mod assess;
pub mod author;
pub mod continued;
mod controller;
pub mod creation;
pub mod decide;
pub mod denial;
pub mod emergency;
mod emergency_rule;
pub mod ending;
pub mod exec;
pub mod extra;
pub mod fact;
mod facts;
pub mod grant;
pub mod kind;
pub mod leftover;
pub mod lock;
mod object_names;
pub(crate) mod objects;
pub mod on_call;
mod person;
mod plan;
pub mod pod;
pub mod pod_state;
pub mod policy;
mod proposal;
mod report;
pub mod request;
pub mod role_names;
pub mod rules;
mod sessions;
pub mod stamp;
pub mod status;
pub mod target;
pub mod template;
#[cfg(test)]
pub(crate) mod testing;
pub mod ticket;
mod unseen;
pub mod workload;

pub use crate::lifecycle::{seal, window};
