//! The examples of composites: each says in its header what it needs of the chart's values.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::repository;

/// Where they are, from the root of the repository.
pub const EXAMPLES: &str = "examples/composites";

/// The texts of the examples, by their names.
///
/// # Errors
/// When one cannot be read.
pub fn examples() -> Result<BTreeMap<String, String>> {
    let mut examples = BTreeMap::new();
    for entry in std::fs::read_dir(repository().join(EXAMPLES))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        examples.insert(name.into_owned(), std::fs::read_to_string(&path)?);
    }
    Ok(examples)
}

/// The values that the header of an example names.
///
/// # Errors
/// When it names none.
pub fn example_values(text: &str) -> Result<Value> {
    let header = text.lines().map_while(|line| line.strip_prefix('#'));
    let values = header.skip_while(|line| !line.starts_with(" Values of oz's chart:"));
    let values: Vec<&str> = values.skip(1).collect();
    serde_saphyr::from_str(&values.join("\n")).context("its header names no values")
}
