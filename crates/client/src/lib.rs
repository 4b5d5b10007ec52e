//! Working with oz on behalf of a user: the template that leads to a target ([`choose`], [`templates`]), creating
//! requests and waiting ([`request`]), using the access ([`access`], [`pods`]), transient bindings ([`bindings`]),
//! approving or denying requests ([`approvals`]), reviewing emergencies ([`reviews`]), locking users out ([`locks`]),
//! sessions and their recordings ([`sessions`]), explanations of decisions ([`explain`]), the audit trail ([`audit`],
//! [`trail`]), the users who could get access ([`entitlements`]) and the attestations about them ([`attest`]), handing
//! all of it to an auditor ([`evidence`]), objects ([`objects`]), their names ([`candidates`]) and their changes
//! ([`changes`]), the rules of every kind ([`checks`]), objects in files ([`lint`]), controllers that are functions
//! ([`composites`]), policies in Rego ([`rego`]), harness runs ([`run`]), checks whether oz works ([`doctor`]), and
//! kubeconfig files ([`kubeconfig`]). It needs no terminal: `ozctl` is a command line over it.

pub mod access;
pub mod approvals;
pub mod attest;
pub mod audit;
pub mod bindings;
pub mod candidates;
pub mod changes;
pub mod checks;
pub mod choose;
pub mod cluster;
pub mod composites;
pub mod doctor;
pub mod entitlements;
pub mod evidence;
pub mod exit;
pub mod explain;
pub mod failure;
pub mod lint;
pub mod locks;
pub mod names;
pub mod objects;
pub mod pods;
pub mod printable;
pub mod rego;
pub mod request;
pub mod reviews;
pub mod run;
pub mod sessions;
pub mod target;
pub mod templates;
pub mod tls;
pub mod trail;

pub use oz_runtime::kubeconfig;
