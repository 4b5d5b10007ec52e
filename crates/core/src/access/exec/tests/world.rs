//! The cluster in memory for exec access.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use oz_api::{
    AccessConfig, ApprovalConfig, ApprovalRule, CrossVersionObjectReference, ExecAccessRequestSpec,
    ExecAccessTemplateSpec, RequestStatus, TargetApiVersion, TargetKind,
};

use super::super::*;
use crate::access::kind::KeepFinished;
use crate::access::testing::{self, InMemory};
pub(super) use crate::access::testing::{NANOSECOND, applies, is_transient, keys, timestamp};

pub(super) type World = testing::World<ExecAccess>;
/// A change of the cluster.
pub(super) type Change = fn(&mut World);

impl InMemory for ExecAccess {
    fn set_status(request: &mut ExecAccessRequest, status: RequestStatus) {
        request.status = Some(status);
    }

    fn config_mut(template: &mut ExecAccessTemplate) -> &mut AccessConfig {
        &mut template.spec.access_config
    }

    fn keys_mut(&mut self) -> &mut Keys {
        &mut self.keys
    }
}

/// Requires the approval of one of these users within ten minutes, under a condition if there is one.
pub(super) fn approval(users: &[&str], when: Option<&str>) -> ApprovalConfig {
    ApprovalConfig {
        rules: vec![ApprovalRule {
            name: "security".into(),
            groups: Vec::new(),
            users: users.iter().map(|&user| user.to_owned()).collect(),
            approvals: 1,
            notify: true,
            escalation: None,
        }],
        when: when.map(ToOwned::to_owned),
        timeout: "10m".into(),
        require_reason: false,
        unless: Vec::new(),
    }
}

pub(super) fn template() -> ExecAccessTemplate {
    let mut template = ExecAccessTemplate::new(
        "shell",
        ExecAccessTemplateSpec {
            access_config: AccessConfig {
                allowed_groups: vec!["devs".into()],
                ..AccessConfig::default()
            },
            controller_target_ref: CrossVersionObjectReference {
                api_version: TargetApiVersion::AppsV1,
                kind: TargetKind::StatefulSet,
                name: "db".into(),
            },
        },
    );
    template.metadata.namespace = Some("shop".into());
    template.metadata.uid = Some("template-uid".into());
    template
}

pub(super) fn pod(name: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("shop".into()),
            uid: Some(format!("uid-{name}")),
            owner_references: Some(vec![OwnerReference {
                uid: "db-uid".into(),
                controller: Some(true),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        status: Some(PodStatus {
            phase: Some("Running".into()),
            conditions: Some(vec![PodCondition {
                type_: "Ready".into(),
                status: "True".into(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        }),
        ..Pod::default()
    }
}

pub(super) fn workload(pods: &[&str]) -> Workload {
    Workload {
        kind: "StatefulSet".into(),
        name: "db".into(),
        uid: "db-uid".into(),
        between: Vec::new(),
        pods: pods.iter().map(|name| pod(name)).collect(),
    }
}

/// The request of alice, of the devs, for five minutes.
impl World {
    /// Returns the access configuration of the template.
    pub(super) fn config(&mut self) -> &mut AccessConfig {
        &mut self.template.as_mut().unwrap().spec.access_config
    }

    pub(super) fn new() -> Self {
        Self::asking(ExecAccessRequestSpec {
            template_name: "shell".into(),
            duration: Some("5m".into()),
            ..ExecAccessRequestSpec::default()
        })
    }

    pub(super) fn asking(spec: ExecAccessRequestSpec) -> Self {
        Self::from_parts(
            ExecAccess {
                keys: keys(),
                keep_finished: KeepFinished::all(SignedDuration::from_hours(1)),
                gate: None,
            },
            ExecAccessRequest::new("debug", spec),
            template(),
            Ok(workload(&["db-0", "db-1", "db-2"])),
        )
    }
}
