//! `SHA256SUMS`: the digests of all files of a release, for `sha256sum -c`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::digest::digest;

/// The name of the file.
pub(crate) const FILE: &str = "SHA256SUMS";

/// Returns the names of the files in a directory, without that of the sums.
///
/// # Errors
/// When the directory contains another directory: a release is a flat list of files.
pub(crate) fn files(directory: &Path) -> Result<Vec<String>> {
    let failed = || format!("failed to list {}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type().with_context(failed)?.is_file() {
            bail!("{} is no file: remove it", entry.path().display());
        }
        if name != FILE {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Returns the content of the file: a line for each file of the directory.
pub(crate) fn sums(directory: &Path) -> Result<String> {
    let mut text = String::new();
    for name in files(directory)? {
        text += &format!("{}  {name}\n", digest(&directory.join(&name))?);
    }
    Ok(text)
}

/// Returns the differences between the files of a directory and the sums in it.
pub(crate) fn faults(directory: &Path) -> Result<Vec<String>> {
    let path = directory.join(FILE);
    let text =
        fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    let listed: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(digest, name)| (name, digest))
        .collect();
    let files = files(directory)?;
    let mut faults = Vec::new();
    for name in &files {
        match listed.get(name.as_str()) {
            None => faults.push(format!("{FILE} does not list {name}")),
            Some(listed) if digest(&directory.join(name))? != **listed => {
                faults.push(format!("{name} differs from its digest in {FILE}"));
            }
            Some(_) => {}
        }
    }
    for name in listed
        .keys()
        .filter(|name| !files.iter().any(|it| it == *name))
    {
        faults.push(format!("{FILE} lists {name}, which does not exist"));
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn is_accepted(directory: &Path) -> bool {
        Command::new("sha256sum")
            .args(["--check", "--strict", "--quiet", FILE])
            .current_dir(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    }

    #[test]
    fn changed_byte_missing_and_unlisted_file_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for name in ["b.tgz", "a.yaml"] {
            fs::write(path.join(name), name).unwrap();
        }
        let text = sums(path).unwrap();
        fs::write(path.join(FILE), &text).unwrap();
        assert_eq!(sums(path).unwrap(), text);
        assert!(text.lines().next().unwrap().ends_with("  a.yaml"));
        assert_eq!(faults(path).unwrap(), [""; 0]);
        assert!(is_accepted(path));
        fs::write(path.join("b.tgz"), "b.tgy").unwrap();
        assert_eq!(
            faults(path).unwrap(),
            ["b.tgz differs from its digest in SHA256SUMS"]
        );
        assert!(!is_accepted(path));
        fs::remove_file(path.join("b.tgz")).unwrap();
        fs::write(path.join("c"), "c").unwrap();
        let expected = [
            "SHA256SUMS does not list c",
            "SHA256SUMS lists b.tgz, which does not exist",
        ];
        assert_eq!(faults(path).unwrap(), expected);
    }
}
