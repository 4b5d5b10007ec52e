//! What `ozctl lint` checks: documents of a file, one by one, against the schema and the rules of
//! their kind.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use oz_core::api::{
    ExecAccessRequest, ExecAccessTemplate, GROUP, PodAccessRequest, PodAccessTemplate,
    TransientClusterRoleBinding, TransientRoleBinding, VERSION,
};
use oz_core::transient::Kind;
use oz_core::validate::{self, Violation};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The kinds of findings, for those who sort them.
pub(crate) const RULES: [(&str, &str); 4] = [
    ("yaml", "The document is not YAML"),
    (
        "schema",
        "A field is unknown, missing or of another type than the CRD has it",
    ),
    ("rule", "A value breaks a rule that the webhook enforces"),
    ("kind", "The API group of oz has no such kind or version"),
];

/// Something that the cluster would not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) file: String,
    /// From 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    /// Kind and name.
    pub(crate) object: Option<String>,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "file": self.file, "line": self.line, "rule": self.rule, "object": self.object,
            "field": self.field, "message": self.message,
        })
    }
}

/// A document, and the line that it begins in.
struct Document<'a> {
    line: usize,
    text: &'a str,
}

/// Checks all documents of a file as they would be admitted now; how many objects of oz there were, and what was found.
pub(crate) fn check(file: &str, text: &str, now: Timestamp) -> (usize, Vec<Finding>) {
    let mut checked = 0;
    let mut findings = Vec::new();
    for document in documents(text) {
        let value: Value = match serde_saphyr::from_str(document.text) {
            Ok(value) => value,
            Err(error) => {
                findings.push(Finding {
                    file: file.to_owned(),
                    line: document.line,
                    rule: "yaml",
                    object: None,
                    field: String::new(),
                    message: error
                        .to_string()
                        .lines()
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                });
                continue;
            }
        };
        let is_list = value["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("List"));
        let items = match value["items"].as_array() {
            Some(items) if is_list => items.clone(),
            _ => vec![value],
        };
        for item in items {
            if let Some(found) = object(&SCHEMAS, &item, now) {
                checked += 1;
                let name = item["metadata"]["name"]
                    .as_str()
                    .or(item["metadata"]["generateName"].as_str());
                let kind = item["kind"].as_str().unwrap_or_default();
                for (rule, field, message) in found {
                    findings.push(Finding {
                        file: file.to_owned(),
                        line: document.line + line_of(document.text, &field),
                        rule,
                        object: Some(format!("{kind} {}", name.unwrap_or("without a name"))),
                        field,
                        message,
                    });
                }
            }
        }
    }
    (checked, findings)
}

type Found = Vec<(&'static str, String, String)>;

/// What is wrong with an object; `None` if it is none of oz's.
fn object(schemas: &BTreeMap<String, Value>, object: &Value, now: Timestamp) -> Option<Found> {
    let (group, version) = object["apiVersion"].as_str()?.split_once('/')?;
    if group != GROUP {
        return None;
    }
    let kind = object["kind"].as_str().unwrap_or_default();
    let Some(schema) = schemas.get(kind).filter(|_| version == VERSION) else {
        let known: Vec<&str> = schemas.keys().map(String::as_str).collect();
        let message = format!("must be one of {VERSION}: {}", known.join(", "));
        return Some(vec![("kind", "kind".to_owned(), message)]);
    };
    let mut found = Found::new();
    match object.get("spec") {
        Some(value) => structure(&schema["properties"]["spec"], value, "spec", &mut found),
        None => found.push(("schema", "spec".to_owned(), "is required".to_owned())),
    }
    // Rules read typed objects; what is not of the schema cannot be one.
    if found.is_empty() {
        rules(kind, object, now, &mut found);
    }
    Some(found)
}

fn rules(kind: &str, object: &Value, now: Timestamp, found: &mut Found) {
    let violations = match kind {
        "ExecAccessTemplate" => typed::<ExecAccessTemplate>(object)
            .map(|template| validate::exec_access_template(&template).err()),
        "PodAccessTemplate" => typed::<PodAccessTemplate>(object)
            .map(|template| validate::pod_access_template(&template).err()),
        "ExecAccessRequest" => typed::<ExecAccessRequest>(object)
            .map(|request| validate::exec_access_request(&request).err()),
        "PodAccessRequest" => typed::<PodAccessRequest>(object)
            .map(|request| validate::pod_access_request(&request).err()),
        "TransientRoleBinding" => {
            typed::<TransientRoleBinding>(object).map(|binding| of_binding(&binding, now))
        }
        "TransientClusterRoleBinding" => {
            typed::<TransientClusterRoleBinding>(object).map(|binding| of_binding(&binding, now))
        }
        _ => Ok(None),
    };
    match violations {
        Err(message) => found.push(("schema", "spec".to_owned(), message)),
        Ok(violations) => {
            for Violation { field, message, .. } in violations.into_iter().flatten() {
                found.push(("rule", field, message));
            }
        }
    }
}

/// What it says, and that its window still opens. Which roles may be bound, and by whom, is the
/// cluster's to say.
fn of_binding<K: Kind>(binding: &K, now: Timestamp) -> Option<Vec<Violation>> {
    match binding.terms() {
        Err(violations) => Some(violations),
        Ok(terms) => terms.futile(now, now).map(|message| {
            vec![Violation {
                field: format!("{}validUntil", K::PREFIX),
                message: message.to_owned(),
                value: None,
            }]
        }),
    }
}

fn typed<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    serde_json::from_value(object.clone()).map_err(|error| error.to_string())
}

static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(schemas);

/// The schemas of the CRDs, by kind.
fn schemas() -> BTreeMap<String, Value> {
    oz_core::api::crds()
        .iter()
        .filter_map(|crd| {
            let crd = serde_json::to_value(crd).ok()?;
            let kind = crd["spec"]["names"]["kind"].as_str()?.to_owned();
            let schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
            Some((kind, schema))
        })
        .collect()
}

/// Compares a value with its schema: what the API server would drop without a word is an error
/// here, since somebody meant something by it.
fn structure(schema: &Value, value: &Value, path: &str, found: &mut Found) {
    let mut add = |message: String| found.push(("schema", path.to_owned(), message));
    if value.is_null() {
        if schema["nullable"] != true {
            add("must not be null".to_owned());
        }
        return;
    }
    if let Some(wanted) = schema["type"].as_str()
        && !is_of(wanted, value)
    {
        add(format!("must be of type {wanted}"));
        return;
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        let choices: Vec<String> = choices.iter().map(plain).collect();
        add(format!("must be one of: {}", choices.join(", ")));
        return;
    }
    let (count, least, most, of) = match value {
        Value::String(text) => (text.chars().count(), "minLength", "maxLength", "characters"),
        Value::Array(items) => (items.len(), "minItems", "maxItems", "items"),
        _ => (0, "", "", ""),
    };
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    if let Some(least) = schema[least].as_u64().filter(|&least| count < least) {
        add(format!("must have {least} {of} or more"));
    }
    if let Some(most) = schema[most].as_u64().filter(|&most| count > most) {
        add(format!("must have {most} {of} at most"));
    }
    match value {
        Value::Object(fields) => object_fields(schema, fields, path, found),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                structure(&schema["items"], item, &format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}

fn object_fields(
    schema: &Value,
    fields: &serde_json::Map<String, Value>,
    path: &str,
    found: &mut Found,
) {
    for required in schema["required"].as_array().into_iter().flatten() {
        let name = required.as_str().unwrap_or_default();
        // A default stands in for what is missing.
        if !fields.contains_key(name) && schema["properties"][name].get("default").is_none() {
            found.push(("schema", format!("{path}.{name}"), "is required".to_owned()));
        }
    }
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    for (name, value) in fields {
        let path = format!("{path}.{name}");
        if let Some(known) = schema["properties"].get(name) {
            structure(known, value, &path, found);
        } else if let Some(any) = schema.get("additionalProperties") {
            structure(any, value, &path, found);
        } else if !open && schema["properties"].is_object() {
            let known = schema["properties"].as_object().into_iter().flatten();
            let known: Vec<&str> = known.map(|(name, _)| name.as_str()).collect();
            let message = match closest(name, &known) {
                Some(meant) => format!("is unknown; did you mean {meant}?"),
                None => "is unknown".to_owned(),
            };
            found.push(("schema", path, message));
        }
    }
}

fn is_of(wanted: &str, value: &Value) -> bool {
    match wanted {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        _ => true,
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// A field that differs only in case, or by one letter.
fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = name.to_lowercase();
    known
        .iter()
        .find(|other| other.to_lowercase() == lower)
        .or_else(|| {
            known
                .iter()
                .find(|other| differ_by_one(&lower, &other.to_lowercase()))
        })
        .copied()
}

fn differ_by_one(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    if long.len() - short.len() > 1 {
        return false;
    }
    let same = short
        .bytes()
        .zip(long.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let rest = |text: &str, from: usize| text.as_bytes().get(from..).map(<[u8]>::to_vec);
    if short.len() == long.len() {
        rest(short, same + 1) == rest(long, same + 1)
    } else {
        rest(short, same) == rest(long, same + 1)
    }
}

/// The documents of a file. Lines of three dashes part them.
fn documents(text: &str) -> Vec<Document<'_>> {
    let mut all = Vec::new();
    let (mut begin, mut begin_line, mut at) = (0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            all.push(Document {
                line: begin_line,
                text: text.get(begin..at).unwrap_or_default(),
            });
            begin = at + line.len();
            begin_line = number + 2;
        }
        at += line.len();
    }
    all.push(Document {
        line: begin_line,
        text: text.get(begin..).unwrap_or_default(),
    });
    all.retain(|document| {
        let mut lines = document.text.lines().map(str::trim);
        lines.any(|line| !line.is_empty() && !line.starts_with('#'))
    });
    all
}

/// The line, from the document's own, in which a field stands: each name of its path is looked for
/// below the one before. A parent's line if it is not there, as with one that is missing.
fn line_of(text: &str, path: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let (mut at, mut from) = (0, 0);
    for part in path.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse().ok()),
            None => (part, None),
        };
        let found = lines.iter().enumerate().skip(from).find(|(_, line)| {
            let key = line
                .trim_start()
                .trim_start_matches("- ")
                .trim_start_matches('"');
            key.strip_prefix(name)
                .is_some_and(|rest| rest.trim_start_matches('"').starts_with(':'))
        });
        let Some((line, _)) = found else { break };
        at = line;
        from = line + 1;
        if let Some(index) = index {
            let items = lines.iter().enumerate().skip(from);
            let mut items = items.filter(|(_, line)| line.trim_start().starts_with('-'));
            if let Some((line, _)) = items.nth(index) {
                at = line;
                from = line;
            }
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
apiVersion: crds.wizardofoz.co/v1alpha1
kind: ExecAccessTemplate
metadata:
  name: shell
spec:
  accessConfig:
    allowedGroups: [devs]
    defaultDuration: 1h
  controllerTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: web
";

    const BINDING: &str = "\
apiVersion: crds.wizardofoz.co/v1alpha1
kind: TransientRoleBinding
metadata:
  name: night-shift
spec:
  roleRef:
    kind: ClusterRole
    name: view
  subjects:
  - kind: User
    name: lea
  validFrom: 2026-01-31T09:00:00Z
  validUntil: 2026-01-31T17:00:00Z
";

    fn now() -> Timestamp {
        "2026-01-31T12:00:00Z".parse().unwrap()
    }

    fn found(text: &str) -> Vec<(usize, &'static str, String, String)> {
        check("f.yaml", text, now())
            .1
            .into_iter()
            .map(|found| (found.line, found.rule, found.field, found.message))
            .collect()
    }

    #[test]
    fn a_good_template_is_checked_and_nothing_is_found() {
        assert_eq!(check("f.yaml", GOOD, now()), (1, Vec::new()));
        let others = "apiVersion: v1\nkind: Pod\n---\n# nothing\n";
        assert_eq!(check("f.yaml", others, now()), (0, Vec::new()));
    }

    #[test]
    fn a_misspelt_field_is_found_where_it_stands() {
        let text = format!(
            "# first\n---\n{}",
            GOOD.replace("defaultDuration", "defaultduration")
        );
        let expected = (
            10,
            "schema",
            "spec.accessConfig.defaultduration".to_owned(),
            "is unknown; did you mean defaultDuration?".to_owned(),
        );
        assert_eq!(found(&text), [expected]);
    }

    #[test]
    fn the_rules_are_those_of_admission() {
        let text = GOOD.replace("defaultDuration: 1h", "defaultDuration: 48h");
        let findings = found(&text);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].1, "rule");
        let text = GOOD.replace("apps/v1", "argoproj.io/v1alpha1");
        assert_eq!(found(&text)[0].2, "spec.controllerTargetRef.apiVersion");
    }

    #[test]
    fn a_transient_binding_is_checked_as_at_admission() {
        assert_eq!(check("f.yaml", BINDING, now()), (1, Vec::new()));
        let whole = BINDING.replace("kind: TransientRole", "kind: TransientClusterRole");
        assert_eq!(check("f.yaml", &whole, now()), (1, Vec::new()));
        let one = |text: &str| {
            let findings = found(text);
            assert_eq!(findings.len(), 1, "{findings:?}");
            let (line, rule, field, message) = findings.into_iter().next().unwrap();
            (line, rule, field, message)
        };
        let is = |text: &str, at: usize, of: &str, on: &str, said: &str| {
            let (line, rule, field, message) = one(text);
            assert_eq!((line, rule, field.as_str()), (at, of, on), "{message}");
            assert!(message.contains(said), "{message}");
        };
        let over = BINDING.replace("T17", "T11");
        is(
            &over,
            13,
            "rule",
            "spec.validUntil",
            "must lie in the future",
        );
        let never = BINDING.replace("T17", "T08");
        is(
            &never,
            13,
            "rule",
            "spec.validUntil",
            "must be later than validFrom",
        );
        let both = format!("{BINDING}  duration: 1h\n");
        is(
            &both,
            5,
            "rule",
            "spec",
            "exactly one of validUntil and duration",
        );
        let role = whole.replace("kind: ClusterRole\n", "kind: Role\n");
        is(&role, 7, "rule", "spec.roleRef.kind", "must be ClusterRole");
        let nobody = BINDING.replace("name: lea", "name: lea\n    namespace: shop");
        is(
            &nobody,
            12,
            "rule",
            "spec.subjects[0].namespace",
            "a ServiceAccount needs",
        );
        let empty = BINDING
            .replace("  - kind: User\n    name: lea\n", "")
            .replace("subjects:", "subjects: []");
        is(
            &empty,
            9,
            "schema",
            "spec.subjects",
            "must have 1 items or more",
        );
        let misspelt = BINDING.replace("validUntil", "validuntil");
        is(
            &misspelt,
            13,
            "schema",
            "spec.validuntil",
            "did you mean validUntil?",
        );
    }

    #[test]
    fn types_choices_and_what_is_missing_are_of_the_schema() {
        let text = GOOD.replace("kind: Deployment", "kind: Service");
        assert!(found(&text)[0].3.starts_with("must be one of: Deployment"));
        let text = GOOD.replace("[devs]", "devs");
        assert_eq!(found(&text)[0].3, "must be of type array");
        let text = GOOD.replace("    name: web\n", "");
        assert_eq!(found(&text)[0].2, "spec.controllerTargetRef.name");
        let text = GOOD.replace("kind: ExecAccessTemplate", "kind: ExecTemplate");
        assert_eq!(found(&text)[0].1, "kind");
        assert_eq!(found("a: [")[0].1, "yaml");
    }

    #[test]
    fn every_example_of_the_repository_is_clean_but_the_bad_one() {
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let mut checked = 0;
        for entry in std::fs::read_dir(examples).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let (count, findings) = check(&name, &text, now());
                checked += count;
                assert_eq!(
                    !findings.is_empty(),
                    name.starts_with("bad_"),
                    "{findings:?}"
                );
            }
        }
        assert!(checked > 5);
    }
}
