//! Policies that an earlier version of oz accepted, and that this version refuses. The status keeps the digest of such a
//! policy with the version that accepted it, so that the condition can name both versions, also after further upgrades.

use oz_api::composite::CompositeControllerStatus;

/// Reason of a composite with a policy that does not compile.
pub const POLICY_INVALID: &str = "PolicyInvalid";

/// This version of oz.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The refusal of a policy that an earlier version of oz accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The first version that refused the policy.
    pub(crate) since: String,
    /// The last version that accepted it, if the status names one.
    accepted_by: Option<String>,
}

impl Refused {
    /// Compares the status with the digest of a policy that this version refuses. Returns `None` if no earlier version
    /// is known to have accepted the same policy.
    pub(crate) fn find(
        status: Option<&CompositeControllerStatus>,
        digest: Option<&str>,
    ) -> Option<Self> {
        let status = status?;
        let same = digest.is_some() && status.policy_digest.as_deref() == digest;
        let accepted_by = status.policy_version.clone();
        if !same || accepted_by.as_deref() == Some(VERSION) {
            return None;
        }
        let since = status.policy_refused_since.as_deref().unwrap_or(VERSION);
        Some(Self {
            since: since.to_owned(),
            accepted_by,
        })
    }

    /// Returns the message of the condition: the versions before the errors, which may be long.
    pub(crate) fn message(&self, errors: &str) -> String {
        let before = match &self.accepted_by {
            Some(version) => format!("oz {version}"),
            None => "an earlier version".to_owned(),
        };
        format!(
            "refused since oz {}; {before} accepted the same policy, and its children stay: {errors}",
            self.since
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(version: Option<&str>, since: Option<&str>) -> CompositeControllerStatus {
        CompositeControllerStatus {
            policy_digest: Some("sha256:1".to_owned()),
            policy_version: version.map(ToOwned::to_owned),
            policy_refused_since: since.map(ToOwned::to_owned),
            ..CompositeControllerStatus::default()
        }
    }

    fn message(status: Option<&CompositeControllerStatus>, digest: Option<&str>) -> Option<String> {
        Refused::find(status, digest).map(|refused| refused.message("p.rego:1"))
    }

    #[test]
    fn refused_policy_names_the_versions_only_if_an_earlier_one_accepted_it() {
        let one = Some("sha256:1");
        let by_earlier = status(Some("0.0.1"), None);
        let said = message(Some(&by_earlier), one).unwrap();
        assert_eq!(
            said,
            format!(
                "refused since oz {VERSION}; oz 0.0.1 accepted the same policy, and its children stay: p.rego:1"
            )
        );
        let after_upgrades = status(Some("0.0.1"), Some("0.0.2"));
        let said = message(Some(&after_upgrades), one).unwrap();
        assert!(said.starts_with("refused since oz 0.0.2; oz 0.0.1 accepted"));
        let without_version = status(None, None);
        let said = message(Some(&without_version), one).unwrap();
        assert!(said.contains("; an earlier version accepted"));
        for (status, digest) in [
            (None, one),
            (Some(&by_earlier), None),
            (Some(&by_earlier), Some("sha256:2")),
            (Some(&status(Some(VERSION), None)), one),
        ] {
            assert_eq!(message(status, digest), None, "{digest:?}");
        }
    }
}
