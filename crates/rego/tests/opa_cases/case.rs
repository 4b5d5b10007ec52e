//! A case of OPA's: modules, documents and an input, with OPA's answer to a query.

use std::path::{Path, PathBuf};

use oz_rego::Language;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

/// The fields that OPA's own test reads.
#[derive(Deserialize)]
pub(crate) struct Case {
    /// The language and the note, with a number if several cases have the same.
    #[serde(skip)]
    pub(crate) name: String,
    #[serde(skip, default = "v1")]
    pub(crate) language: Language,
    pub(crate) note: String,
    pub(crate) query: String,
    #[serde(default)]
    pub(crate) modules: Vec<String>,
    #[serde(default)]
    pub(crate) data: Value,
    #[serde(default)]
    pub(crate) input: Option<Value>,
    #[serde(default)]
    pub(crate) input_term: Option<String>,
    #[serde(default)]
    pub(crate) want_result: Option<Vec<Value>>,
    #[serde(default)]
    pub(crate) want_error_code: Option<String>,
    #[serde(default)]
    pub(crate) want_error: Option<String>,
    #[serde(default)]
    pub(crate) sort_bindings: bool,
    #[serde(default)]
    pub(crate) strict_error: bool,
}

fn v1() -> Language {
    Language::V1
}

/// Loads all cases of a folder, in the order of their names.
pub(crate) fn load(folder: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for language in [Language::V0, Language::V1] {
        let mut files = Vec::new();
        list(&folder.join(language.to_string()), &mut files);
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let read: Cases = serde_saphyr::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            cases.extend(read.cases.into_iter().map(|case| Case { language, ..case }));
        }
    }
    name(&mut cases);
    cases
}

fn name(cases: &mut [Case]) {
    let mut seen = std::collections::BTreeMap::new();
    for case in cases {
        let name = format!("{}/{}", case.language, case.note);
        let count = seen.entry(name.clone()).or_insert(0_u32);
        *count += 1;
        case.name = match count {
            1 => name,
            _ => format!("{name} ({count})"),
        };
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, files);
        } else if path
            .extension()
            .is_some_and(|ext| ext == "yaml" || ext == "yml")
        {
            files.push(path);
        }
    }
}
