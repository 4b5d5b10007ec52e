//! HarnessRuns: their children, and the facts about templates, policies and workspaces for each
//! pass.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::Resource as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, HarnessRun, HarnessRunStatus, HarnessTemplate, Workspace,
};
use oz_api::{AccessLock, AccessRequestApproval, Uid};
use oz_core::access::seal::Keys;
use oz_core::controller::{Failure, Live};
use oz_engine::{Cx, Observe, Packed, Watches};
use oz_runs::authority::Endpoint;
use oz_runs::lean;
use oz_runs::objects::policy_name;
use oz_runs::policy::{Matching, PodSecurity};
use oz_runs::queue::{ahead, is_before, is_held_up, is_queued, place, workspace_of};
use oz_runs::run::{Facts, Question, Runs, candidate, has_begun, is_hidden, is_over};
use oz_runs::stored::StoredObject;
use oz_runtime::Store;
use parking_lot::{Mutex, MutexGuard};

use super::metrics::Metrics;
use super::network_policies::NetworkPolicies;
use crate::answers::{about_runs, approvals, seen};
use crate::emergencies::Emergencies;
use crate::locks;
use crate::stamps::Stamps;
use crate::tickets::TicketChecks;

pub(crate) struct HarnessRuns {
    /// The keys that open stamps.
    pub(crate) keys: Keys,
    pub(crate) locks: Store<AccessLock>,
    pub(crate) approvals: Store<AccessRequestApproval>,
    pub(crate) runs: Store<HarnessRun>,
    pub(crate) stamps: Stamps,
    pub(crate) tickets: TicketChecks,
    pub(crate) emergencies: Emergencies,
    pub(crate) templates: Store<HarnessTemplate>,
    pub(crate) cluster_templates: Store<ClusterHarnessTemplate>,
    pub(crate) policies: Store<BrokerPolicy>,
    pub(crate) workspaces: Store<Workspace>,
    /// The ConfigMap with the broker's certificates.
    pub(crate) certificates: Store<ConfigMap>,
    /// The Service of the broker.
    pub(crate) services: Store<Service>,
    pub(crate) metrics: Metrics,
    pub(crate) network_policies: NetworkPolicies,
    /// The UIDs of the runs with Jobs from this process, as long as their statuses do not name the
    /// Jobs.
    pub(crate) made: Made,
}

impl Observe<Runs> for HarnessRuns {
    fn watches(&self) -> Watches<HarnessRun> {
        let watches = Watches::new(&self.runs);
        self.network_policies
            .watched_for(watches, policy_name, |run| !is_over(run))
            .child::<Workspace>()
            .child::<NetworkPolicy>()
            .child_kept_as::<Job>(|job| kept(job, lean::job))
            .child_kept_as::<Pod>(|pod| kept(pod, lean::pod))
            .related(&self.templates, |template, runs| {
                let (namespace, name) = (template.namespace(), template.name_any());
                waiting(runs, |run| {
                    run.spec.template_ref.name == name && run.metadata.namespace == namespace
                })
            })
            // A template of a namespace may inherit from it.
            .related(&self.cluster_templates, |_, runs| waiting(runs, |_| true))
            // It may grant less to a run that has begun.
            .related(&self.policies, |policy, runs| {
                let namespace = policy.namespace();
                runs.select(|run| run.metadata.namespace == namespace && !is_over(run))
            })
            .related(&self.workspaces, |workspace, runs| {
                let (namespace, name) = (workspace.namespace(), workspace.name_any());
                waiting(runs, |run| {
                    run.metadata.namespace == namespace && workspace_of(run).as_ref() == Some(&name)
                })
            })
            .related(&self.runs, queued_with)
            .related(&self.approvals, about_runs)
            .signalled(self.tickets.signal())
            .ended_by(&self.locks, locks::runs(&self.keys, &self.approvals))
            .related(&self.certificates, |_, runs| waiting(runs, |_| true))
            .related(&self.services, |_, runs| waiting(runs, |_| true))
    }

    fn created(&self, owner: &str, child: &Live) {
        if child.resource.kind == Job::KIND {
            self.made.note(owner, &self.runs);
        }
    }

    fn reported(&self, _: Timestamp, before: Option<&HarnessRunStatus>, after: &HarnessRunStatus) {
        self.metrics.run(before, after);
    }

