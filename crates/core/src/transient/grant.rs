//! The decision to create a binding. It is sealed in an annotation of the binding, so that an operator that crashes
//! before it writes the status finds the same expiry again and does not extend it.
//! See docs/adr/0009-what-remembers-a-transient-binding.md.

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use oz_api::conditions::reason;
use oz_api::{Requester, Uid, labels};
use oz_trail::{Action, Decision, Record, RequestRef};
use serde::{Deserialize, Serialize};

use crate::access::approval;
use crate::access::emergency::{self, Emergency};
use crate::access::fact::Fact;
use crate::access::grant::Approved;
use crate::access::policy::{self, Applied};
use crate::access::ticket::{self, Ticket};
use crate::controller::{Child, Live, Plan};
use crate::lifecycle::drift::{self, Drift};
use crate::lifecycle::revoke::Marks;
use crate::lifecycle::seal::{self, Keys, Purpose, SealError};
use crate::tickets::Tickets;

const PURPOSE: Purpose = Purpose::TransientBinding;

/// A role that is bound to subjects until an instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// API group and version of the object.
    pub api_version: String,
    /// The object, with its UID: the grant is valid for no other object. Without a namespace it is cluster-wide.
    pub request: RequestRef,
    /// The owner kind in the labels of the binding, see [`labels::OWNER_KIND`].
    pub mark: String,
    /// The requester.
    pub requester: Requester,
    /// The role.
    pub role: RoleRef,
    /// The subjects of the binding.
    pub subjects: Vec<Subject>,
    /// Digest of the spec.
    pub spec_digest: String,
    /// The time of the decision.
    pub activated_at: Timestamp,
    /// The expiry.
    pub until: Timestamp,
    /// The reason that the requester gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The warning about a role that can be used to escalate privileges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub danger: Option<String>,
    /// The approvals, by rule, if an access policy requires them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approved>,
    /// The access policies that applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Applied>,
    /// The change ticket that the requester named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
    /// The emergency for which the role was bound without approvals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<Emergency>,
}

impl Grant {
    /// Returns the decision in the annotation of `live`, if oz sealed it for the object with `uid`.
    #[must_use]
    pub fn open(keys: &Keys, live: &Live, api_version: &str, uid: &str) -> Option<Self> {
        let grant = Self::open_any(keys, live)?;
        (grant.request.uid == uid && grant.api_version == api_version && grant.is_of(live))
            .then_some(grant)
    }

    /// Returns the decision in the annotation of `live`, for any object.
    #[must_use]
    pub fn open_any(keys: &Keys, live: &Live) -> Option<Self> {
        let annotations = live.object.metadata.annotations.as_ref()?;
        seal::open(keys, PURPOSE, annotations.get(labels::GRANT)?).ok()
    }

    /// Checks whether an object has the name and namespace of the binding for which the grant was sealed.
    #[must_use]
    pub fn is_of(&self, live: &Live) -> bool {
        let key = live.key();
        key.name.as_ref() == Some(&self.request.name)
            && key.namespace.as_deref() == self.namespace()
    }

