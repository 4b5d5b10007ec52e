//! Working with oz on behalf of somebody: which template leads to a target ([`choose`]), asking and
//! waiting ([`request`]), answering what others ask for ([`approvals`]), looking at emergencies ([`reviews`]), locking
//! somebody out ([`locks`]), how a decision is made ([`explain`]), what happened ([`trail`]), who could get in
//! ([`entitlements`]) and what somebody decided about that ([`attest`]), handing all of it to an auditor
//! ([`evidence`]), what changes ([`changes`]), which
//! controllers are functions ([`composites`]), harness runs ([`harness`]). Without a
//! terminal: `ozctl` is a command line over it.

pub mod approvals;
pub mod attest;
pub mod changes;
pub mod choose;
pub mod cluster;
pub mod composites;
pub mod entitlements;
pub mod evidence;
pub mod exit;
pub mod explain;
pub mod failure;
pub mod harness;
pub mod locks;
pub mod names;
pub mod request;
pub mod reviews;
pub mod target;
pub mod tls;
pub mod trail;
