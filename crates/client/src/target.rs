//! The targets that users name, and the templates that lead to them. Names alone decide: reading pods and their owners
//! would require rights that users do not have yet, and time. The operator checks the owner chain before it grants
//! access.

use oz_api::{CrossVersionObjectReference, Operation, TargetKind};
use oz_core::access::decide;
use oz_core::kinds::{self, AccessTemplate, Role};

use crate::failure::{Failure, Result};
use crate::names;

/// The target that a user typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `deploy/web`
    Workload(TargetKind, String),
    /// `pod/web-7d4b9c-x2x8p`
    Pod(String),
    /// `template/shell`
    Template(String),
    /// `web`: a workload, a template or a pod
    Any(String),
}

impl std::str::FromStr for Target {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self> {
        let Some((kind, name)) = text.split_once('/') else {
            return match text {
                "" => Err(Failure::new("an empty target").next(NEXT)),
                name => Ok(Self::Any(names::checked(name)?.to_owned())),
            };
        };
        if names::checked(name).is_err() {
            return Err(Failure::new(format!("{text:?} is not a target")).next(NEXT));
        }
        let name = name.to_owned();
        if let Some(kind) = names::workload(kind) {
            return Ok(Self::Workload(kind, name));
        }
        match kind.to_lowercase().as_str() {
            "po" | "pod" | "pods" => Ok(Self::Pod(name)),
            "template" | "templates" => Ok(Self::Template(name)),
            other if kinds::find(other).is_some_and(|kind| kind.role == Role::Template) => {
                Ok(Self::Template(name))
            }
            _ => Err(
                Failure::new(format!("{text} is not a target: no kind {kind} is known")).next(NEXT),
            ),
        }
    }
}

const NEXT: &str = "name deploy/NAME, sts/NAME, ds/NAME, rollout/NAME, pod/NAME or template/NAME";

impl std::fmt::Display for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Workload(kind, name) => write!(formatter, "{kind} {name}"),
            Self::Pod(name) => write!(formatter, "pod {name}"),
            Self::Template(name) => write!(formatter, "template {name}"),
            Self::Any(name) => formatter.write_str(name),
        }
    }
}

/// The way in which a template leads to the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChoice {
    /// Any pod of its workload.
    Any,
    /// This pod of its workload.
    Pod(String),
}

/// Checks whether the template leads to the target, and returns the way.
pub fn leads<T: AccessTemplate>(template: &T, target: &Target) -> Option<PodChoice> {
    let workload = template.workload();
    let is = |kind: Option<TargetKind>, name: &str| {
        workload.is_some_and(|workload| {
            workload.name == name && kind.is_none_or(|kind| kind == workload.kind)
        })
    };
    match target {
        Target::Workload(kind, name) => is(Some(*kind), name).then_some(PodChoice::Any),
        Target::Template(name) => (template.name() == name).then_some(PodChoice::Any),
        Target::Any(name) if is(None, name) || template.name() == name => Some(PodChoice::Any),
        Target::Any(name) | Target::Pod(name) => workload
            .filter(|workload| looks_like(workload, name))
            .map(|_| PodChoice::Pod(name.clone())),
    }
}

/// Checks whether a pod with this name would belong to the workload.
fn looks_like(workload: &CrossVersionObjectReference, pod: &str) -> bool {
    let Some(rest) = pod
        .strip_prefix(workload.name.as_str())
        .and_then(|rest| rest.strip_prefix('-'))
    else {
        return false;
    };
    let word =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let two = |text: &str| {
        text.split_once('-')
            .is_some_and(|(between, pod)| word(between) && word(pod))
    };
    match workload.kind {
        TargetKind::StatefulSet => {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
        }
        TargetKind::DaemonSet => word(rest),
        // The pods of an indexed Job have the index in between.
        TargetKind::Job => word(rest) || two(rest),
        TargetKind::Deployment | TargetKind::Rollout | TargetKind::CronJob => two(rest),
    }
}

/// Checks whether the template allows the operation, in the container if the user named one.
pub fn hands_out<T: AccessTemplate>(
    template: &T,
    operation: Operation,
    container: Option<&str>,
) -> bool {
    let config = template.config();
    let allowed = |container: &str| {
        config.containers.is_empty() || config.containers.iter().any(|name| name == container)
    };
    decide::operations(config).contains(&operation) && container.is_none_or(allowed)
}

#[cfg(test)]
mod tests {
    use oz_api::{AccessConfig, ExecAccessTemplate, ExecAccessTemplateSpec};

    use super::*;

    fn template(kind: TargetKind, workload: &str) -> ExecAccessTemplate {
        ExecAccessTemplate::new(
            "shell",
            ExecAccessTemplateSpec {
                access_config: AccessConfig::default(),
                controller_target_ref: CrossVersionObjectReference {
                    api_version: kind.api_version(),
                    kind,
                    name: workload.to_owned(),
                },
            },
        )
    }

    fn way(kind: TargetKind, target: &str) -> Option<PodChoice> {
        leads(&template(kind, "web"), &target.parse().unwrap())
    }

    #[test]
    fn a_workload_goes_by_its_kind_and_name_or_by_its_name() {
        for target in [
            "deploy/web",
            "deployments.apps/web",
            "web",
            "template/shell",
            "shell",
        ] {
            assert_eq!(
                way(TargetKind::Deployment, target),
                Some(PodChoice::Any),
                "{target}"
            );
        }
        for target in ["deploy/api", "sts/web", "template/web", "api"] {
            assert_eq!(way(TargetKind::Deployment, target), None, "{target}");
        }
    }

    #[test]
    fn pod_is_attributed_to_workload_by_name_pattern() {
        for (kind, pod, is_one) in [
            (TargetKind::Deployment, "web-7d4b9c5f6-x2x8p", true),
            (TargetKind::Deployment, "web-api-7d4b9c5f6-x2x8p", false),
            (TargetKind::Deployment, "web-0", false),
            (TargetKind::Job, "web-x7k2p", true),
            (TargetKind::Job, "web-0-x7k2p", true),
            (TargetKind::CronJob, "web-29384460-x7k2p", true),
            (TargetKind::CronJob, "web-x7k2p", false),
            (TargetKind::StatefulSet, "web-0", true),
            (TargetKind::StatefulSet, "web-x", false),
            (TargetKind::DaemonSet, "web-x2x8p", true),
            (TargetKind::DaemonSet, "website", false),
        ] {
            let expected = is_one.then(|| PodChoice::Pod(pod.to_owned()));
            assert_eq!(way(kind, &format!("pod/{pod}")), expected, "{kind} {pod}");
            assert_eq!(way(kind, pod), expected, "{kind} {pod}");
        }
    }

    #[test]
    fn invalid_target_is_rejected() {
        for text in ["", "svc/web", "deploy/", "deploy/a/b"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
