//! The words for oz's kinds, and for workloads, that people may type.

use kube::core::ApiResource;
use oz_core::api::{
    ExecAccessRequest, ExecAccessTemplate, GROUP, PodAccessRequest, PodAccessTemplate, TargetKind,
};

use crate::failure::{Failure, Result};

/// The resource that a word names: plural, singular, kind or short name, with or without the group.
pub(crate) fn resource(word: &str) -> Option<ApiResource> {
    let word = word.to_lowercase();
    let word = word.split_once('.').map_or(word.as_str(), |(name, group)| {
        if GROUP.starts_with(group) || group.ends_with(GROUP) {
            name
        } else {
            ""
        }
    });
    let resource = match word {
        "execaccessrequest" | "execaccessrequests" | "exec-access-request" | "ear" => {
            ApiResource::erase::<ExecAccessRequest>(&())
        }
        "podaccessrequest" | "podaccessrequests" | "pod-access-request" | "par" => {
            ApiResource::erase::<PodAccessRequest>(&())
        }
        "execaccesstemplate" | "execaccesstemplates" | "exec-access-template" | "eat" => {
            ApiResource::erase::<ExecAccessTemplate>(&())
        }
        "podaccesstemplate" | "podaccesstemplates" | "pod-access-template" | "pat" => {
            ApiResource::erase::<PodAccessTemplate>(&())
        }
        _ => return None,
    };
    Some(resource)
}

/// A name as it may stand in a path of the API; with a slash in it, it would be another path.
pub(crate) fn checked(name: &str) -> Result<&str> {
    let strange =
        |letter: char| letter.is_whitespace() || letter.is_control() || "/%?#\\".contains(letter);
    if name.is_empty() || name == "." || name == ".." || name.contains(strange) {
        return Err(Failure::new(format!("{name:?} is no name"))
            .next("names are of a-z, 0-9, - and ., as `kubectl get` shows them"));
    }
    Ok(name)
}

/// The kind of workload that a word names.
pub(crate) fn workload(word: &str) -> Option<TargetKind> {
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
    fn a_kind_goes_by_all_its_names() {
        for word in [
            "ExecAccessRequest",
            "execaccessrequests",
            "ear",
            "execaccessrequests.crds.wizardofoz.co",
            "execaccessrequests.v1alpha1.crds.wizardofoz.co",
        ] {
            let found = resource(word).map(|found| found.plural);
            assert_eq!(found.as_deref(), Some("execaccessrequests"), "{word}");
        }
        for word in ["pods", "execaccessrequests.example.com", ""] {
            assert!(resource(word).is_none(), "{word}");
        }
        assert_eq!(workload("deployments.apps"), Some(TargetKind::Deployment));
        assert_eq!(workload("po"), None);
    }
}
