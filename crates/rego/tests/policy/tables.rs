//! Tables with the answers of OPA 1.22.4, for functions with few cases of OPA.

use jiff::Timestamp;
use oz_rego::Policy;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::{compile, evaluate};

/// A schema, with what `json.match_schema` or `json.verify_schema` says of it.
#[derive(Deserialize)]
struct Schema {
    schema: Value,
    #[serde(default)]
    document: Option<Value>,
    /// The type, the field and the description of each violation; null if the call is undefined.
    #[serde(default)]
    faults: Option<Vec<[String; 3]>>,
    /// The error of a schema that cannot be used.
    #[serde(default)]
    error: Option<String>,
}

fn lines<T: for<'de> Deserialize<'de>>(table: &str) -> Vec<T> {
    let lines = table.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

fn x(policy: &Policy, input: &Value) -> Option<Value> {
    let answer = evaluate(policy, "p.x", input, Timestamp::UNIX_EPOCH).unwrap();
    answer.document().cloned()
}

#[test]
fn json_schema_finds_the_violations_that_opa_finds() {
    let matches = compile("package p\nx := json.match_schema(input.document, input.schema)");
    let verify = compile("package p\nx := json.verify_schema(input.schema)");
    let mut wrong = Vec::new();
    for row in lines::<Schema>(include_str!("policies/schemas.jsonl")) {
        let (schema, document) = (&row.schema, &row.document);
        let (policy, want) = match (document, &row.faults) {
            (None, _) => (&verify, Some(json!([row.error.is_none(), row.error]))),
            (Some(_), None) => (&matches, None),
            (Some(_), Some(faults)) => {
                let faults = faults.iter().map(|[kind, field, description]| {
                    json!({
                        "type": kind, "field": field, "desc": description,
                        "error": format!("{field}: {description}"),
                    })
                });
                let all: Vec<Value> = faults.collect();
                (&matches, Some(json!([all.is_empty(), all])))
            }
        };
        let got = x(policy, &json!({"schema": schema, "document": document}));
        if got != want {
            wrong.push(format!("{schema} {document:?}: {got:?}, and not {want:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn yaml_marshal_writes_what_opa_writes() {
    let policy = compile("package p\nx := yaml.marshal(input.value)");
    let mut wrong = Vec::new();
    for (value, want) in lines::<(Value, Value)>(include_str!("policies/yaml.jsonl")) {
        let got = x(&policy, &json!({"value": value}));
        if got.as_ref() != Some(&want) {
            wrong.push(format!("{value}: {got:?}, and not {want}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn schema_that_takes_too_long_stops_the_policy() {
    let policy = compile("package p\nx := json.match_schema(input.document, input.schema)");
    for (schema, document) in [
        // A reference to itself, without a value in between.
        (json!({"$ref": "#"}), json!({})),
        (json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}), json!({})),
        // Alternatives of alternatives for each level of the document.
        (
            json!({"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]}, "type": "array"}),
            serde_json::from_str(&format!("{}1{}", "[".repeat(60), "]".repeat(60))).unwrap(),
        ),
    ] {
        let input = json!({"schema": schema, "document": document});
        let error = evaluate(&policy, "p.x", &input, Timestamp::UNIX_EPOCH).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("json.match_schema would make"), "{said}");
    }
}

const ANNOTATED: &str = "# METADATA
# title: The package
# scope: subpackages
# custom: {level: 3}
package team.shop

# METADATA
# description: |
#   Two
#   lines
# authors:
# - Ada <ada@example.org>
# - name: Bob
# related_resources: [https://example.org/a, {ref: https://example.org/b, description: b}]
# organizations: [one]
# schemas:
# - input: schema.input
x := [rego.metadata.rule(), m] if {
	rego.metadata.chain(
		m
	)
}

y := rego.metadata.rule()

z := [link.path | some link in rego.metadata.chain()]

text := `
# METADATA
# scope: nothing
`
";

#[test]
fn annotations_of_a_rule_are_values() {
    let policy = compile(ANNOTATED);
    let ask = |path: &str| {
        let answer = evaluate(&policy, path, &json!({}), Timestamp::UNIX_EPOCH).unwrap();
        answer.document().cloned().unwrap()
    };
    let rule = json!({
        "scope": "rule", "description": "Two\nlines\n",
        "authors": [{"name": "Ada", "email": "ada@example.org"}, {"name": "Bob"}],
        "related_resources": [
            {"ref": "https://example.org/a"}, {"ref": "https://example.org/b", "description": "b"},
        ],
        "organizations": ["one"],
        "schemas": [{"path": ["input"], "schema": ["schema", "input"]}],
    });
    let chain = json!([
        {"path": ["team", "shop", "x"], "annotations": rule},
        {
            "path": ["team", "shop"],
            "annotations": {"scope": "subpackages", "title": "The package", "custom": {"level": 3}},
        },
    ]);
    assert_eq!(ask("team.shop.x"), json!([rule, chain]));
    assert_eq!(ask("team.shop.y"), json!({}));
    assert_eq!(
        ask("team.shop.z"),
        json!([["team", "shop", "z"], ["team", "shop"]])
    );
}

#[test]
fn unusable_annotations_are_errors_with_their_line_where_a_policy_reads_them() {
    for (annotation, why) in [
        ("# scope: everything", "invalid annotation scope"),
        ("# scope: package", "must be applied to package"),
        (
            "# title: [1]",
            "annotation `title` has a value of another type",
        ),
        ("# title: {", "annotations cannot be read"),
        ("#", "found whitespace"),
        (
            "# scope: rule\n# entrypoint: true",
            "annotation entrypoint applied",
        ),
        ("# authors: [{}]", "invalid author definition"),
    ] {
        let text = format!("package p\n\n# METADATA\n{annotation}\nx := rego.metadata.rule()\n");
        let errors = crate::common::try_compile(&text).unwrap_err().to_string();
        assert!(errors.starts_with("p.rego:3:1: "), "{errors}");
        assert!(errors.contains(why), "{errors}");
        let unread = text.replace("rego.metadata.rule()", "1");
        assert!(crate::common::try_compile(&unread).is_ok(), "{annotation}");
    }
}

#[test]
fn syntax_tree_of_a_module_is_that_of_opa() {
    let policy = compile("package p\nx := rego.parse_module(\"x.rego\", input.text)");
    let mut wrong = Vec::new();
    for (text, want) in lines::<(String, Value)>(include_str!("policies/trees.jsonl")) {
        let got = x(&policy, &json!({"text": text}));
        if got.as_ref() != Some(&want) {
            let got = got.map(|got| got.to_string());
            wrong.push(format!("{text}: {got:?}, and not {want}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for text in [
        "",
        "package foo.",
        "x",
        "package p\nx := $\"{y}\"",
        "package p\nx if",
    ] {
        assert_eq!(x(&policy, &json!({"text": text})), None, "{text}");
    }
}
