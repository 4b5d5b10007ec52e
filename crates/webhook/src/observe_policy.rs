//! The hook that observes changes of the ConfigMaps of policies: the policies decide about the
//! children of composites, so the audit record names the author of a change. The hook denies
//! nothing, and its failure blocks no change.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use oz_admission::{Cx, Notes, Rejection, Review, Validate};
use oz_audit::Sink;
use oz_composites::bundle;
use oz_trail::{Action, Decision, Record};

use crate::record;
use crate::stamp::requester;

/// The hook for ConfigMaps in the namespaces of policies only.
pub(crate) struct PolicyObserver {
    pub(crate) records: Arc<dyn Sink>,
}

impl Validate for PolicyObserver {
    type Object = ConfigMap;

    async fn validate(&self, cx: &Cx, review: &Review<ConfigMap>) -> Result<Notes, Rejection> {
        if cx.dry_run {
            return Ok(Notes::none());
        }
        let digest = |map: &Option<ConfigMap>| map.as_ref().and_then(bundle::digest_of);
        let (before, after) = (digest(&review.old), digest(&review.object));
        if before != after {
            let record = changed(cx, review, before, after);
            record::write_if_possible(&*self.records, &record).await;
        }
        Ok(Notes::none())
    }
}

/// Returns the audit record of a policy with a changed digest; `None` means that the policy did not
/// or does not exist.
fn changed(
    cx: &Cx,
    review: &Review<ConfigMap>,
    before: Option<String>,
    after: Option<String>,
) -> Record {
    let user = &review.user.username;
    let name = review.display_name();
    let place = match &review.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    let (reason, verb) = match (&before, &after) {
        (None, _) => ("Created", "created"),
        (_, None) => ("Deleted", "deleted"),
        _ => ("Changed", "changed"),
    };
    let message = format!("{user} {verb} the policy in ConfigMap {place}");
    let (action, decision) = (Action::PolicyChanged, Decision::Allow);
    let mut record = Record::about(cx.now, action, decision, &review.uid, reason, message);
    record.user = Some(requester(&review.user));
    "ConfigMap".clone_into(&mut record.request.kind);
    name.clone_into(&mut record.request.name);
    record::set_namespace(&mut record, review);
    for (name, digest) in [("before", before), ("after", after)] {
        if let Some(digest) = digest {
            record = record.detail(name, digest);
        }
    }
    record
}
