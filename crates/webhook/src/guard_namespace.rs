//! The hook that guards the label of enforcing namespaces: a user who could remove it would get
//! access without a grant.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use oz_admission::{Cx, Notes, Rejection, Review, Validate};
use oz_api::labels;
use oz_audit::Sink;
use oz_trail::{Action, Decision, Record};

use crate::stamp::requester;
use crate::{permission, record};

/// The hook for updates that remove the label or change its value.
pub(crate) struct NamespaceGuard {
    pub(crate) records: Arc<dyn Sink>,
}

impl Validate for NamespaceGuard {
    type Object = Namespace;

    async fn validate(&self, cx: &Cx, review: &Review<Namespace>) -> Result<Notes, Rejection> {
        let (user, namespace) = (&review.user.username, review.display_name());
        let record = |decision, reason: &str, message: &str| {
            let (action, subject) = (Action::EnforcementLifted, &review.uid);
            let mut record = Record::about(cx.now, action, decision, subject, reason, message);
            record.user = Some(requester(&review.user));
            namespace.clone_into(&mut record.request.namespace);
            record
        };
        if permission::is_administrator(&cx.client, &review.user).await? {
            if !cx.dry_run {
                let label = labels::ENFORCE;
                let message =
                    format!("{user} removed the label {label} from namespace {namespace}");
                let record = record(Decision::Allow, "LabelRemoved", &message);
                record::write(&*self.records, &record).await?;
            }
            return Ok(Notes::none());
        }
        let refusal = Rejection::forbidden(
            "EnforcementProtected",
            format!(
                "{user} may not remove the label {} from namespace {namespace}: without the label, \
                 users connect to its pods without a grant; have a cluster administrator remove it",
                labels::ENFORCE
            ),
        );
        if !cx.dry_run {
            let record = record(Decision::Deny, &refusal.reason, &refusal.message);
            record::write_refusal(&*self.records, &record).await;
        }
        Err(refusal)
    }
}
