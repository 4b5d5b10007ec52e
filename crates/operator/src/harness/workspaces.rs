//! Workspaces: their claims, and the runs that require them.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use oz_api::harness::{HarnessRun, Workspace, WorkspaceStatus};
use oz_api::labels;
use oz_engine::{Cx, Observe, Watches};
use oz_runs::objects::policy_name;
use oz_runs::run::is_over;
use oz_runs::seed;
use oz_runs::workspace::{Facts, Question, Workspaces, queue};
use oz_runtime::Store;

use super::metrics::Metrics;
use super::network_policies::NetworkPolicies;

pub(crate) struct HarnessWorkspaces {
    pub(crate) workspaces: Store<Workspace>,
    pub(crate) runs: Store<HarnessRun>,
    pub(crate) metrics: Metrics,
    pub(crate) network_policies: NetworkPolicies,
}

impl Observe<Workspaces> for HarnessWorkspaces {
    fn watches(&self) -> Watches<Workspace> {
        let watches = Watches::new(&self.workspaces);
        self.network_policies
            .watched_for(watches, seed::policy_name, |it| it.spec.seed.is_some())
            .child::<PersistentVolumeClaim>()
            .child::<NetworkPolicy>()
            .child::<Job>()
            .child::<Pod>()
            .related(&self.runs, |run, workspaces| {
                let (namespace, uid) = (run.namespace(), run.uid());
                let named = run.spec.workspace_ref.as_deref();
                workspaces.select(|workspace| {
                    let mut owners = workspace.metadata.owner_references.iter().flatten();
                    workspace.metadata.namespace == namespace
                        && (named == workspace.metadata.name.as_deref()
                            || owners.any(|owner| Some(&owner.uid) == uid.as_ref()))
                })
            })
    }

    fn reported(&self, now: Timestamp, before: Option<&WorkspaceStatus>, after: &WorkspaceStatus) {
        self.metrics.workspace(now, before, after);
    }

    fn facts(&self, workspace: &Workspace) -> Facts {
        let all = self.runs.objects();
        let status = workspace.status.as_ref();
        let holder = status.and_then(|status| status.active_run_uid.as_deref());
        let holder = holder.and_then(|uid| self.runs.by_uid(uid));
        Facts {
            queue: queue(workspace, all.iter().map(AsRef::as_ref)),
            holder_is_live: holder.is_some_and(|run| !is_over(&run)),
            is_confined: None,
            network_policies: match workspace.spec.seed {
                Some(_) => self.network_policies.about(workspace),
                None => Vec::new(),
            },
        }
    }

    async fn answer(&self, cx: &Cx, workspace: &Workspace, question: Question, facts: &mut Facts) {
        match question {
            Question::IsConfined { holder } => {
                let namespace = workspace.namespace();
                let name = policy_name(&holder.name);
                let found = cx.get::<NetworkPolicy>(namespace.as_deref(), &name).await;
                facts.is_confined = Some(found.map(|policy| {
                    policy.is_some_and(|policy| {
                        // Only its owner identifies the run of an object from the original.
                        let owner = labels::owner_uid(&policy.metadata);
                        holder.uid.is_none() || owner == holder.uid.as_deref()
                    })
                }));
            }
        }
    }
}
