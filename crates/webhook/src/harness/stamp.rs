//! The stamp hooks: they write the creator into each new run and workspace, sealed, over any value
//! from the user, and the authors of its spec into each broker policy. Only the stamp of a broker
//! policy changes.

use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use oz_admission::{Cx, Mutate, Notes, Rejection, Review};
use oz_api::Requester;
use oz_api::harness::{BrokerPolicy, HarnessRun, Workspace};
use oz_core::access::extra::Extra;
use oz_core::access::seal::Keys;
use oz_core::access::stamp::StampError;
use oz_runs::run::spec_digest;
use oz_runs::{policy_stamp, seed};

use super::rules::Reviewed;
use super::templates::RunTemplates;
use crate::policy::{Judges, RunAsking};
use crate::refusal::namespace;
use crate::stamp::{Sealing, Subject, identified};
use crate::stamp_authors::{Authored, is_same};

/// The maximum number of authors in the stamp of a policy.
const MAX_AUTHORS: usize = 8;

/// A kind that is stamped.
pub(crate) trait Stamped: Reviewed {
    /// Returns the digest of the immutable contents.
    fn digest_of_asked(&self) -> String;
}

impl Stamped for Workspace {
    fn digest_of_asked(&self) -> String {
        seed::digest(self)
    }
}

/// The hook that stamps objects of one kind.
pub(crate) struct Stamper<K> {
    sealing: Sealing,
    kind: PhantomData<fn() -> K>,
}

impl<K: Stamped> Stamper<K> {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            sealing: Sealing::new(keys),
            kind: PhantomData,
        }
    }
}

impl<K: Stamped> Mutate for Stamper<K> {
    type Object = K;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<K>,
        object: &mut K,
    ) -> Result<Notes, Rejection> {
        let subject = Subject {
            kind: K::kind(&()).into_owned(),
            spec_digest: object.digest_of_asked(),
            judgement: None,
            extra: Extra::new(),
        };
        self.sealing.stamp(cx, review, subject, object.meta_mut())?;
        Ok(Notes::none())
    }
}

/// The hook that stamps runs, with the judgement of the access policies.
pub(crate) struct RunStamper {
    sealing: Sealing,
    judges: Judges,
    templates: RunTemplates,
}

impl RunStamper {
    pub(crate) fn new(keys: Keys, judges: Judges, templates: RunTemplates) -> Self {
        Self {
            sealing: Sealing::new(keys),
            judges,
            templates,
        }
    }
}

impl Mutate for RunStamper {
    type Object = HarnessRun;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<HarnessRun>,
        run: &mut HarnessRun,
    ) -> Result<Notes, Rejection> {
        let requester = identified(review)?;
        let namespace = namespace(review)?;
        let template = self.templates.find_new(namespace, &run.spec.template_ref);
        let template = template.await?;
        let extra = self.judges.extra(&review.user)?;
        let asking = RunAsking {
            requester: &requester,
            extra: &extra,
            run,
            namespace,
            template: template.as_ref(),
        };
        let judgement = self.judges.judge_run(cx, &review.user, &asking).await?;
        let subject = Subject {
            kind: HarnessRun::kind(&()).into_owned(),
            spec_digest: spec_digest(run),
            judgement,
            extra,
        };
        self.sealing.stamp(cx, review, subject, &mut run.metadata)?;
        Ok(Notes::none())
    }
}

/// Broker policies. The author of a change must be allowed to get each Secret that the change names,
/// which the validating hook checks, so that the authors before are no condition of a later use.
impl Authored for BrokerPolicy {
    fn stamped_kind(&self) -> String {
        policy_stamp::KIND.to_owned()
    }

    fn digest(&self) -> String {
        policy_stamp::digest(self)
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn authors(&self, keys: &Keys) -> Result<Vec<Requester>, StampError> {
        policy_stamp::verify(keys, self)
    }

    /// Returns the authors in the order of their last changes, without the oldest if there are too
    /// many: the audit trail has all. Groups, which can be large, are left out: no later decision
    /// requires them.
    fn with_author(mut authors: Vec<Requester>, user: Requester) -> Vec<Requester> {
        authors.retain(|known| !is_same(known, &user));
        if authors.len() >= MAX_AUTHORS {
            authors.remove(0);
        }
        authors.push(Requester {
            groups: Vec::new(),
            ..user
        });
        authors
    }

    fn unstamped(&self, is_proven: bool) -> Notes {
        let cause = match is_proven {
            true => "its content before this change had no valid stamp",
            false => {
                "oz-webhook has not identified this API server yet, which takes up to a minute"
            }
        };
        let namespace = self.namespace().unwrap_or_else(|| "NAMESPACE".to_owned());
        Notes::none().warn(format!(
            "the policy gets no stamp, and brokers lend no credential by it: {cause}; {}",
            policy_stamp::create_again(&self.name_any(), &namespace)
        ))
    }
}
