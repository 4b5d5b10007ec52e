//! The files of a Rego policy, and of its input.

use std::path::Path;

use oz_rego::Policy;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::rego;

/// Returns the modules and documents in files. Of folders, those are the files that end in `.rego`, in `.json` and in
/// `.yaml`; the folders below are names below `data`, as in OPA. Manifests of Kubernetes are no documents.
pub(super) fn texts(named: &[String], with_tests: bool) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for name in named {
        let path = Path::new(name);
        if path.is_dir() {
            walk(path, &mut Vec::new(), &mut found).map_err(|error| unread(name, &error))?;
        } else {
            found.push((name.clone(), Vec::new()));
        }
    }
    found.sort();
    // One that is named as well as found is at the root.
    found.dedup_by(|later, first| later.0 == first.0);
    if !with_tests {
        found.retain(|(path, _)| !path.ends_with("_test.rego"));
    }
    if found.iter().all(|(path, _)| oz_rego::is_document(path)) {
        return Err(Failure::new("no file of a policy was found")
            .next("name files, or directories with files that end in .rego"));
    }
    let mut texts = Vec::new();
    for (path, folders) in found {
        let text = std::fs::read_to_string(&path).map_err(|error| unread(&path, &error))?;
        let is_named = named.contains(&path);
        if !oz_rego::is_document(&path) || is_named {
            texts.push((path, text));
        } else if !is_manifest(&text) {
            let text = below(folders, text);
            texts.push((path, text));
        }
    }
    Ok(texts)
}

/// Adds the files in a folder, each with the folders between.
fn walk(
    folder: &Path,
    between: &mut Vec<String>,
    files: &mut Vec<(String, Vec<String>)>,
) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name().to_string_lossy().into_owned();
        // A mounted ConfigMap has a hidden folder with its files, to which its other entries are links.
        if name.starts_with("..") {
            continue;
        }
        // A link to a folder could lead in a circle.
        if kind.is_dir() {
            between.push(name);
            walk(&path, between, files)?;
            between.pop();
            continue;
        }
        let path = path.display().to_string();
        if path.ends_with(".rego") || oz_rego::is_document(&path) {
            files.push((path, between.clone()));
        }
    }
    Ok(())
}

/// Checks whether a text is a manifest of Kubernetes, or several: it names an API version and a kind.
fn is_manifest(text: &str) -> bool {
    let first = text.split("\n---").find(|part| !part.trim().is_empty());
    let Some(Ok(first)) = first.map(rego::document) else {
        return false;
    };
    ["apiVersion", "kind"]
        .iter()
        .all(|key| first[*key].is_string())
}

/// Returns a document as the value of the names of its folders. One that cannot be read stays as it is, and is reported
/// when the policy is compiled.
fn below(folders: Vec<String>, text: String) -> String {
    if folders.is_empty() {
        return text;
    }
    let Ok(document) = rego::document(&text) else {
        return text;
    };
    let folders = folders.into_iter().rev();
    let nested = folders.fold(document, |value, name| json!({ name: value }));
    nested.to_string()
}

/// Returns the Rego policy in files.
pub(super) fn policy(named: &[String], with_tests: bool) -> Result<Policy> {
    let texts = texts(named, with_tests)?;
    Ok(rego::compile(&texts)?)
}

/// Reads a document of YAML or JSON.
pub(super) fn document(path: &str) -> Result<Value> {
    let text = match path {
        "-" => std::io::read_to_string(std::io::stdin()),
        path => std::fs::read_to_string(path),
    };
    let text = text.map_err(|error| unread(path, &error))?;
    rego::document(&text).map_err(|error| Failure::new(format!("{path}: {error}")))
}

fn unread(path: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("failed to read {path}: {error}"))
}
