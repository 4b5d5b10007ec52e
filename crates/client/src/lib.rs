//! Working with oz on behalf of a user: the template that leads to a target ([`choose`]), creating requests and
//! waiting ([`request`]), approving or denying requests ([`approvals`]), reviewing emergencies ([`reviews`]), locking
//! users out ([`locks`]), explanations of decisions ([`explain`]), the audit trail ([`trail`]), the users who could
//! get access ([`entitlements`]) and the attestations about them ([`attest`]), handing all of it to an auditor
//! ([`evidence`]), changes ([`changes`]), the rules of every kind ([`checks`]), controllers that are functions ([`composites`]), harness runs ([`harness`]).
//! It needs no terminal: `ozctl` is a command line over it.

pub mod approvals;
pub mod attest;
pub mod changes;
pub mod checks;
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
