//! The names of oz's own objects and finalizers: those that are the same in every installation, for all processes that
//! create, read or delete them.

/// The operator: its program, its Deployment and its service account by the defaults of the chart, and the component
/// that its audit records name.
pub const OPERATOR: &str = "oz-operator";
/// The webhook, with the same uses of its name.
pub const WEBHOOK: &str = "oz-webhook";
/// The broker, with the same uses of its name: the server of the pods of harness runs.
pub const BROKER: &str = "oz-broker";

/// The gate, with the same uses of its name: the path of sessions if their template requires it.
pub const GATE: &str = "oz-gate";

/// The APIService with which the gate is registered in the API server.
pub const GATE_API_SERVICE: &str = "v1alpha1.gate.oz.wizardofoz.co";
/// The finalizer that every transient binding has from its creation until nothing of it is left: even a deletion that
/// orphans leaves no binding behind.
pub const BINDING_FINALIZER: &str = "oz.wizardofoz.co/revoke";
/// The finalizer of Paddock on a workspace: the workspace waits for the run that holds it.
pub const WORKSPACE_FINALIZER: &str = "paddock.dev/workspace-finalizer";
/// The finalizer on the declaration of a composite with children that may expire.
pub const COMPOSITE_FINALIZER: &str = "oz.wizardofoz.co/composite";

/// The Lease that the operator's replicas compete for, named as the original's.
pub const LEASE: &str = "9b20101a.wizardofoz.co";
/// Both webhook configurations.
pub const REGISTRATION: &str = "oz";

/// The Secret with the private keys of the webhook, which it alone reads.
pub const WEBHOOK_KEY: &str = "oz-webhook-key";
/// The Secret with the public keys of the webhook, which it alone writes.
pub const WEBHOOK_PUBLIC_KEYS: &str = "oz-webhook-public-keys";
/// The Secret with the private keys of the operator, which it alone reads.
pub const OPERATOR_KEY: &str = "oz-operator-key";
/// The Secret with the public keys of the operator, which it alone writes.
pub const OPERATOR_PUBLIC_KEYS: &str = "oz-operator-public-keys";
/// The Secret with the private keys of the gate, which it alone reads.
pub const GATE_KEY: &str = "oz-gate-key";
/// The Secret with the public keys of the gate, which it alone writes.
pub const GATE_PUBLIC_KEYS: &str = "oz-gate-public-keys";
/// The Secret with the private key of the broker, which it alone reads.
pub const BROKER_KEY: &str = "oz-broker-key";
/// The Secret with the public key of the broker, which it alone writes.
pub const BROKER_PUBLIC_KEYS: &str = "oz-broker-public-keys";
/// The entry of a Secret with public keys that contains the keys of seals.
pub const SEAL_KEYS: &str = "seal";
/// The entry of a Secret with keys that contains the key of the audit trail.
pub const AUDIT_ENTRY: &str = "audit";
/// The Secret with the authority that issues the webhook's certificates: its name derives from [`REGISTRATION`], as in
/// `oz_admission`.
pub const ADMISSION_AUTHORITY: &str = "oz-admission-ca";
/// The Secret with the authority that issues the broker's certificates, with its key.
pub const BROKER_AUTHORITY: &str = "oz-broker-admission-ca";
/// The ConfigMap with the certificates of that authority, for components that create pods that trust it.
pub const BROKER_CA: &str = "oz-broker-ca";
/// The Secret with the authority that issues the gate's certificates, with its key.
pub const GATE_AUTHORITY: &str = "oz-gate-admission-ca";
/// The ConfigMap with the certificates of that authority, which the APIService contains as well.
pub const GATE_CA: &str = "oz-gate-ca";
/// The Secret with the key with which the operator signs the audit trail, and vouches for the keys of the other
/// writers. It outlives the release, as the trail does.
pub const AUDIT_KEY: &str = "oz-audit-key";
/// The writers of the audit trail other than the operator.
pub const OTHER_WRITERS: [&str; 3] = [WEBHOOK, GATE, BROKER];

/// Returns the Secrets with the private and the public keys of a component; `None` if it is not a component of oz.
#[must_use]
pub fn key_secrets(component: &str) -> Option<(&'static str, &'static str)> {
    match component {
        OPERATOR => Some((OPERATOR_KEY, OPERATOR_PUBLIC_KEYS)),
        WEBHOOK => Some((WEBHOOK_KEY, WEBHOOK_PUBLIC_KEYS)),
        GATE => Some((GATE_KEY, GATE_PUBLIC_KEYS)),
        BROKER => Some((BROKER_KEY, BROKER_PUBLIC_KEYS)),
        _ => None,
    }
}

/// The ConfigMap with the checkpoints of the audit trail's chains.
pub const AUDIT_CHECKPOINTS: &str = "oz-audit-checkpoints";
/// The ConfigMap with the public keys that verify the audit trail.
pub const AUDIT_PUBLIC_KEYS: &str = "oz-audit-keys";
/// The ConfigMap that requests the operator to shorten the audit trail.
pub const AUDIT_PRUNE: &str = "oz-audit-prune";
/// The ConfigMap that requests the operator to seal evidence.
pub const AUDIT_EVIDENCE: &str = "oz-audit-evidence";

/// The prefix of the names of the Roles of grants. It is reserved in every namespace: only the operator writes such a
/// Role, or a binding to one (the admission policy `role-names`).
const GRANT_ROLE: &str = "oz-grant-";
/// The number of these names with a number. The operator may `bind` these, and no others: deploy/rbac lists them.
pub const GRANT_ROLES: u16 = 256;

/// Checks whether a name is reserved for Roles of grants.
#[must_use]
pub fn is_grant_role(name: &str) -> bool {
    name.starts_with(GRANT_ROLE)
}

/// Returns the name of the Role of a grant without a numbered name; `objects` is the name of its other objects.
#[must_use]
pub fn own_grant_role(objects: &str) -> String {
    format!("{GRANT_ROLE}{objects}")
}

/// Returns the reserved name with this number.
#[must_use]
pub fn grant_role(number: u16) -> String {
    format!("{GRANT_ROLE}{number:03}")
}

/// Returns the number of a reserved name; `None` if it has none.
#[must_use]
pub fn grant_role_number(name: &str) -> Option<u16> {
    let digits = name.strip_prefix(GRANT_ROLE)?;
    let plain = digits.len() == 3 && digits.bytes().all(|digit| digit.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// Returns the user name of a service account.
#[must_use]
pub fn service_account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