    /// Returns the labels that mark the binding.
    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks {
            kind: &self.mark,
            uid: Uid::new(&self.request.uid),
        }
    }

    /// Returns the namespace; `None` for a cluster-wide grant.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        Some(self.request.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }

    /// Creates the binding of the grant.
    ///
    /// # Errors
    /// The grant is longer than a sealed text may be.
    pub fn binding(&self, keys: &Keys) -> Result<Child, SealError> {
        let mut metadata = ObjectMeta {
            name: Some(self.request.name.clone()),
            namespace: self.namespace().map(ToOwned::to_owned),
            owner_references: Some(vec![OwnerReference {
                api_version: self.api_version.clone(),
                kind: self.request.kind.clone(),
                name: self.request.name.clone(),
                uid: self.request.uid.clone(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        };
        labels::mark(
            &mut metadata,
            &self.mark,
            &self.request.name,
            &self.request.uid,
        );
        let sealed = seal::seal_decision(keys, PURPOSE, self)?;
        metadata
            .annotations
            .get_or_insert_default()
            .insert(labels::GRANT.to_owned(), sealed);
        let (role_ref, subjects) = (self.role.clone(), Some(self.subjects.clone()));
        Ok(match self.namespace() {
            Some(_) => Child::new(&RoleBinding {
                metadata,
                role_ref,
                subjects,
            }),
            None => Child::new(&ClusterRoleBinding {
                metadata,
                role_ref,
                subjects,
            }),
        })
    }

    /// Returns the difference that another client made to the fields of the binding that oz manages.
    #[must_use]
    pub fn drift(&self, live: &Live) -> Option<Drift> {
        let metadata = &live.object.metadata;
        let key = live.key();
        if drift::is_held(metadata) {
            return Some(Drift::Finalizer(key.to_string()));
        }
        if !self.marks().are_on(metadata) {
            return Some(Drift::Labels(key.to_string()));
        }
        if !drift::is_owned(metadata, &self.request.uid) {
            return Some(Drift::Owner(key.to_string()));
        }
        let Some((role, subjects)) = content(live) else {
            return Some(Drift::NoBinding(key.to_string()));
        };
        let decided = (&self.role, self.subjects.as_slice());
        drift::of_binding(&key.to_string(), (&role, subjects.as_deref()), decided)
    }

    /// Creates the audit record that the grant is in effect.
    #[must_use]
    pub fn granted(&self, now: Timestamp) -> Record {
        let mut message = format!(
            "{} {} is bound until {}",
            self.role.kind, self.role.name, self.until
        );
        let approvers = approval::approvers(&self.approvals);
        if !approvers.is_empty() {
            message = format!("{message}; approved by {approvers}");
        }
        let mut action = Action::AccessGranted;
        if let Some(emergency) = &self.emergency {
            let due = emergency.due_at;
            message =
                format!("EMERGENCY: {message}, without an approval; to be reviewed until {due}");
            action = Action::EmergencyGranted;
        }
        let allow = Decision::Allow;
        let mut record = self.record(now, action, allow, reason::SUCCESS, message);
        if let Some(danger) = &self.danger {
            record = record.detail("danger", danger.clone());
        }
        if !self.policies.is_empty() {
            record = record.detail("policies", policy::applied(&self.policies));
        }
        if !approvers.is_empty() {
            record = record.detail("approvedBy", approvers);
        }
        match &self.ticket {
            Some(ticket) => ticket::detailed(record, ticket),
            None => record,
        }
    }

    /// Returns the conditions of the decision.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let approved = (!self.approvals.is_empty()).then(|| approval::fact(&self.approvals));
        let ticket = self.ticket.as_ref().map(ticket::fact);
        let facts = approved.into_iter().chain(ticket);
        facts.chain(self.emergency_fact()).collect()
    }

    /// Returns the condition that the grant is an emergency, if it is one.
    pub(super) fn emergency_fact(&self) -> Option<Fact> {
        self.emergency.as_ref().map(emergency::fact)
    }

    /// Returns the plan while the grant lasts: the checks of its change ticket, and the time of the next pass.
    pub(super) fn upkeep(&self, now: Timestamp, known: &Tickets) -> Plan {
        let plan = Plan::default().wake_at(self.until);
        let asker = (self.request.uid.as_str(), self.requester.user.as_str());
        match &self.ticket {
            Some(ticket) => ticket::keep(now, asker, ticket, known, plan),
            None => plan,
        }
    }

    /// Creates an audit record about an event of the grant.
    #[must_use]
    pub fn record(
        &self,
        time: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: impl Into<String>,
    ) -> Record {
        Record {
            user: Some(self.requester.clone()),
            request: self.request.clone(),
            until: Some(self.until),
            details: details(
                (&self.role, self.subjects.as_slice()),
                self.reason.as_deref(),
                self.ticket.as_ref().map(|ticket| ticket.name.as_str()),
            ),
            ..Record::about(time, action, decision, &self.request.uid, reason, message)
        }
    }
}

/// Returns the details of a binding in an audit record: role, subjects, reason and change ticket.
pub(super) fn details(
    (role, subjects): (&RoleRef, &[Subject]),
    reason: Option<&str>,
    ticket: Option<&str>,
) -> std::collections::BTreeMap<String, String> {
    let subjects: Vec<String> = subjects.iter().map(named).collect();
    let role = format!("{}/{}", role.kind, role.name);
    [
        ("role", Some(role)),
        ("subjects", Some(subjects.join(","))),
        ("reason", reason.map(ToOwned::to_owned)),
        ("ticket", ticket.map(ToOwned::to_owned)),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value?)))
    .collect()
}

/// `User/alice`, `ServiceAccount/shop/default`.
fn named(subject: &Subject) -> String {
    match &subject.namespace {
        Some(namespace) => format!("{}/{namespace}/{}", subject.kind, subject.name),
        None => format!("{}/{}", subject.kind, subject.name),
    }
}

fn content(live: &Live) -> Option<(RoleRef, Option<Vec<Subject>>)> {
    if let Some(binding) = live.parse::<RoleBinding>() {
        return Some((binding.role_ref, binding.subjects));
    }
    let binding = live.parse::<ClusterRoleBinding>()?;
    Some((binding.role_ref, binding.subjects))
}
