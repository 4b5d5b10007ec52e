//! The path of a mount, read once: the path that is compared with oz's own is the one that the pod gets.

use std::fmt;

use serde_json::{Value, json};

/// The folders of oz and of images, in which no workspace is mounted.
const TAKEN: [&str; 7] = [
    "/paddock", "/proc", "/sys", "/dev", "/etc", "/var/run", "/run",
];

/// An absolute path without empty parts, `.` and `..`, and without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountPath(String);

impl MountPath {
    /// Reads a path as the kernel does; `None` for one that is not absolute, leaves itself by `..`, or has what Kubernetes
    /// allows in none.
    pub(super) fn new(text: &str) -> Option<Self> {
        let is_odd = text.contains(':') || text.chars().any(char::is_control);
        if is_odd || !text.starts_with('/') {
            return None;
        }
        let parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
        let parts: Vec<&str> = parts.collect();
        (!parts.contains(&"..")).then(|| Self(format!("/{}", parts.join("/"))))
    }

    /// Reads the path of a workspace; `None` for the root and for the folders of oz and of images.
    pub(super) fn of_workspace(text: &str) -> Option<Self> {
        let path = Self::new(text)?;
        (!path.is_root() && !TAKEN.iter().any(|taken| path.is_within(taken))).then_some(path)
    }

    /// Checks whether it is this folder or lies below it.
    pub(super) fn is_within(&self, folder: &str) -> bool {
        let rest = self.0.strip_prefix(folder);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    pub(super) fn is_root(&self) -> bool {
        self.0 == "/"
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Replaces the path of each mount by the one that was read.
pub(super) fn normalize(mounts: &mut Value) {
    for mount in mounts.as_array_mut().into_iter().flatten() {
        if let Some(path) = mount["mountPath"].as_str().and_then(MountPath::new) {
            mount["mountPath"] = json!(path.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<String> {
        MountPath::new(text).map(|path| path.to_string())
    }

    #[test]
    fn path_has_one_spelling() {
        for (text, expected) in [
            ("/paddock", Some("/paddock")),
            ("//paddock", Some("/paddock")),
            ("/./paddock/", Some("/paddock")),
            ("/paddock/.//prompt/.", Some("/paddock/prompt")),
            ("/", Some("/")),
            ("//.", Some("/")),
            ("/a/..", None),
            ("/a/../paddock", None),
            ("a", None),
            ("", None),
            ("/a:b", None),
            ("/a\nb", None),
            // Names of files, though they look odd.
            ("/...", Some("/...")),
            ("/ /paddock", Some("/ /paddock")),
        ] {
            assert_eq!(read(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn path_lies_in_a_folder_by_whole_parts() {
        let is_within = |path: &str, folder: &str| MountPath::new(path).unwrap().is_within(folder);
        assert!(is_within("/paddock", "/paddock") && is_within("//paddock/x", "/paddock"));
        assert!(!is_within("/paddocks", "/paddock") && !is_within("/a/paddock", "/paddock"));
    }

    proptest! {
        /// The kernel ignores empty parts and dots, wherever they stand.
        #[test]
        fn spelling_of_a_path_changes_nothing(
            parts in prop::collection::vec("[a-c.]{1,3}", 1..5),
            fill in prop::collection::vec("(/|/\\./|//|/\\.//)", 5),
        ) {
            let plain = format!("/{}", parts.join("/"));
            let odd: String = fill.iter().zip(&parts).map(|(fill, part)| format!("{fill}{part}")).collect();
            prop_assert_eq!(read(&odd), read(&plain));
            if let Some(once) = read(&plain) {
                prop_assert_eq!(read(&once), Some(once));
            }
        }
    }
}
