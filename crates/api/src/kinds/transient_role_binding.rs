//! TransientRoleBinding: rights in one namespace that exist only inside their window.

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
use crate::{BindingStatus, BindingSubject, RoleReference};

/// Who is bound to what, from when until when. Cannot be changed once created.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "crds.wizardofoz.co",
    version = "v1alpha1",
    kind = "TransientRoleBinding",
    plural = "transientrolebindings",
    namespaced,
    status = "BindingStatus",
    derive = "PartialEq",
    derive = "Default",
    shortname = "trb",
    category = "oz",
    doc = "Binds subjects to a role in this namespace from validFrom until validUntil, and not an instant longer.",
    validation = Rule::new(SPEC_IS_GIVEN).message(SPEC_IS_GIVEN_MESSAGE).field_path(".spec").optional_old_self(true),
    validation = Rule::new(ONE_END).message(ONE_END_MESSAGE).field_path(".spec"),
    validation = Rule::new(END_AFTER_BEGIN).message(END_AFTER_BEGIN_MESSAGE).field_path(".spec.validUntil"),
    validation = Rule::new(SPEC_IS_IMMUTABLE).message(BINDING_IS_IMMUTABLE_MESSAGE).field_path(".spec"),
    printcolumn = r#"{"name":"Phase", "type":"string", "jsonPath":".status.phase", "description":"How far it came"}"#,
    printcolumn = r#"{"name":"Role", "type":"string", "jsonPath":".spec.roleRef.name", "description":"What is bound"}"#,
    printcolumn = r#"{"name":"From", "type":"string", "jsonPath":".spec.validFrom", "description":"When it begins", "priority":1}"#,
    printcolumn = r#"{"name":"Expires", "type":"string", "jsonPath":".status.expiresAt", "description":"When it ends"}"#,
    printcolumn = r#"{"name":"Requester", "type":"string", "jsonPath":".status.requester", "description":"Who created it", "priority":1}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"Time since it was created"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct TransientRoleBindingSpec {
    /// The role: a Role of the same namespace, or a ClusterRole whose rights hold in it.
    #[x_kube(validation = Rule::new(ROLE_IS_IMMUTABLE).message(ROLE_IS_IMMUTABLE_MESSAGE))]
    pub role_ref: RoleReference,

    /// Who is bound in this namespace. Taken as a whole: two may have the same name.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(min = 1, max = 64))]
    pub subjects: Vec<BindingSubject>,

    /// The first instant of the window, in RFC 3339. Absent means at once.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "optional_timestamp")]
    pub valid_from: Option<String>,

    /// The first instant after the window, in RFC 3339. Either this or duration.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "optional_timestamp")]
    pub valid_until: Option<String>,

    /// How long the binding lasts from the instant at which it is made, as a number with a unit for
    /// each part: 30m, 1h30m. Either this or validUntil.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(OPTIONAL_DURATION).message(DURATION_MESSAGE))]
    pub duration: Option<String>,

    /// Why it is needed. Kept in the audit record.
    #[serde(
        default,
        deserialize_with = "not_empty",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
}

impl Kind for TransientRoleBinding {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Binding;
    const NAME: &'static str = "transientrolebinding";
    const FINALIZER: Option<&'static str> = Some(names::BINDING_FINALIZER);

    crate::defined!();
}
