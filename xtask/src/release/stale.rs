//! Generated files that differ from their sources.

use std::path::Path;

use anyhow::Result;

use crate::{generate, workshop};

/// Returns a fault for each stale file. The pages of ozctl are compared by the workshop, which depends on ozctl.
pub(crate) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = generate::stale(root)?
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    names.extend(names_of(&workshop::output("pages", &["--check"])?));
    Ok(names
        .iter()
        .map(|name| format!("{name} is stale: run `make generate`"))
        .collect())
}

/// Returns the names in the lines of `--check`: `stale: NAME; NEXT STEP`.
fn names_of(output: &str) -> Vec<String> {
    let lines = output.lines();
    let names = lines.filter_map(|line| line.strip_prefix("stale: ")?.split(';').next());
    names.map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_stale_files_are_read() {
        let output = "stale: docs/man/ozctl.1; run `make generate`\nother\n";
        assert_eq!(names_of(output), ["docs/man/ozctl.1"]);
        assert_eq!(names_of(""), [""; 0]);
    }
}
