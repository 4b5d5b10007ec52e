//! The retention of approvals and denials, which have no owner, so that they are not deleted with
//! their request. The operator deletes each an hour after its creation, once its request is gone:
//! the audit trail keeps its contents.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use jiff::SignedDuration;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt as _};
use oz_api::AccessRequestApproval;
use oz_core::lifecycle::window::{after, has_come};
use oz_runtime::{Clock, Store, Task};

/// The minimum time for which an approval or denial is kept.
const KEEP: SignedDuration = SignedDuration::from_hours(1);
/// The interval between two checks.
const LOOK: Duration = Duration::from_secs(60);
/// The maximum number of concurrent deletions.
const AT_ONCE: usize = 8;

/// The requests of one kind by their UIDs.
pub(crate) trait Uids: Send + Sync {
    /// Checks whether the request does not exist; returns false as long as that is unknown.
    fn lacks(&self, uid: &str) -> bool;
}

impl<R: Resource + Send + Sync + 'static> Uids for Store<R> {
    fn lacks(&self, uid: &str) -> bool {
        self.is_ready() && self.by_uid(uid).is_none() && !self.is_undecodable(uid)
    }
}

/// The task that deletes approvals and denials of requests that are gone.
pub(crate) struct ApprovalRetention {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) approvals: Store<AccessRequestApproval>,
    /// The requests and transient bindings of all kinds.
    pub(crate) requests: Vec<Box<dyn Uids>>,
}

impl Task for ApprovalRetention {
    async fn run(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let old = self.approvals.select(|answer| self.is_done(answer));
            stream::iter(old)
                .for_each_concurrent(AT_ONCE, |answer| self.delete(answer))
                .await;
        }
    }
}

impl ApprovalRetention {
    fn is_done(&self, answer: &AccessRequestApproval) -> bool {
        let Some(created) = &answer.metadata.creation_timestamp else {
            return false;
        };
        let uid = &answer.spec.access_request_ref.uid;
        has_come(self.clock.now(), after(created.0, KEEP))
            && self.requests.iter().all(|requests| requests.lacks(uid))
    }

    async fn delete(&self, answer: Arc<AccessRequestApproval>) {
        let Some(namespace) = answer.namespace() else {
            return;
        };
        let answers = Api::<AccessRequestApproval>::namespaced(self.client.clone(), &namespace);
        let parameters = DeleteParams::default().preconditions(Preconditions {
            uid: answer.uid(),
            resource_version: None,
        });
        let name = answer.name_any();
        match answers.delete(&name, &parameters).await {
            Ok(_) => {}
            Err(kube::Error::Api(error)) if error.code == 404 => {}
            Err(error) => {
                tracing::warn!(%namespace, name, %error, "failed to delete an approval of a \
                    deleted request");
            }
        }
    }
}
