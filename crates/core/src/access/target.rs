//! The choice of the pod. A pod qualifies only if its owner chain leads to the target workload (labels alone prove
//! nothing), if it is Running and if it is not terminating. Among several, those that are Ready come first: a pod that
//! is not Ready may be the one to examine, but only if no other is Ready, or if the request names it. A hash of the
//! request's UID chooses among several: the choice after a crash is the same.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest, Sha256};

use crate::controller::Failure;

/// A workload and its existing objects, as read for the decision about a grant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The objects between the workload and its pods, for kinds that own pods through others: the replica sets of a
    /// Deployment, the Jobs of a CronJob.
    pub between: Vec<ObjectMeta>,
    /// The pods that match its selector, or the pods of the objects in between.
    pub pods: Vec<Pod>,
}

/// The number of pods that an error message names.
const NAMED: usize = 5;
/// The reason if the requested pod is not a pod of the workload.
pub const NO_SUCH_POD: &str = "PodNotFound";

impl Workload {
    /// Returns the pod for the request with `request_uid`: the named pod, or one of the qualifying pods.
    ///
    /// # Errors
    /// A transient [`Failure`]: the pods of a workload change, so the request may wait for one.
    pub fn choose(&self, request_uid: &str, wanted: Option<&str>) -> Result<&Pod, Failure> {
        match wanted.filter(|name| !name.is_empty()) {
            Some(name) => self.find_pod(name),
            None => self.any(request_uid),
        }
    }

    fn find_pod(&self, wanted: &str) -> Result<&Pod, Failure> {
        let own = self.pods.iter().filter(|pod| self.owns(&pod.metadata));
        let Some(pod) = own.clone().find(|pod| name(pod) == Some(wanted)) else {
            let mut others: Vec<&str> = own.filter_map(name).collect();
            others.sort_unstable();
            others.truncate(NAMED);
            let hint = if others.is_empty() {
                "it has none now".to_owned()
            } else {
                format!("its pods are {}", others.join(", "))
            };
            return Err(Failure::transient(
                NO_SUCH_POD,
                format!(
                    "pod named {wanted} not found among the pods of {} {}: {hint}",
                    self.kind, self.name
                ),
            ));
        };
        match unusable(pod) {
            None => Ok(pod),
            Some(why) => Err(Failure::transient(
                "PodNotRunning",
                format!("pod {wanted} cannot be used: {why}; waiting for it"),
            )),
        }
    }

    fn any(&self, request_uid: &str) -> Result<&Pod, Failure> {
        let usable = |pod: &&Pod| self.owns(&pod.metadata) && unusable(pod).is_none();
        let mut usable: Vec<&Pod> = self.pods.iter().filter(usable).collect();
        if usable.iter().any(|pod| is_ready(pod)) {
            usable.retain(|pod| is_ready(pod));
        }
        usable.sort_unstable_by_key(|pod| name(pod));
        let digest = Sha256::digest(request_uid);
        let number = digest
            .iter()
            .take(8)
            .fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        let count = u64::try_from(usable.len()).unwrap_or(u64::MAX);
        number
            .checked_rem(count)
            .and_then(|index| usable.get(usize::try_from(index).ok()?).copied())
            .ok_or_else(|| {
                Failure::transient(
                    "NoPodRunning",
                    format!(
                        "{} {} has no pod that is Running and not terminating ({} found); waiting for one",
                        self.kind,
                        self.name,
                        self.pods.len()
                    ),
                )
            })
    }

    /// Checks whether the request for the pod `wanted`, or for any pod, gets one that is Ready, or that it named.
    #[must_use]
    pub fn has_ready(&self, wanted: Option<&str>) -> bool {
        let chosen = self.choose("", wanted);
        chosen.is_ok_and(|pod| wanted.is_some() || is_ready(pod))
    }

