//! Transient bindings at the edge: what is watched and read for `oz_core::transient`. A binding that
//! waits or is in effect costs no reads; one that is about to be made costs three.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::api::{Api, ObjectMeta, PostParams};
use oz_core::api::RoleKind;
use oz_core::controller::Failure;
use oz_core::labels;
use oz_core::transient::{Facts, Kind, Lookup, Question, Transient, Want, may_bind};
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::Store;

use crate::stamps::Stamps;

/// How long the API server may take to judge.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Bindings<K> {
    pub(crate) objects: Store<K>,
    pub(crate) stamps: Stamps,
}

impl<K: Kind> Observe<Transient<K>> for Bindings<K> {
    fn watches(&self) -> Watches<K> {
        let watches = Watches::new(&self.objects).marked(K::MARK);
        if K::CLUSTER {
            watches.child::<ClusterRoleBinding>()
        } else {
            watches.child::<RoleBinding>()
        }
    }

    fn known(&self, _: &K) -> Facts {
        Facts::default()
    }

    async fn answer(&self, cx: &Cx, object: &K, question: Question, facts: &mut Facts) {
        match question {
            Question::SameStamp => {
                facts.same_stamp = Some(self.stamps.same(cx.now(), &self.objects, object));
            }
            Question::Lookup(want) => {
                let uid = object.meta().uid.as_deref().unwrap_or_default();
                let (role, may_bind, taken) =
                    tokio::join!(rules(cx, &want), may(cx, &want), taken(cx, &want, uid));
                facts.lookup = Some(Lookup {
                    role,
                    may_bind,
                    taken,
                });
            }
        }
    }
}

async fn rules(cx: &Cx, want: &Want) -> Result<Option<Vec<PolicyRule>>, Failure> {
    let name = &want.role.name;
    let rules = match want.role.kind {
        RoleKind::Role => {
            let role = cx.get::<Role>(want.namespace.as_deref(), name).await?;
            role.map(|role| role.rules)
        }
        RoleKind::ClusterRole => {
            let role = cx.get::<ClusterRole>(None, name).await?;
            role.map(|role| role.rules)
        }
    };
    Ok(rules.map(Option::unwrap_or_default))
}

async fn may(cx: &Cx, want: &Want) -> Result<bool, Failure> {
    let review = may_bind(&want.requester, want.namespace.as_deref(), &want.role);
    let reviews: Api<SubjectAccessReview> = Api::all(cx.client().clone());
    let what = || format!("failed to find out what {} may bind", want.requester.user);
    let parameters = PostParams::default();
    match tokio::time::timeout(REVIEW_TIMEOUT, reviews.create(&parameters, &review)).await {
        Ok(Ok(answer)) => Ok(answer.status.is_some_and(|status| status.allowed)),
        Ok(Err(error)) => Err(oz_engine::failure(&what(), &error)),
        Err(_) => Err(Failure::transient(
            "Timeout",
            format!("{}: the API server did not answer in time", what()),
        )),
    }
}

/// Whether something that was not made for this object has the name. What was made for it, and has
/// not been seen yet, is found when it is created again.
async fn taken(cx: &Cx, want: &Want, uid: &str) -> Result<bool, Failure> {
    let foreign = |metadata: ObjectMeta| labels::owner_uid(&metadata) != Some(uid);
    let there = match &want.namespace {
        Some(namespace) => {
            let binding = cx.get::<RoleBinding>(Some(namespace), &want.name).await?;
            binding.map(|binding| binding.metadata)
        }
        None => {
            let binding = cx.get::<ClusterRoleBinding>(None, &want.name).await?;
            binding.map(|binding| binding.metadata)
        }
    };
    Ok(there.is_some_and(foreign))
}
