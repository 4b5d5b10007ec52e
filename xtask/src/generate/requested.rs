//! The kinds that users request, written into the admission policy and the role that cover all of them. The
//! rest of these files is written by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

const POLICY: &str = "deploy/policies/deletions.yaml";
const ROLES: &str = "deploy/rbac/users.yaml";
const BEGIN: &str =
    "# Generated from crates/core/src/kinds/requested.rs by `cargo xtask generate`.\n";
const END: &str = "# End of the generated part.\n";

/// Returns the files with the list in them: their paths from the root of the repository, and their texts.
pub(super) fn files(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in oz_core::kinds::requested() {
        groups.entry(kind.group).or_default().push(kind.plural);
    }
    let rules = |indent: &str, rest: &str| -> String {
        let rule = |(group, plurals): (&String, &Vec<String>)| {
            let plurals = plurals.join(", ");
            let rest = rest.replace('\n', &format!("\n{indent}  "));
            format!(
                "{indent}- apiGroups: [{group}]\n{indent}  resources: [{plurals}]\n{indent}  {rest}\n"
            )
        };
        groups.iter().map(rule).collect()
    };
    let matched = rules(
        "      ",
        "apiVersions: [\"*\"]\noperations: [DELETE]\nscope: \"*\"",
    );
    let revoked = rules("  ", "verbs: [get, list, watch, delete, revoke]");
    let mut files = BTreeMap::new();
    for (file, list) in [(POLICY, matched), (ROLES, revoked)] {
        let path = PathBuf::from(file);
        let text = std::fs::read_to_string(root.join(&path))
            .with_context(|| format!("failed to read {file}"))?;
        let text = filled(&text, &list).with_context(|| format!("no place for it in {file}"))?;
        files.insert(path, text);
    }
    Ok(files)
}

/// Replaces the text between the marks by `list`.
fn filled(text: &str, list: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let indent = before.rsplit('\n').next()?;
    Some(format!("{before}{BEGIN}{list}{indent}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_replaces_content_between_markers() {
        let text = format!("a:\n  {BEGIN}  - old\n  {END}b:\n");
        let wanted = format!("a:\n  {BEGIN}  - new\n  {END}b:\n");
        assert_eq!(filled(&text, "  - new\n"), Some(wanted.clone()));
        assert_eq!(filled(&wanted, "  - new\n"), Some(wanted));
        assert_eq!(filled("a:\n", ""), None);
    }
}