    fn owns(&self, pod: &ObjectMeta) -> bool {
        let Some(owner) = controller(pod) else {
            return false;
        };
        owner.uid == self.uid
            || self.between.iter().any(|between| {
                between.uid.as_deref() == Some(owner.uid.as_str())
                    && is_controlled_by(between, &self.uid)
            })
    }
}

/// Checks whether workloads of this kind own their pods through replica sets.
#[must_use]
pub fn through_replica_sets(kind: &str) -> bool {
    matches!(kind, "Deployment" | "Rollout")
}

/// Checks whether the object belongs to the workload with this UID.
#[must_use]
pub fn is_controlled_by(object: &ObjectMeta, uid: &str) -> bool {
    controller(object).is_some_and(|owner| owner.uid == uid)
}

fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata
        .owner_references
        .as_ref()?
        .iter()
        .find(|owner| owner.controller == Some(true))
}

fn name(pod: &Pod) -> Option<&str> {
    pod.metadata.name.as_deref()
}

/// The reason why a pod accepts no access now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The pod is being deleted.
    #[error("it is terminating")]
    Terminating,
    /// The pod is in this phase.
    #[error("it is {0}, not Running")]
    NotRunning(String),
}

/// Returns the reason why the pod accepts no access now.
#[must_use]
pub fn unusable(pod: &Pod) -> Option<Unusable> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(Unusable::Terminating);
    }
    let status = pod.status.as_ref();
    let phase = status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Unknown");
    (phase != "Running").then(|| Unusable::NotRunning(phase.to_owned()))
}

