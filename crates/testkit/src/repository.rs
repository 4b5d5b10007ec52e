//! Files of this repository that tests and tasks read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The directory with one example of a composite in each file, relative to [`repository`].
pub const EXAMPLES: &str = "examples/composites";

/// Returns the root of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the texts of the examples by name.
///
/// # Errors
/// When one cannot be read.
pub fn examples() -> Result<BTreeMap<String, String>> {
    let mut examples = BTreeMap::new();
    for entry in std::fs::read_dir(repository().join(EXAMPLES))? {
        let path = entry?.path();
        let name = path.file_stem().context("an example without a name")?;
        let name = name.to_string_lossy().into_owned();
        examples.insert(name, std::fs::read_to_string(&path)?);
    }
    Ok(examples)
}

/// Returns the values that the header of an example names.
///
/// # Errors
/// When the header names no values.
pub fn example_values(text: &str) -> Result<Value> {
    let header = text.lines().map_while(|line| line.strip_prefix('#'));
    let values = header.skip_while(|line| !line.starts_with(" Values of oz's chart:"));
    let values: Vec<&str> = values.skip(1).collect();
    serde_saphyr::from_str(&values.join("\n")).context("its header names no values")
}
