//! The Kubernetes versions that a cluster can have.

use anyhow::{Context as _, Result, bail};

use crate::compile::Module;
use crate::modules::{KUBERNETES, KUBERNETES_1_30, KUBERNETES_1_37};

/// The variable that names the Kubernetes version of clusters, such as `1.30`.
const VARIABLE: &str = "OZ_KUBERNETES";

/// A Kubernetes version that a cluster can have: the oldest and the newest one that oz supports, and the one that all
/// tests run on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kubernetes {
    /// The oldest supported version.
    Oldest,
    /// The version of all tests, [`KUBERNETES_VERSION`](crate::KUBERNETES_VERSION).
    #[default]
    Usual,
    /// The newest supported version.
    Newest,
}

impl Kubernetes {
    /// All versions.
    pub const ALL: [Self; 3] = [Self::Oldest, Self::Usual, Self::Newest];

    /// Returns the version that the variable `OZ_KUBERNETES` names, or [`Kubernetes::Usual`] if it is unset or empty.
    ///
    /// # Errors
    ///
    /// Fails when the variable names another version.
    pub fn from_environment() -> Result<Self> {
        named().map_or(Ok(Self::default()), |name| Self::find(&name))
    }

    fn find(name: &str) -> Result<Self> {
        let name = name.strip_prefix('v').unwrap_or(name);
        let mut all = Self::ALL.into_iter();
        let found = all.find(|one| one.version() == name || one.minor_version() == name);
        let Some(found) = found else {
            let known = Self::ALL.map(Self::minor_version).join(", ");
            bail!("failed to choose a Kubernetes version: {VARIABLE}={name} is none of {known}");
        };
        Ok(found)
    }

    /// Returns the version, such as `1.30.14`.
    #[must_use]
    pub const fn version(self) -> &'static str {
        self.module().version
    }

    /// Returns the version without the patch, such as `1.30`.
    #[must_use]
    pub fn minor_version(self) -> &'static str {
        let version = self.version();
        version.rsplit_once('.').map_or(version, |(minor, _)| minor)
    }

    /// Returns the module that pins the programs of the version.
    pub(crate) const fn module(self) -> &'static Module {
        match self {
            Self::Oldest => &KUBERNETES_1_30,
            Self::Usual => &KUBERNETES,
            Self::Newest => &KUBERNETES_1_37,
        }
    }
}

/// Returns the content of [`VARIABLE`], unless it is empty.
pub(crate) fn named() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())
}

/// Returns the minor version in `version`, such as 30 in `v1.30.14`.
pub(crate) fn minor(version: &str) -> Result<u32> {
    let mut parts = version.trim().split('.');
    let is_version_1 = parts.next().is_some_and(|major| major.ends_with("v1"));
    let minor = parts.next().filter(|_| is_version_1);
    minor
        .and_then(|minor| minor.parse().ok())
        .with_context(|| format!("failed to read the Kubernetes version in {version:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_found_with_and_without_patch() {
        for (name, version) in [
            ("1.30", "1.30.14"),
            ("1.30.14", "1.30.14"),
            ("v1.37", "1.37.2"),
            ("1.35", crate::KUBERNETES_VERSION),
        ] {
            assert_eq!(Kubernetes::find(name).unwrap().version(), version, "{name}");
        }
        for name in ["1.29", "1.3", "1.30.1", "30", "latest"] {
            let error = Kubernetes::find(name).unwrap_err().to_string();
            assert!(error.contains("1.30, 1.35, 1.37"), "{error}");
        }
    }

    #[test]
    fn minor_version_is_read_from_what_programs_and_servers_report() {
        for (text, expected) in [
            ("Kubernetes v1.30.14\n", Some(30)),
            ("v1.35.4", Some(35)),
            ("v1.33.5-eks-113cf36", Some(33)),
            ("v2.1.0", None),
            ("v1", None),
            ("", None),
        ] {
            assert_eq!(minor(text).ok(), expected, "{text}");
        }
    }

    /// Returns the text of a file of the repository.
    fn text(path: &str) -> String {
        std::fs::read_to_string(crate::repository().join(path)).unwrap()
    }

    #[test]
    fn documentation_and_chart_name_the_versions_that_tests_run_on() {
        let [oldest, usual, newest] = Kubernetes::ALL.map(Kubernetes::minor_version);
        let page = text("docs/reference/kubernetes.md");
        for version in Kubernetes::ALL {
            let row = format!("| {} | {}", version.minor_version(), version.version());
            assert!(page.contains(&row), "no row {row}");
        }
        let since = format!("Kubernetes {oldest} and newer");
        let tested = format!("tested on {oldest}, {usual} and {newest}");
        for (path, facts) in [
            ("docs/reference/kubernetes.md", &[&since][..]),
            ("docs/guides/install.md", &[&since]),
            (
                "README.md",
                &[&tested, &format!("Kubernetes:** {oldest} and newer")],
            ),
        ] {
            let words = text(path);
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            for fact in facts {
                assert!(words.contains(fact.as_str()), "{path} lacks: {fact}");
            }
        }
        let chart = text("charts/oz/Chart.yaml");
        let required = format!("kubeVersion: \">={oldest}.0-0\"");
        assert!(chart.lines().any(|line| line == required), "{required}");
        let makefile = text("Makefile");
        let versions = format!("VERSIONS := {oldest} {newest}");
        assert!(makefile.lines().any(|line| line == versions), "{versions}");
    }
}
