//! Names that users may type for objects of oz's kinds, and for workloads.

use kube::core::ApiResource;
use oz_api::TargetKind;
use oz_core::kinds::{self, Entry, Kind, Role};

use crate::failure::{Failure, Result};

/// The object that a word names: KIND/NAME, or only a name, which may be of any kind.
pub struct Named<'a> {
    kind: Option<Entry>,
    /// The name.
    pub name: &'a str,
}

impl<'a> Named<'a> {
    /// Parses the name of an object of one of the kinds of a role; `None` if the word names another kind.
    pub fn parse(word: &'a str, role: Role) -> Result<Option<Self>> {
        let Some((kind, name)) = word.split_once('/') else {
            let (kind, name) = (None, checked(word)?);
            return Ok(Some(Self { kind, name }));
        };
        let name = checked(name)?;
        let kind = kinds::find(kind).filter(|kind| kind.role == role);
        Ok(kind.map(|kind| Self {
            kind: Some(kind),
            name,
        }))
    }

    /// Parses the name of a request.
    pub fn request(word: &'a str) -> Result<Self> {
        Self::parse(word, Role::Request)?.ok_or_else(|| {
            let kind = word.split_once('/').map_or(word, |(kind, _)| kind);
            Failure::new(format!("{word}: {kind} is not a kind of request"))
                .next("write ear/NAME or par/NAME, or only the name")
        })
    }

    /// Parses the name of an object that can be revoked: a request or a transient binding.
    pub fn revocable(word: &'a str) -> Result<Self> {
        match Self::parse(word, Role::Binding)? {
            Some(named) => Ok(named),
            None => Self::parse(word, Role::Request)?.ok_or_else(|| {
                let kind = word.split_once('/').map_or(word, |(kind, _)| kind);
                let message =
                    format!("{word}: {kind} is not a kind of request or transient binding");
                Failure::new(message)
                    .next("write ear/NAME, par/NAME, trb/NAME or tcrb/NAME, or only the name")
            }),
        }
    }

    /// Parses the name of an object that can be approved: a request, a transient binding or a harness run.
    pub fn approvable(word: &'a str) -> Result<Self> {
        match Self::parse(word, Role::Run)? {
            Some(named) => Ok(named),
            None => Self::revocable(word).map_err(|_| {
                let kind = word.split_once('/').map_or(word, |(kind, _)| kind);
                Failure::new(format!("{word}: a {kind} has no approvals")).next(
                    "write ear/NAME, par/NAME, trb/NAME, tcrb/NAME or hr/NAME, or only the name",
                )
            }),
        }
    }

    /// Checks whether the word is only a name.
    pub fn is_of_any_kind(&self) -> bool {
        self.kind.is_none()
    }

    /// Checks whether the object may be of the kind with this name.
    pub fn is_called(&self, title: &str) -> bool {
        let kind = self.kind.as_ref();
        kind.is_none_or(|kind| kind.resource.kind == title)
    }

    /// Checks whether the object may be of this kind.
    pub fn may_be<K: Kind>(&self) -> bool {
        let kind = self.kind.as_ref();
        kind.is_none_or(|kind| kind.resource == ApiResource::erase::<K>(&()))
    }
}

/// Checks that a name can be part of a path of the API; with a slash in it, it would be another path.
pub fn checked(name: &str) -> Result<&str> {
    let strange =
        |letter: char| letter.is_whitespace() || letter.is_control() || "/%?#\\".contains(letter);
    if name.is_empty() || name == "." || name == ".." || name.contains(strange) {
        return Err(Failure::new(format!("{name:?} is not a valid name"))
            .next("names are of a-z, 0-9, - and ., as `kubectl get` shows them"));
    }
    Ok(name)
}

/// Checks whether a word has the form of the UIDs that the API server assigns.
/// See <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#uids>.
pub fn is_uid(word: &str) -> bool {
    let mut groups = word.split('-');
    let lengths_match = [8, 4, 4, 4, 12].into_iter().all(|length| {
        let group = groups.next().unwrap_or_default().as_bytes();
        let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        group.len() == length && group.iter().all(is_digit)
    });
    lengths_match && groups.next().is_none()
}

/// Returns the kind of workload that a word names.
pub fn workload(word: &str) -> Option<TargetKind> {
    let word = word.to_lowercase();
    let word = word.split_once('.').map_or(word.as_str(), |(name, _)| name);
    Some(match word {
        "deploy" | "deployment" | "deployments" => TargetKind::Deployment,
        "sts" | "statefulset" | "statefulsets" => TargetKind::StatefulSet,
        "job" | "jobs" => TargetKind::Job,
        "cj" | "cronjob" | "cronjobs" => TargetKind::CronJob,
        "ds" | "daemonset" | "daemonsets" => TargetKind::DaemonSet,
        "ro" | "rollout" | "rollouts" => TargetKind::Rollout,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        for good in ["web", "web-7d4b9c5f6-x2x8p", "a.b", "system:node"] {
            assert!(checked(good).is_ok(), "{good}");
        }
        for bad in [
            "", ".", "..", "a/b", "../pods", "a?b", "a b", "a\n", "%2e", "a#b",
        ] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn uid_has_the_form_of_the_api_server() {
        for (word, expected) in [
            ("9cd5a2fc-0000-4000-8000-5f3a00000001", true),
            ("9CD5A2FC-0000-4000-8000-5F3A00000001", false),
            ("9cd5a2fc-0000-4000-8000-5f3a0000000", false),
            ("9cd5a2fc-0000-4000-8000-5f3a00000001-9cd5a2fc", false),
            ("9cd5a2fg-0000-4000-8000-5f3a00000001", false),
            ("inc-9cd5a2fc", false),
            ("", false),
        ] {
            assert_eq!(is_uid(word), expected, "{word}");
        }
    }

    #[test]
    fn a_workload_goes_by_its_names() {
        assert_eq!(workload("deployments.apps"), Some(TargetKind::Deployment));
        assert_eq!(workload("po"), None);
    }
}
