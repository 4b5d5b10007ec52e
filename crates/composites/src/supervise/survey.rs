//! The survey of a composite: the data that the decision about it requires.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use oz_api::encode::hex;
use oz_core::controller::Failure;
use sha2::{Digest, Sha256};

use crate::declared::Family;
use crate::guard::Tally;

/// Reason of a composite with a kind that the API server does not serve.
pub const KIND_MISSING: &str = "KindMissing";

/// The data about one composite.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The kinds of the composite, as the API server describes them, if it can run with them.
    pub family: Result<Family, Failure>,
    /// The kinds that exist, whether or not the composite can run.
    pub kinds: Kinds,
    /// Whether the parents' status may hold observedGeneration.
    pub observes_generation: bool,
    /// The rights that the account lacks.
    pub lacks: Result<Vec<ResourceAttributes>, Failure>,
    /// The policy that runs in process; `None` for a function behind HTTP.
    pub policy: Option<Result<PolicyFound, Failure>>,
    /// The digest of a policy that does not compile, if its modules exist.
    pub refused: Option<String>,
    /// Number of the parents that the composite holds; `None` if it is unknown.
    pub held: Option<usize>,
    /// The reports of its parents; `None` if they are unknown.
    pub tally: Option<Tally>,
    /// The rights that only the responses of its functions determine.
    pub later: Later,
}

/// The rights that only the responses of functions determine, as far as they are known before a composite runs. The
/// kinds that `customize` selects for the first parent are among the rights that the account lacks.
#[derive(Clone, Debug, Default)]
pub struct Later {
    /// The failure of the call of `customize` for the first parent; `None` if there is no parent.
    pub customize: Option<Failure>,
    /// The rights to bind roles, if the account has none of them, and bindings are among the children.
    pub binds: Vec<ResourceAttributes>,
}

/// The existing kinds of a composite: children expire in these, also if the composite cannot run.
#[derive(Clone, Debug, PartialEq)]
pub enum Kinds {
    /// The kinds are unknown, or the kind of the parents is not served at the moment.
    Unknown,
    /// The kind of the parents has no definition: there are no parents.
    NoParents,
    /// The kinds are served.
    Served {
        /// The family without the kinds of children that are not served.
        family: Family,
        /// Whether an omitted kind has a definition: it may have children that cannot be read now.
        hidden: bool,
    },
}

/// A policy that runs in process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFound {
    /// Digest of its modules.
    pub digest: String,
    /// The language that it is written in.
    pub language: String,
}

impl PolicyFound {
    /// Combines several policies into one, with a digest that changes with each of them; `None` without a policy.
    #[must_use]
    pub fn together(found: &[Self]) -> Option<Self> {
        let of = |part: fn(&Self) -> &String| found.iter().map(part).collect::<BTreeSet<_>>();
        let languages: Vec<&str> = of(|one| &one.language)
            .into_iter()
            .map(String::as_str)
            .collect();
        let digests: Vec<&str> = found.iter().map(|one| one.digest.as_str()).collect();
        Some(Self {
            digest: Self::digest_of(&digests)?,
            language: languages.join(", "),
        })
    }

    /// Returns the digest of several policies together, whether or not they compile; `None` without a policy.
    #[must_use]
    pub fn digest_of(digests: &[&str]) -> Option<String> {
        let different: BTreeSet<&&str> = digests.iter().collect();
        match (different.first(), different.len()) {
            (first, ..=1) => Some((**first?).to_owned()),
            _ => {
                let all = digests.join("\n");
                Some(format!("sha256:{}", hex(&Sha256::digest(all))))
            }
        }
    }
}
