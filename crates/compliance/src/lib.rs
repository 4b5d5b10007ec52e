//! Compliance, as values: what an auditor is given ([`evidence`]), who could get in and what somebody decided about it
//! ([`entitlements`]), and the tables of both ([`csv`]). Pure: archives, clusters and clocks are elsewhere.

pub mod csv;
pub mod entitlements;
pub mod evidence;
