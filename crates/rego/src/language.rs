//! The versions of Rego.
//! See <https://www.openpolicyagent.org/docs/v0-upgrade>.

/// The version of Rego in which a policy is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// The language since OPA 1.0.
    V1,
    /// The language before OPA 1.0, for modules that do not import `rego.v1` or `future.keywords`.
    V0,
}

impl std::fmt::Display for Language {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V0 => "v0",
        })
    }
}