    fn facts(&self, run: &HarnessRun) -> Facts {
        let namespace = run.namespace();
        let namespace = namespace.as_deref();
        // The children of a run that has begun show its state.
        let uid = run.metadata.uid.as_deref();
        if !has_not_begun(run) {
            if let Some(uid) = uid {
                self.made.forget(uid);
            }
            return Facts {
                policies: self.policies_of(namespace),
                has_policies: self.policies.is_ready(),
                locks: locks::locks(&self.locks),
                tickets: self.tickets.about_ticket(run.spec.ticket.as_deref()),
                network_policies: self.network_policies.about(run),
                ..Facts::default()
            };
        }
        let name = &run.spec.template_ref.name;
        let template = self.templates.get(namespace, name);
        let base = template.as_ref().and_then(|template| {
            let base = template.spec.base_template_ref.as_ref()?;
            self.cluster_templates.get(None, &base.name)
        });
        let policies = self.policies_of(namespace);
        let workspace = workspace_of(run);
        let workspace = workspace.and_then(|name| self.workspaces.get(namespace, &name));
        let workspace = workspace.filter(|workspace| is_for(workspace, run));
        let mut facts = Facts {
            ahead: workspace
                .as_ref()
                .map_or(0, |workspace| self.ahead(workspace, run)),
            older: self.older(&policies, run),
            cluster_template: self.cluster_templates.get(None, name),
            template,
            base,
            policies,
            has_policies: self.policies.is_ready(),
            workspace,
            locks: locks::locks(&self.locks),
            tickets: self.tickets.about_ticket(run.spec.ticket.as_deref()),
            broker: self.broker().map(Arc::new),
            network_policies: self.network_policies.about(run),
            job_made: uid.is_some_and(|uid| self.made.has(uid)),
            ..Facts::default()
        };
        if facts.may_ask(run) {
            facts.approvals = self.answers(run);
        }
        facts
    }

    async fn answer(&self, cx: &Cx, run: &HarnessRun, question: Question, facts: &mut Facts) {
        match question {
            Question::SameStamp => {
                facts.same_stamp = Some(self.stamps.same(cx.now(), &self.runs, run));
            }
            Question::HiddenPod => facts.hidden_pod = Some(has_hidden_pod(cx, run).await),
            Question::PodSecurity => facts.pod_security = Some(pod_security(cx, run).await),
            Question::Approvals => {
                facts.confirmed = Some(match StoredObject::new(run) {
                    Ok(run) => approvals(cx, &candidate(&run)).await,
                    Err(error) => Err(error.into()),
                });
            }
            Question::Emergencies(limit) => {
                facts.unreviewed = Some(match Uid::from_metadata(&run.metadata) {
                    Ok(uid) => self.emergencies.take(cx.now(), uid.as_str(), &limit),
                    Err(error) => Err(error.into()),
                });
            }
        }
    }
}

impl HarnessRuns {
    /// Returns the approvals and denials of a run, as the watch has shown them.
    fn answers(&self, run: &HarnessRun) -> Vec<AccessRequestApproval> {
        let run = StoredObject::new(run);
        run.map_or_else(
            |_| Vec::new(),
            |run| seen(&self.approvals, &candidate(&run)),
        )
    }

    fn policies_of(&self, namespace: Option<&str>) -> Vec<Arc<BrokerPolicy>> {
        self.policies
            .select(|policy| policy.metadata.namespace.as_deref() == namespace)
    }

    fn ahead(&self, workspace: &Workspace, run: &HarnessRun) -> usize {
        let status = workspace.status.as_ref();
        let holder = status.and_then(|status| status.active_run_uid.as_ref());
        let all = self.runs.objects();
        let ahead = ahead(workspace, run, all.iter().map(AsRef::as_ref));
        let waiting = ahead
            .iter()
            .filter(|other| other.metadata.uid.as_ref() != holder);
        waiting.count()
    }

    /// Returns the number of runs that are not over and that are before this one in the queue of the
    /// limits, if a policy with a limit applies to both their template and the template of this run.
    fn older(&self, policies: &[Arc<BrokerPolicy>], run: &HarnessRun) -> usize {
        let all = policies.iter().map(AsRef::as_ref);
        let matching = Matching::from_policies(all, &run.spec.template_ref.name);
        let limiting: Vec<&BrokerPolicy> = matching
            .iter()
            .filter(|policy| {
                policy
                    .spec
                    .limits
                    .and_then(|limits| limits.concurrent_runs)
                    .is_some()
            })
            .collect();
        if limiting.is_empty() {
            return 0;
        }
        let older = self.runs.select(|other| {
            other.metadata.namespace == run.metadata.namespace
                && !is_over(other)
                && (is_before(other, run) || other.uid().is_some_and(|uid| self.made.has(&uid)))
                && other.metadata.uid != run.metadata.uid
                && !Matching::from_policies(limiting.iter().copied(), &other.spec.template_ref.name)
                    .is_empty()
        });
        older.len()
    }

