//! Compliance data as values: the evidence for an auditor ([`evidence`]), the users who could get access and the
//! decisions about them ([`entitlements`]), and the tables of both ([`csv`]). Pure: other crates handle archives,
//! clusters and clocks.

pub mod csv;
pub mod entitlements;
pub mod evidence;
