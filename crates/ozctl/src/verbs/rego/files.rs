//! The files of a Rego policy, and of its input.

use std::path::Path;

use oz_rego::Policy;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::rego;

/// Returns the modules in files, and in folders all files that end in `.rego`, in the order of
/// their names.
pub(super) fn modules(named: &[String], with_tests: bool) -> Result<Vec<(String, String)>> {
    let mut paths = Vec::new();
    for name in named {
        if Path::new(name).is_dir() {
            walk(Path::new(name), &mut paths).map_err(|error| unread(name, &error))?;
        } else {
            paths.push(name.clone());
        }
    }
    paths.sort();
    paths.dedup();
    if !with_tests {
        paths.retain(|path| !path.ends_with("_test.rego"));
    }
    if paths.is_empty() {
        return Err(Failure::new("no file of a policy was found")
            .next("name files, or directories with files that end in .rego"));
    }
    let read = paths.into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).map_err(|error| unread(&path, &error))?;
        Ok((path, text))
    });
    read.collect()
}

fn walk(folder: &Path, files: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        // A link to a folder could lead in a circle.
        if kind.is_dir() {
            walk(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "rego")
        {
            files.push(path.display().to_string());
        }
    }
    Ok(())
}

/// Returns the Rego policy in files.
pub(super) fn policy(named: &[String], with_tests: bool) -> Result<Policy> {
    let modules = modules(named, with_tests)?;
    Ok(rego::compile(&modules)?)
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