/// Checks whether the pod is Ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use proptest::prelude::*;

    use super::*;

    fn owned(name: &str, uid: &str, owner: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.into()),
            uid: Some(uid.into()),
            owner_references: Some(vec![OwnerReference {
                uid: owner.into(),
                controller: Some(true),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        }
    }

    fn ready(name: &str, owner: &str) -> Pod {
        Pod {
            metadata: owned(name, &format!("uid-{name}"), owner),
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

    fn deployment(pods: Vec<Pod>) -> Workload {
        Workload {
            kind: "Deployment".into(),
            name: "web".into(),
            uid: "deploy".into(),
            between: vec![
                owned("web-1", "set", "deploy"),
                owned("alien", "other", "elsewhere"),
            ],
            pods,
        }
    }

    fn chosen(workload: &Workload, wanted: Option<&str>) -> Result<String, &'static str> {
        workload
            .choose("request", wanted)
            .map(|pod| name(pod).unwrap().to_owned())
            .map_err(|failure| failure.reason)
    }

    #[test]
    fn pod_qualifies_only_with_owner_chain_to_workload() {
        let direct = ready("direct", "deploy");
        let through_set = ready("through", "set");
        let foreign_set = ready("foreign", "other");
        let mut orphan = ready("orphan", "set");
        orphan.metadata.owner_references = None;
        let mut guest = ready("guest", "set");
        guest.metadata.owner_references.as_mut().unwrap()[0].controller = None;
        for (pod, qualifies) in [
            (direct, true),
            (through_set, true),
            (foreign_set, false),
            (orphan, false),
            (guest, false),
        ] {
            let workload = deployment(vec![pod.clone()]);
            assert_eq!(
                workload.choose("r", None).is_ok(),
                qualifies,
                "{:?}",
                name(&pod)
            );
            assert_eq!(workload.choose("r", name(&pod)).is_ok(), qualifies);
        }
    }

    #[test]
    fn a_pod_of_a_cron_job_belongs_to_one_of_its_jobs() {
        let cron_job = |pods| Workload {
            kind: "CronJob".into(),
            name: "report".into(),
            uid: "cron".into(),
            between: vec![
                owned("report-1", "job", "cron"),
                owned("other-1", "alien", "else"),
            ],
            pods,
        };
        for (owner, qualifies) in [("job", true), ("alien", false), ("unknown", false)] {
            let workload = cron_job(vec![ready("pod", owner)]);
            assert_eq!(workload.choose("r", None).is_ok(), qualifies, "{owner}");
        }
    }

    fn not_ready(name: &str, conditions: Option<Vec<PodCondition>>) -> Pod {
        let mut pod = ready(name, "set");
        pod.status.as_mut().unwrap().conditions = conditions;
        pod
    }

    /// See <https://github.com/rancher/rancher/issues/20493>.
    #[test]
    fn running_pod_that_is_not_ready_is_chosen_by_name_or_if_no_pod_is_ready() {
        let condition = |status: &str| PodCondition {
            type_: "Ready".into(),
            status: status.into(),
            ..PodCondition::default()
        };
        for conditions in [
            None,
            Some(Vec::new()),
            Some(vec![condition("False")]),
            Some(vec![condition("Unknown")]),
        ] {
            let alone = deployment(vec![not_ready("ill", conditions.clone())]);
            assert_eq!(chosen(&alone, None), Ok("ill".into()));
            assert!(!alone.has_ready(None) && alone.has_ready(Some("ill")));
            let among = deployment(vec![not_ready("ill", conditions), ready("well", "set")]);
            for request in 0..20 {
                let any = among.choose(&request.to_string(), None).unwrap();
                assert_eq!(name(any), Some("well"));
            }
            assert_eq!(chosen(&among, Some("ill")), Ok("ill".into()));
        }
    }

    #[test]
    fn a_pod_that_is_not_running_is_waited_for() {
        let mut pending = ready("pending", "set");
        pending.status.as_mut().unwrap().phase = Some("Pending".into());
        let mut done = ready("done", "set");
        done.status.as_mut().unwrap().phase = Some("Succeeded".into());
        let mut leaving = ready("leaving", "set");
        leaving.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
        let unknown = Pod {
            status: None,
            ..ready("unknown", "set")
        };
        for pod in [pending, done, leaving, unknown] {
            let workload = deployment(vec![pod.clone()]);
            assert_eq!(chosen(&workload, None), Err("NoPodRunning"));
            assert_eq!(chosen(&workload, name(&pod)), Err("PodNotRunning"));
        }
    }

    #[test]
    fn missing_pod_is_reported_with_existing_pods() {
        let workload = deployment((0..9).map(|n| ready(&format!("web-{n}"), "set")).collect());
        let failure = workload.choose("r", Some("gone")).unwrap_err();
        assert_eq!(failure.reason, "PodNotFound");
        assert!(
            failure
                .message
                .contains("its pods are web-0, web-1, web-2, web-3, web-4")
        );
        assert!(!failure.message.contains("web-5"));
    }

    #[test]
    fn an_empty_name_is_no_name() {
        assert_eq!(
            chosen(&deployment(vec![ready("a", "set")]), Some("")),
            Ok("a".into())
        );
    }

    proptest! {
        #[test]
        fn the_choice_depends_on_the_request_and_not_on_the_order_of_the_list(
            uid in "[a-f0-9-]{1,36}",
            count in 1_usize..20,
            turn in 0_usize..20,
        ) {
            let pods: Vec<Pod> = (0..count).map(|n| ready(&format!("web-{n:02}"), "set")).collect();
            let mut turned = pods.clone();
            turned.rotate_left(turn % count);
            let first = deployment(pods);
            let second = deployment(turned);
            prop_assert_eq!(
                first.choose(&uid, None).map(name),
                second.choose(&uid, None).map(name)
            );
        }

        #[test]
        fn every_pod_is_somebodys(count in 1_usize..6) {
            let workload = deployment((0..count).map(|n| ready(&format!("web-{n}"), "set")).collect());
            let mut seen = std::collections::BTreeSet::new();
            for request in 0..200 {
                seen.insert(name(workload.choose(&request.to_string(), None).unwrap()));
            }
            prop_assert_eq!(seen.len(), count);
        }
    }
}
