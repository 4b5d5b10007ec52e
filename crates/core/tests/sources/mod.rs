//! The source files that tests of the whole tree read.

use std::fs;
use std::path::{Path, PathBuf};

/// Adds the Rust files below a directory to `found`, without those with a name that `skips` selects.
pub(crate) fn find(directory: &Path, skips: &dyn Fn(&str) -> bool, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if skips(name) {
            continue;
        }
        if path.is_dir() {
            find(&path, skips, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}
