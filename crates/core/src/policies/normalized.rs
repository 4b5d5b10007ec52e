//! The form in which admission policies are compared: with the defaults of the API server, and with one spelling of
//! each value that differs between installations. Files that an administrator applies by hand leave out defaults, and
//! quote texts as CEL permits.

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
};
use serde_json::Value;

/// Returns the normalized form of an admission policy.
pub(super) fn policy(spec: &ValidatingAdmissionPolicySpec) -> ValidatingAdmissionPolicySpec {
    let mut spec = spec.clone();
    set_default(&mut spec.failure_policy, "Fail");
    if let Some(resources) = &mut spec.match_constraints {
        complete(resources);
    }
    for variable in spec.variables.iter_mut().flatten() {
        if let Some(value) = literal(&variable.expression) {
            variable.expression = value.to_string();
        }
    }
    spec
}

/// Returns the normalized form of a binding.
pub(super) fn binding(
    spec: &ValidatingAdmissionPolicyBindingSpec,
) -> ValidatingAdmissionPolicyBindingSpec {
    let mut spec = spec.clone();
    if let Some(resources) = &mut spec.match_resources {
        complete(resources);
    }
    spec
}

/// Adds the defaults of the API server.
/// See <https://kubernetes.io/docs/reference/kubernetes-api/policy-resources/validating-admission-policy-v1/>.
fn complete(resources: &mut MatchResources) {
    set_default(&mut resources.match_policy, "Equivalent");
    resources.namespace_selector.get_or_insert_default();
    resources.object_selector.get_or_insert_default();
    let included = resources.resource_rules.iter_mut();
    let excluded = resources.exclude_resource_rules.iter_mut();
    for rule in included.chain(excluded).flatten() {
        set_default(&mut rule.scope, "*");
    }
}

fn set_default(field: &mut Option<String>, default: &str) {
    field.get_or_insert_with(|| default.to_owned());
}

/// Returns the value of a CEL expression that is a text, or a list of texts, sorted: policies only search the lists.
/// Any other expression has no value here, and is compared as text.
fn literal(expression: &str) -> Option<Value> {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let mut value = read(expression).or_else(|| read(&double_quoted(expression)?))?;
    if let Value::Array(items) = &mut value {
        items.sort_by_cached_key(Value::to_string);
    }
    Some(value)
}

/// Returns the expression with double quotes around its texts; `None` if a text in single quotes contains a character
/// that CEL and JSON may read differently.
fn double_quoted(expression: &str) -> Option<String> {
    let mut written = String::with_capacity(expression.len());
    let mut open = None;
    for character in expression.chars() {
        match (open, character) {
            (None, '\'' | '"') => open = Some(character),
            (Some(quote), _) if quote == character => open = None,
            (Some(_), '"' | '\\') => return None,
            _ => {
                written.push(character);
                continue;
            }
        }
        written.push('"');
    }
    Some(written)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn literals_are_equal_by_value_and_no_others() {
        for (one, other, are_equal) in [
            ("'a'", r#""a""#, true),
            (" 'a' ", r#""a""#, true),
            ("['a', 'b']", r#"["a","b"]"#, true),
            ("['b', \"a\"]", r#"["a","b"]"#, true),
            ("[]", "[ ]", true),
            (r#"["it's"]"#, r#"[ "it's" ]"#, true),
            ("'a'", r#""b""#, false),
            ("['a']", r#"["a","b"]"#, false),
            ("'a'", r#"["a"]"#, false),
            // One text, which contains what separates two.
            (r#"['a", "b']"#, r#"["a","b"]"#, false),
            (r"'\x61'", r#""a""#, false),
            (r"'a\'", r#""a""#, false),
            // Other expressions are no literals.
            ("'a' + 'b'", r#""a" + "b""#, false),
            ("true || x", "true||x", false),
        ] {
            let expressed = |expression: &str| {
                let spec = json!({"variables": [{"name": "v", "expression": expression}]});
                policy(&serde_json::from_value(spec).unwrap())
            };
            assert_eq!(
                expressed(one) == expressed(other),
                are_equal,
                "{one} {other}"
            );
        }
    }

    #[test]
    fn omitted_defaults_are_those_of_the_api_server() {
        let read = |spec: Value| policy(&serde_json::from_value(spec).unwrap());
        let rule = json!({"apiGroups": ["apps"], "operations": ["*"]});
        let mut scoped = rule.clone();
        scoped["scope"] = json!("*");
        let short = read(
            json!({"matchConstraints": {"resourceRules": [rule], "excludeResourceRules": [rule]}}),
        );
        let whole = json!({"failurePolicy": "Fail", "matchConstraints": {
            "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
            "resourceRules": [scoped], "excludeResourceRules": [scoped],
        }});
        assert_eq!(short, read(whole.clone()));
        for (field, other) in [
            ("/failurePolicy", json!("Ignore")),
            ("/matchConstraints/matchPolicy", json!("Exact")),
            (
                "/matchConstraints/namespaceSelector",
                json!({"matchLabels": {"a": "b"}}),
            ),
            (
                "/matchConstraints/resourceRules/0/scope",
                json!("Namespaced"),
            ),
        ] {
            let mut changed = whole.clone();
            *changed.pointer_mut(field).unwrap() = other;
            assert_ne!(short, read(changed), "{field}");
        }
    }
}
