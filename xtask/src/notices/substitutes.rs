//! Standard licence texts for crates with packages that contain none, from `xtask/licenses`, each with a reason.

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::Library;
use super::texts::Text;

/// The list of crates.
const LIST: &str = include_str!("../../licenses/crates.yaml");
/// The text of Apache-2.0, which is the licence of this repository.
const APACHE: &str = include_str!("../../../LICENSE");
const LGPL: &str = include_str!("../../licenses/LGPL-2.1-or-later.txt");
const MIT: &str = include_str!("../../licenses/MIT.txt");
/// The place of the copyright line in the text of MIT.
const COPYRIGHT: &str = "<copyright>";

/// An entry of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Substitute {
    crates: Vec<String>,
    license: String,
    copyright: Option<String>,
    reason: String,
}

/// Reads the list.
pub(super) fn read() -> Result<Vec<Substitute>> {
    parse(LIST)
}

pub(super) fn parse(list: &str) -> Result<Vec<Substitute>> {
    let entries: Vec<Substitute> =
        serde_saphyr::from_str(list).context("failed to parse xtask/licenses/crates.yaml")?;
    for entry in &entries {
        if entry.reason.trim().is_empty() {
            bail!(
                "xtask/licenses/crates.yaml: the entry of {:?} has no reason",
                entry.crates
            );
        }
    }
    Ok(entries)
}

impl Substitute {
    pub(super) fn is_for(&self, name: &str) -> bool {
        self.crates.iter().any(|it| it == name)
    }

    /// Returns the standard text for a crate with this licence, with the copyright line.
    pub(super) fn text(&self, license: Option<&str>) -> Result<Text> {
        let license = license.context("it has neither a licence nor a licence text")?;
        let chosen = &self.license;
        let mut names = license.split([' ', '/', '(', ')']);
        ensure!(
            names.any(|name| name == chosen),
            "its licence is {license}, and its entry says {chosen}"
        );
        let content = match (chosen.as_str(), &self.copyright) {
            ("Apache-2.0", None) => APACHE.to_owned(),
            ("MIT", Some(holder)) => MIT.replace(COPYRIGHT, holder),
            ("MIT", None) => bail!("its entry lacks `copyright`, a line of the text of MIT"),
            _ => bail!("its entry needs a text of {chosen}, which xtask/licenses lacks"),
        };
        Ok(Text::new(&format!("standard text of {chosen}"), &content))
    }
}

/// Returns the texts of a library that is no crate.
pub(super) fn of_library(library: &Library) -> Result<Vec<Text>> {
    let holder = "Copyright (c) The Rust Project Contributors";
    let mut texts = Vec::new();
    for name in library.license.split(" OR ") {
        let content = match name {
            "LGPL-2.1-or-later" => LGPL.to_owned(),
            "MIT" => MIT.replace(COPYRIGHT, holder),
            "Apache-2.0" => APACHE.to_owned(),
            other => bail!("failed to find a text of {other} for {}", library.name),
        };
        texts.push(Text::new(&format!("standard text of {name}"), &content));
    }
    Ok(texts)
}