    fn broker(&self) -> Option<Endpoint> {
        let (services, certificates) = (self.services.objects(), self.certificates.objects());
        Endpoint::from_service(services.first()?, certificates.first()?)
    }
}

/// Returns the stored form of a Job or a pod. For most changes, the text shows that the object has
/// not ended.
fn kept(child: Packed, lean: fn(&mut DynamicObject)) -> Packed {
    match lean::may_have_ended(|field, value| child.has(field, value)) {
        true => child.changed(lean),
        false => child,
    }
}

/// The number of stored runs from which deleted ones are removed.
const MANY: usize = 1_024;

/// The set of UIDs in [`HarnessRuns::made`].
#[derive(Default)]
pub(crate) struct Made(Mutex<BTreeSet<String>>);

impl Made {
    fn note(&self, uid: &str, runs: &Store<HarnessRun>) {
        let mut all = self.all();
        if all.len() >= MANY {
            all.retain(|uid| runs.by_uid(uid).is_some_and(|run| has_not_begun(&run)));
        }
        all.insert(uid.to_owned());
    }

    fn has(&self, uid: &str) -> bool {
        self.all().contains(uid)
    }

    fn forget(&self, uid: &str) {
        self.all().remove(uid);
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock()
    }
}

/// Checks whether a pod of a run has lost its labels, with a read from the API server: no store
/// contains such a pod. After a failure, a later pass checks again.
async fn has_hidden_pod(cx: &Cx, run: &HarnessRun) -> bool {
    // Without this label, it is no pod of its Job: the Job controller releases it.
    let of_jobs = ListParams::default().labels("batch.kubernetes.io/controller-uid");
    let pods = cx.list::<Pod>(run.namespace().as_deref(), &of_jobs).await;
    pods.is_ok_and(|pods| pods.iter().any(|pod| is_hidden(pod, run)))
}

/// Reads the level of Pod Security that the namespace of a run enforces: only the few passes before
/// the start of a run with a proxy require it.
async fn pod_security(cx: &Cx, run: &HarnessRun) -> Result<PodSecurity, Failure> {
    let name = oz_api::Namespace::from_metadata(&run.metadata)?;
    let namespace = cx.get::<Namespace>(None, name.as_str()).await?;
    let namespace = namespace.ok_or_else(|| {
        let message = format!("Namespace {name} does not exist");
        Failure::transient("NamespaceNotFound", message)
    })?;
    Ok(PodSecurity::from_namespace(&namespace.metadata))
}

/// Checks whether a workspace belongs to a run: the run names it, or it was created for the run.
fn is_for(workspace: &Workspace, run: &HarnessRun) -> bool {
    let mut owners = workspace.meta().owner_references.iter().flatten();
    run.spec.workspace_ref.is_some()
        || owners.any(|owner| Some(&owner.uid) == run.metadata.uid.as_ref())
}

fn has_not_begun(run: &HarnessRun) -> bool {
    !is_over(run) && !has_begun(run)
}

/// Returns the runs that the status of this run may move in a queue: in the queue of the workspace that it names, and in
/// that of the limits. A run without a status has no place on a workspace yet.
fn queued_with(run: &HarnessRun, runs: &Store<HarnessRun>) -> Vec<Arc<HarnessRun>> {
    let is_same = |other: &HarnessRun| other.metadata.namespace == run.metadata.namespace;
    // A run that is over makes room for runs that the limit of a policy blocks.
    if is_over(run) {
        return waiting(runs, is_same);
    }
    if run.status.is_none() || has_begun(run) {
        return Vec::new();
    }
    let workspace = &run.spec.workspace_ref;
    let (gives_up, has_turn) = (is_held_up(run), is_queued(run));
    waiting(runs, |other| {
        // The run enters the queue of its workspace, or leaves it.
        let is_behind = workspace.is_some()
            && other.spec.workspace_ref == *workspace
            && place(other) > place(run);
        // The run gives up its place in the queue of the limits.
        let may_pass = gives_up && is_queued(other);
        // The run has its place in that queue from this status on.
        let is_itself = has_turn && other.metadata.uid == run.metadata.uid;
        is_same(other) && (is_behind || may_pass || is_itself)
    })
}

/// Returns the runs that have not begun and for which a condition holds.
fn waiting(
    runs: &Store<HarnessRun>,
    concerned: impl Fn(&HarnessRun) -> bool,
) -> Vec<Arc<HarnessRun>> {
    runs.select(|run| has_not_begun(run) && concerned(run))
}
