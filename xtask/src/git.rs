//! The state of the repository, as git reports it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The revision of the sources: the commit, with `-dirty` if files differ from it. None outside of a repository of git.
pub(crate) fn revision(root: &Path) -> Result<Option<String>> {
    if !root.join(".git").exists() {
        return Ok(None);
    }
    let commit = git(root, &["rev-parse", "HEAD"])?;
    let dirty = if changes(root)?.is_empty() {
        ""
    } else {
        "-dirty"
    };
    Ok(Some(format!("{}{dirty}", commit.trim())))
}

/// Returns the files that differ from the commit, or are not in it.
pub(crate) fn changes(root: &Path) -> Result<Vec<String>> {
    lines(root, &["status", "--porcelain", "--untracked-files=all"])
}

/// Returns the tags of the current commit.
pub(crate) fn tags(root: &Path) -> Result<Vec<String>> {
    lines(root, &["tag", "--points-at", "HEAD"])
}

/// Checks whether a tag exists, at any commit.
pub(crate) fn has_tag(root: &Path, tag: &str) -> Result<bool> {
    Ok(!git(root, &["tag", "--list", tag])?.trim().is_empty())
}

/// Returns the address of the web page of the remote `origin`, if it has one.
pub(crate) fn origin(root: &Path) -> Option<String> {
    let remote = git(root, &["remote", "get-url", "origin"]).ok()?;
    web_address(remote.trim())
}

/// Returns the web page of a remote: `https://host/owner/name`, without credentials.
fn web_address(remote: &str) -> Option<String> {
    let (host, path) = if let Some(rest) = remote.strip_prefix("https://") {
        rest.split_once('/')?
    } else if let Some(rest) = remote.strip_prefix("ssh://") {
        rest.split_once('/')?
    } else {
        remote.strip_prefix("git@")?.split_once(':')?
    };
    let host = host.rsplit('@').next()?;
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    (host.contains('.') && !path.is_empty()).then(|| format!("https://{host}/{path}"))
}

fn lines(root: &Path, arguments: &[&str]) -> Result<Vec<String>> {
    let said = git(root, arguments)?;
    Ok(said.lines().map(ToOwned::to_owned).collect())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let command = format!("git {}", arguments.join(" "));
    let output = Command::new("git")
        .current_dir(root)
        // Root builds in repositories of other users; git refuses them by default.
        .args(["-c", "safe.directory=*"])
        .args(arguments)
        .output()
        .with_context(|| format!("failed to run {command}"))?;
    ensure!(
        output.status.success(),
        "failed to run {command}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).with_context(|| format!("{command}: not UTF-8"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a repository with one commit of the files in `root`.
    pub(crate) fn commit(root: &Path) {
        git(root, &["init", "--quiet"]).unwrap();
        git(root, &["add", "."]).unwrap();
        let commit = [
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@example.test",
            "-c",
            "commit.gpgsign=false",
            "commit",
            "--quiet",
            "--message=test",
        ];
        git(root, &commit).unwrap();
    }

    /// Creates a tag at the current commit.
    pub(crate) fn tag(root: &Path, name: &str) {
        git(root, &["-c", "tag.gpgsign=false", "tag", name]).unwrap();
    }

    #[test]
    fn revision_shows_files_that_differ() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        assert_eq!(revision(root).unwrap(), None);
        std::fs::write(root.join("file"), "one").unwrap();
        commit(root);
        let clean = revision(root).unwrap().unwrap();
        assert_eq!(clean.len(), 40);
        std::fs::write(root.join("file"), "two").unwrap();
        assert_eq!(revision(root).unwrap(), Some(format!("{clean}-dirty")));
        assert_eq!(changes(root).unwrap(), [" M file"]);
        assert!(!has_tag(root, "v1").unwrap());
        tag(root, "v1");
        assert!(has_tag(root, "v1").unwrap());
        assert_eq!(tags(root).unwrap(), ["v1"]);
    }

    #[test]
    fn web_address_has_no_credentials() {
        for (remote, address) in [
            (
                "https://github.com/a/oz.git",
                Some("https://github.com/a/oz"),
            ),
            (
                "https://user:secret@github.com/a/oz/",
                Some("https://github.com/a/oz"),
            ),
            ("git@github.com:a/oz.git", Some("https://github.com/a/oz")),
            ("ssh://git@github.com/a/oz", Some("https://github.com/a/oz")),
            ("/srv/oz.git", None),
            ("../oz", None),
            ("https://host/", None),
        ] {
            assert_eq!(web_address(remote).as_deref(), address, "{remote}");
        }
    }
}
