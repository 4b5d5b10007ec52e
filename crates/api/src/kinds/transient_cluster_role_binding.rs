//! TransientClusterRoleBinding: rights in the whole cluster that exist only inside their window.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::binding::{
    BINDING_IS_IMMUTABLE_MESSAGE, END_AFTER_BEGIN, END_AFTER_BEGIN_MESSAGE, ONE_END,
    ONE_END_MESSAGE, ROLE_IS_IMMUTABLE, ROLE_IS_IMMUTABLE_MESSAGE,
};
use crate::kind::{Family, Kind, Role};
use crate::names;
use crate::optional::not_empty;
use crate::schema::{
    DURATION_MESSAGE, OPTIONAL_DURATION, SPEC_IS_GIVEN, SPEC_IS_GIVEN_MESSAGE, SPEC_IS_IMMUTABLE,
    optional_timestamp,
};
use crate::{BindingStatus, BindingSubject, RoleReference, TICKET, TICKET_MESSAGE};

/// The role, the subjects and the window. Cannot be changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "TransientClusterRoleBinding",
    plural = "transientclusterrolebindings",
    status = "BindingStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "tcrb",
    category = "oz",
    doc = "Binds subjects to a ClusterRole in the whole cluster from validFrom until validUntil, \
        and not an instant longer.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(ONE_END).message(ONE_END_MESSAGE).field_path(".spec"),
    validation = Rule::new(END_AFTER_BEGIN).message(END_AFTER_BEGIN_MESSAGE).field_path(".spec.validUntil"),
    validation = Rule::new(A_CLUSTER_ROLE).message(A_CLUSTER_ROLE_MESSAGE).field_path(".spec.roleRef.kind"),
    validation = Rule::new(SPEC_IS_IMMUTABLE).message(BINDING_IS_IMMUTABLE_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Phase", "type":"string", "jsonPath":".status.phase", "description":"Phase of the binding"}"#,
    printcolumn = r#"{"name":"Role", "type":"string", "jsonPath":".spec.roleRef.name", "description":"Role of the binding"}"#,
    printcolumn = r#"{"name":"From", "type":"string", "jsonPath":".spec.validFrom", "description":"Start of the window", "priority":1}"#,
    printcolumn = r#"{"name":"Expires", "type":"string", "jsonPath":".status.expiresAt", "description":"Expiry of the binding"}"#,
    printcolumn = r#"{"name":"Requester", "type":"string", "jsonPath":".status.requester", "description":"User who created the binding", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct TransientClusterRoleBindingSpec {
    /// The ClusterRole.
    #[x_kube(validation = Rule::new(ROLE_IS_IMMUTABLE).message(ROLE_IS_IMMUTABLE_MESSAGE))]
    pub role_ref: RoleReference,

    /// Users, groups and service accounts that get the role in the whole cluster, from 1 to 64. The list is
    /// replaced as a whole when it is applied.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(min = 1, max = 64))]
    pub subjects: Vec<BindingSubject>,

    /// Beginning of the window, in RFC 3339. If unset, the window begins at once.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "optional_timestamp")]
    pub valid_from: Option<String>,

    /// End of the window, in RFC 3339: the first instant without the binding. Exactly one of validUntil and
    /// duration must be set.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "optional_timestamp")]
    pub valid_until: Option<String>,

    /// Length of the window from the creation of the binding, in units from h to ns, such as 30m or 1h30m.
    /// Exactly one of duration and validUntil must be set.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(OPTIONAL_DURATION).message(DURATION_MESSAGE))]
    pub duration: Option<String>,

    /// Reason for the binding, of at most 1024 characters; the audit record contains it.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,

    /// Change ticket that requires the binding, such as INC-42, of at most 128 characters. Required if an
    /// access policy requires a change ticket.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new(TICKET).message(TICKET_MESSAGE))]
    pub ticket: Option<String>,

    /// Declares an emergency: the role is bound without approvals and without a change ticket if
    /// then.emergency of the access policies names the requester, and the binding is reviewed afterwards.
    /// Requires a reason, the requester as the only subject, and no validFrom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<bool>,
}

impl Kind for TransientClusterRoleBinding {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Binding;
    const NAME: &'static str = "transientclusterrolebinding";
    const FINALIZER: Option<&'static str> = Some(names::BINDING_FINALIZER);

    crate::defined!();
}

/// A Role has a namespace, and the cluster has none.
const A_CLUSTER_ROLE: &str = "!has(self.spec) || self.spec.roleRef.kind == 'ClusterRole'";
/// Said by [`A_CLUSTER_ROLE`].
const A_CLUSTER_ROLE_MESSAGE: &str = "must be ClusterRole";
