//! What the derived schemas do not say by themselves: patterns and rules that several kinds share,
//! the schemas of values that are not ours, and the last touches on a definition.

use k8s_openapi::api::core::v1::{EnvVar, PodSpec, ResourceRequirements};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// What Go's `time.ParseDuration` reads, without a minus sign. Not a `pattern`, which could only be
/// answered with itself.
pub(crate) const DURATION: &str =
    r"self.matches(r'^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$')";

/// The same for a field of a request, where the empty string counts as not given.
pub(crate) const OPTIONAL_DURATION: &str =
    r"self.matches(r'^(\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+))?$')";

/// Said by both.
pub(crate) const DURATION_MESSAGE: &str =
    "must be a duration such as 30m or 1h30m, not negative, in the units h, m, s, ms, us and ns";

/// What the original takes as the duration of a PodAccessRequest.
pub(crate) const POD_REQUEST_DURATION: &str = "^[0-9]+(s|m|h)$";

/// No new object comes in without a spec; the original let one pass, and it stays as it is.
pub const SPEC_IS_GIVEN: &str =
    "has(self.spec) || (oldSelf.hasValue() && !has(oldSelf.value().spec))";

/// Said by [`SPEC_IS_GIVEN`].
pub const SPEC_IS_GIVEN_MESSAGE: &str = "spec must be set";

/// Holds for the spec as a whole: a rule on an optional field is not asked when the field comes
/// or goes.
pub const SPEC_IS_IMMUTABLE: &str =
    "has(self.spec) == has(oldSelf.spec) && (!has(self.spec) || self.spec == oldSelf.spec)";

/// Said by [`SPEC_IS_IMMUTABLE`].
pub const SPEC_IS_IMMUTABLE_MESSAGE: &str =
    "spec is immutable: create a new request instead (spec.extends continues a running one)";

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// An instant in RFC 3339.
#[must_use]
pub fn timestamp(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// The same, read as text: what the API server lets through is given a meaning in one place.
pub(crate) fn optional_timestamp(generator: &mut SchemaGenerator) -> Schema {
    timestamp(generator)
}

/// A Kubernetes quantity: an integer, or a string such as `500m` or `2Gi`.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

/// Any JSON at all, `null` included.
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

/// The schema of a type of Kubernetes' own. Without its descriptions, which are long and which
/// `kubectl explain pod.spec` shows.
fn foreign<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    without_description(&mut schema);
    schema
}

fn without_description(schema: &mut Schema) {
    schema.remove("description");
    transform_subschemas(&mut without_description, schema);
}

/// What derived definitions say and ours do not: that `spec` is required (see [`SPEC_IS_GIVEN`]);
/// that an optional field may be `null`, which the API server would then store; and where a line of
/// a description ends in our source.
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
