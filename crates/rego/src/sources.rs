//! The texts of a policy: modules, and documents below `data`, as OPA reads a folder.

use serde_json::{Map, Value};

use crate::bounds::MAX_BYTES;
use crate::builtins;
use crate::error::{CompileError, CompileErrors, Reason};

/// The suffixes of the names of documents.
const DOCUMENTS: [&str; 3] = [".json", ".yaml", ".yml"];
/// The maximum number of documents of one policy.
pub const MAX_DOCUMENTS: usize = 256;

/// Checks whether a text of this name is a document below `data`, and not a module.
#[must_use]
pub fn is_document(name: &str) -> bool {
    DOCUMENTS.iter().any(|suffix| name.ends_with(suffix))
}

/// A document, with the name of its text.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) name: String,
    pub(crate) content: Map<String, Value>,
}

/// Modules, each with its name and text.
type Modules = Vec<(String, String)>;

/// Splits the texts of a policy into its modules, and its documents, which are parsed.
pub(crate) fn split(texts: &[(String, String)]) -> Result<(Modules, Vec<Document>), CompileErrors> {
    let (documents, modules): (Vec<_>, Vec<_>) = texts
        .iter()
        .cloned()
        .partition(|(name, _)| is_document(name));
    let size: usize = documents.iter().map(|(_, text)| text.len()).sum();
    let count = documents.len();
    let whole = |message: String| CompileErrors::one(CompileError::whole(Reason::Size, message));
    if count > MAX_DOCUMENTS {
        return Err(whole(format!(
            "{count} documents below `data`: a policy has {MAX_DOCUMENTS} at most"
        )));
    }
    if size > MAX_BYTES {
        return Err(whole(format!(
            "{size} bytes of documents below `data`: a policy has {MAX_BYTES} at most, all documents together"
        )));
    }
    let mut errors = Vec::new();
    let mut parsed = Vec::new();
    for (name, text) in documents {
        match parse(&name, &text) {
            Ok(content) => parsed.push(Document { name, content }),
            Err(message) => errors.push(error(&name, message)),
        }
    }
    CompileErrors::all(errors).map(|()| (modules, parsed))
}

/// Parses a document. Both parsers limit the nesting, and that of YAML the number of aliases.
fn parse(name: &str, text: &str) -> Result<Map<String, Value>, String> {
    let parsed = match name.ends_with(".json") {
        true => serde_json::from_str(text).map_err(|error| error.to_string()),
        false => builtins::yaml_document(text),
    };
    match parsed.map_err(|error| format!("cannot be read: {error}"))? {
        Value::Object(content) => Ok(content),
        _ => Err("is not an object: the keys of a document are names below `data`".to_owned()),
    }
}

/// Merges documents. Two documents may define parts of the same object, but no name twice.
pub(crate) fn merged(documents: Vec<Document>) -> Result<Value, CompileErrors> {
    let mut all = Map::new();
    let mut errors = Vec::new();
    for Document { name, content } in documents {
        let mut path = vec!["data".to_owned()];
        if let Err(path) = merge(&mut all, content, &mut path) {
            errors.push(error(
                &name,
                format!("{path} is defined by another document, too"),
            ));
        }
    }
    CompileErrors::all(errors).map(|()| match all.is_empty() {
        true => Value::Null,
        false => Value::Object(all),
    })
}

/// Merges one object into another. An error is the path that both define.
fn merge(
    into: &mut Map<String, Value>,
    from: Map<String, Value>,
    path: &mut Vec<String>,
) -> Result<(), String> {
    for (key, value) in from {
        path.push(key.clone());
        match (into.get_mut(&key), value) {
            (None, value) => {
                into.insert(key, value);
            }
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from, path)?,
            (Some(_), _) => return Err(path.join(".")),
        }
        path.pop();
    }
    Ok(())
}

/// Returns an error of a document.
pub(crate) fn error(name: &str, message: String) -> CompileError {
    CompileError {
        file: name.to_owned(),
        line: 0,
        column: 0,
        reason: Reason::Data,
        message,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn data(texts: &[(&str, &str)]) -> Result<Value, String> {
        let texts: Vec<_> = texts
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        let data = split(&texts).and_then(|(_, documents)| merged(documents));
        data.map_err(|errors| errors.to_string())
    }

    #[test]
    fn documents_are_merged_below_data() {
        assert_eq!(data(&[("p.rego", "package p")]), Ok(Value::Null));
        let found = data(&[
            ("a/limits.json", r#"{"config": {"limits": {"hours": 4}}}"#),
            (
                "b/more.yaml",
                "config:\n  groups: [devs]\nteams: {shop: 1}\n",
            ),
        ]);
        let all = json!({
            "config": {"limits": {"hours": 4}, "groups": ["devs"]}, "teams": {"shop": 1},
        });
        assert_eq!(found, Ok(all));
    }

    #[test]
    fn unusable_documents_are_refused_by_name() {
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        let deep_yaml = format!("a: {}{}", "[".repeat(10_000), "]".repeat(10_000));
        let large = format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_BYTES));
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = format!("*a{}, ", level - 1).repeat(10);
            bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        let pair = |one: &'static str, other: &'static str| {
            vec![
                ("one.json", one.to_owned()),
                ("other.yaml", other.to_owned()),
            ]
        };
        for (texts, why) in [
            (vec![("a.json", "{".to_owned())], "a.json: cannot be read: "),
            (
                vec![("a.json", "[1]".to_owned())],
                "a.json: is not an object",
            ),
            (vec![("a.yaml", "3".to_owned())], "a.yaml: is not an object"),
            (
                vec![("a.yaml", "a: [".to_owned())],
                "a.yaml: cannot be read: ",
            ),
            (vec![("a.json", deep)], "a.json: cannot be read: "),
            (vec![("a.yml", deep_yaml)], "a.yml: cannot be read: "),
            (vec![("a.yaml", bomb)], "a.yaml: cannot be read: "),
            (vec![("a.json", large)], "bytes of documents"),
            (
                pair(r#"{"a": 1}"#, "a: 1"),
                "other.yaml: data.a is defined by another",
            ),
            (
                pair(r#"{"a": {"b": 1}}"#, "a: {b: {}}"),
                "data.a.b is defined by another",
            ),
            (
                pair(r#"{"a": {"b": {}}}"#, "a: 1"),
                "data.a is defined by another",
            ),
        ] {
            let texts: Vec<_> = texts.iter().map(|(name, text)| (*name, &**text)).collect();
            let error = data(&texts).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        let many: Vec<_> = (0..=MAX_DOCUMENTS).map(|_| ("a.json", "{}")).collect();
        assert!(data(&many).unwrap_err().contains("257 documents"));
    }
}
