//! The guides of the repository: those that tests follow, command by command, and their order. Following them
//! requires a node (`tests/guides`); the tests here check without one that each of them can be followed.

pub mod document;

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::repository;
use document::Block;

/// The guides in the order in which a test follows them on one cluster, and the reader of each. Of a guide
/// with the name of a section, only that section is followed.
pub const ON_A_CLUSTER: [(&str, Option<&str>, &str); 21] = [
    ("install.md", None, "admin"),
    ("ozctl.md", None, "alice"),
    ("sessions.md", None, "alice"),
    ("enforcement.md", None, "admin"),
    ("transient-bindings.md", None, "admin"),
    ("audit.md", None, "admin"),
    ("approvals.md", None, "admin"),
    ("notifications.md", None, "admin"),
    ("evidence.md", None, "admin"),
    ("locks.md", None, "admin"),
    ("policies.md", None, "admin"),
    ("tickets.md", None, "admin"),
    ("on-call-schedules.md", None, "admin"),
    ("emergency.md", None, "admin"),
    ("on-call.md", None, "admin"),
    ("composites.md", None, "admin"),
    ("harness.md", None, "admin"),
    ("credentials.md", None, "admin"),
    ("uninstall.md", Some("By Helm"), "admin"),
    ("install.md", Some("Install the chart"), "admin"),
    ("uninstall.md", Some("By hand"), "admin"),
];
/// The guide that starts a separate cluster.
pub const QUICKSTART: &str = "quickstart.md";

/// Returns the directory of the guides.
#[must_use]
pub fn folder() -> PathBuf {
    repository().join("docs/guides")
}

/// Returns the actions of a guide.
///
/// # Errors
/// When the guide does not exist, or cannot be followed.
pub fn read(guide: &str) -> Result<Vec<Block>> {
    let path = folder().join(guide);
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("failed to read docs/guides/{guide}"))?;
    document::blocks(&text).with_context(|| format!("docs/guides/{guide}"))
}

/// Returns the actions of a guide, or of its sections with this name.
///
/// # Errors
/// When there is no action, or the guide cannot be followed.
pub fn read_section(guide: &str, section: Option<&str>) -> Result<Vec<Block>> {
    let mut blocks = read(guide)?;
    if let Some(section) = section {
        blocks.retain(|block| block.section == section);
        anyhow::ensure!(
            !blocks.is_empty(),
            "docs/guides/{guide} has nothing to do in {section}"
        );
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::document::Content;
    use super::*;

    /// The maximum number of blocks of all guides that may be left out.
    const MOST_NOT_TESTED: usize = 4;

    /// Checks all guides, and the blocks that are left out.
    #[test]
    fn every_guide_is_tested_and_omissions_state_reason() -> Result<()> {
        let mut left_out = Vec::new();
        for entry in std::fs::read_dir(folder())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let blocks = read(&name)?;
            let is_on_a_cluster = ON_A_CLUSTER.iter().any(|(guide, ..)| *guide == name);
            ensure!(
                name == QUICKSTART || is_on_a_cluster || blocks.is_empty(),
                "nobody follows docs/guides/{name}"
            );
            for block in blocks {
                if let Content::NotTested(why) = block.content {
                    left_out.push(format!("docs/guides/{name}:{}: {why}", block.line));
                }
            }
        }
        let list = left_out.join("\n");
        ensure!(
            left_out.len() <= MOST_NOT_TESTED,
            "too much is not tested:\n{list}"
        );
        eprintln!("not tested:\n{list}");
        Ok(())
    }

    #[test]
    fn every_tested_section_contains_steps() -> Result<()> {
        for (guide, section, _) in ON_A_CLUSTER {
            read_section(guide, section)?;
        }
        Ok(())
    }
}
