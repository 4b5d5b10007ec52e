//! The additions to derived schemas: patterns and rules that several kinds share, the schemas of values of other
//! projects, and the final changes of a definition.

use k8s_openapi::api::core::v1::{EnvVar, PodSpec, ResourceRequirements};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The rule for texts that Go's `time.ParseDuration` reads, without a minus sign. It is not a `pattern`, since the
/// error message of a pattern could only contain the pattern.
pub(crate) const DURATION: &str =
    r"self.matches(r'^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$')";

/// The same rule for a field of a request, where the empty string counts as not given.
pub(crate) const OPTIONAL_DURATION: &str =
    r"self.matches(r'^(\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+))?$')";

/// The message of both rules.
pub(crate) const DURATION_MESSAGE: &str =
    "must be a duration such as 30m or 1h30m, not negative, in the units h, m, s, ms, us and ns";

/// The pattern of a PodAccessRequest's duration in the original.
pub(crate) const POD_REQUEST_DURATION: &str = "^[0-9]+(s|m|h)$";

/// The rule that a new object has a spec; the original accepted objects without one, and these stay valid.
pub const SPEC_IS_GIVEN: &str =
    "has(self.spec) || (oldSelf.hasValue() && !has(oldSelf.value().spec))";

/// The message of [`SPEC_IS_GIVEN`].
pub const SPEC_IS_GIVEN_MESSAGE: &str = "spec must be set";

/// The rule that the spec as a whole does not change: the API server does not evaluate a rule on an optional field when
/// the field is added or removed.
pub const SPEC_IS_IMMUTABLE: &str =
    "has(self.spec) == has(oldSelf.spec) && (!has(self.spec) || self.spec == oldSelf.spec)";

/// The message of [`SPEC_IS_IMMUTABLE`].
pub const SPEC_IS_IMMUTABLE_MESSAGE: &str =
    "spec is immutable: create a new request instead (spec.extends continues a running one)";

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Returns the schema of an instant in RFC 3339.
#[must_use]
pub fn timestamp(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// Returns the same schema for a field that is read as text: one function interprets all texts that the API server
/// accepts.
pub(crate) fn optional_timestamp(generator: &mut SchemaGenerator) -> Schema {
    timestamp(generator)
}

/// Removes the format of an integer: API servers know no unsigned ones, and warn about them since 1.37. The limits of
/// the field say more.
pub(crate) fn without_format(schema: &mut Schema) {
    schema.remove("format");
}

/// Returns the schema of a Kubernetes quantity: an integer, or a string such as `500m` or `2Gi`.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

/// Returns the schema of any JSON value, including `null`.
pub(crate) fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "nullable": true, "x-kubernetes-preserve-unknown-fields": true })
}

pub(crate) fn pod_spec(generator: &mut SchemaGenerator) -> Schema {
    foreign::<PodSpec>(generator)
}

pub(crate) fn resources(generator: &mut SchemaGenerator) -> Schema {
    foreign::<ResourceRequirements>(generator)
}

pub(crate) fn env(generator: &mut SchemaGenerator) -> Schema {
    foreign::<Vec<EnvVar>>(generator)
}

/// Returns the schema of a type of Kubernetes, without its descriptions, which are long and which `kubectl explain
/// pod.spec` shows.
fn foreign<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    without_description(&mut schema);
    schema
}

fn without_description(schema: &mut Schema) {
    schema.remove("description");
    transform_subschemas(&mut without_description, schema);
}

/// Removes the content of derived definitions that oz's definitions do not have: that `spec` is required (see
/// [`SPEC_IS_GIVEN`]); that an optional field may be `null`, which the API server would then store; and the line breaks
/// of descriptions in the source.
#[must_use]
pub fn finished(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas = crd
        .spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut());
    for root in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
        root.required = None;
        tidy(root);
    }
    crd
}

fn tidy(schema: &mut JSONSchemaProps) {
    if let Some(description) = &mut schema.description {
        *description = description.replace('\n', " ");
    }
    if schema.x_kubernetes_preserve_unknown_fields != Some(true) {
        schema.nullable = None;
    }
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        tidy(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}
