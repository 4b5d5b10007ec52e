//! The hook that checks runs: their spec, their stamp, whether the policies of their namespace
//! grant the requirements of their template, and whether their submitter may read the sources of
//! their prompt.

use std::ops::ControlFlow;
use std::sync::Arc;

use oz_admission::{Cx, Notes, Operation, Rejection, Review, Validate};
use oz_api::harness::{BrokerPolicy, HarnessRun, Workspace};
use oz_api::{AccessReview, encode};
use oz_core::access::rules::{Creation, Served};
use oz_core::access::seal::Keys;
use oz_core::validate::REQUEST_METADATA;
use oz_runs::objects::KIND;
use oz_runs::run::creation::{Definitions, NamedTemplate, NewRun, RunQuestion, Unavailable};
use oz_runs::run::spec_digest;
use oz_runs::{admission, terms};
use oz_trail::Action;

use super::authors::may_get;
use super::record;
use super::templates::RunTemplates;
use super::validate::Installation;
use crate::creation::apply;
use crate::lock::Locks;
use crate::refusal::{bounded, immutable, namespace, status_is_the_operators};
use crate::review::unreviewed;
use crate::stamp::requester;
use crate::validate_request::{no_owner_added, same_requester};
use crate::watched::Watched;

/// The hook that checks runs.
pub(super) struct RunValidator {
    pub(super) keys: Keys,
    pub(super) installation: Installation,
    pub(super) watched: WatchedDefinitions,
    pub(super) reviews: Watched<AccessReview>,
    pub(super) locks: Locks,
}

/// The definitions of runs and their permissions, as the watches have shown them.
pub(super) struct WatchedDefinitions {
    pub(super) templates: RunTemplates,
    pub(super) policies: Watched<BrokerPolicy>,
    pub(super) workspaces: Watched<Workspace>,
}

impl Validate for RunValidator {
    type Object = HarnessRun;

    async fn validate(&self, cx: &Cx, review: &Review<HarnessRun>) -> Result<Notes, Rejection> {
        let Some(run) = &review.object else {
            return Ok(Notes::none());
        };
        if review.subresource.as_deref() == Some("status") {
            if review.user.username == *self.installation.broker {
                return Ok(Notes::none());
            }
            let next = "delete the run to cancel it, submit another for another prompt";
            return status_is_the_operators(review, &self.installation.operator, next);
        }
        // An object that is being deleted is not checked.
        if run.metadata.deletion_timestamp.is_some() {
            return Ok(Notes::none());
        }
        match (review.operation, &review.old) {
            (Operation::Create, _) => self.submitted(cx, review, run).await,
            (Operation::Update, Some(old)) => {
                bounded(&run.metadata, Some(&old.metadata), &REQUEST_METADATA)?;
                if let Some(violation) = admission::run_update(old, run).first() {
                    return Err(immutable(&violation.field, &violation.message));
                }
                same_requester(&old.metadata, &run.metadata)?;
                no_owner_added(&old.metadata, &run.metadata)?;
                Ok(Notes::none())
            }
            _ => Ok(Notes::none()),
        }
    }
}

impl RunValidator {
    async fn submitted(
        &self,
        cx: &Cx,
        review: &Review<HarnessRun>,
        run: &HarnessRun,
    ) -> Result<Notes, Rejection> {
        let creator = requester(&review.user);
        let namespace = namespace(review)?;
        let creation = Creation {
            now: cx.now,
            creator: &creator,
            namespace: Some(namespace),
            served: Served {
                own: Some(&self.installation.namespace),
                namespaces: &self.installation.served,
            },
            is_canary: false,
        };
        let mut new = NewRun::new(&self.keys, creation, (namespace, run));
        let decided = self.decide(cx, review, (namespace, run), &mut new).await;
        let mut written = record::about(cx.now, review, Action::RunSubmitted, &spec_digest(run));
        written.template.clone_from(&run.spec.template_ref.name);
        if let (Ok(_), Some(template)) = (&decided, new.found_template()) {
            written.template_digest = Some(template.digest.clone());
        }
        written.details.extend(terms::details(&run.spec));
        let rejection = decided.as_ref().err();
        record::decided(cx, &*self.installation.records, written, rejection).await?;
        decided
    }

    async fn decide(
        &self,
        cx: &Cx,
        review: &Review<HarnessRun>,
        named: (&str, &HarnessRun),
        new: &mut NewRun<'_>,
    ) -> Result<Notes, Rejection> {
        loop {
            match apply(KIND, &*new)? {
                ControlFlow::Break(notes) => return Ok(notes),
                ControlFlow::Continue(question) => {
                    self.read(cx, review, named, new, question).await?;
                }
            }
        }
    }

    /// Answers a question of the rules.
    async fn read(
        &self,
        cx: &Cx,
        review: &Review<HarnessRun>,
        (namespace, run): (&str, &HarnessRun),
        new: &mut NewRun<'_>,
        question: RunQuestion,
    ) -> Result<(), Rejection> {
        match question {
            RunQuestion::Locks => new.facts.locks = Some(self.locks.read().await?),
            RunQuestion::Template => {
                new.facts.template = Some(self.template(namespace, run).await?);
            }
            RunQuestion::Definitions => {
                let policies = self.policies(namespace).await?;
                let workspace = self.workspace(namespace, run).await?;
                new.facts.definitions = Some(Definitions {
                    policies,
                    workspace,
                });
            }
            RunQuestion::Reviews => {
                let (keys, object) = (&self.keys, &run.metadata);
                let found = unreviewed(&self.reviews, keys, &review.user, object).await?;
                new.facts.unreviewed = Some(found);
            }
            RunQuestion::Reads(named) => {
                may_get(&cx.client, &review.user, namespace, &named).await?;
                new.facts.may_read = true;
            }
        }
        Ok(())
    }

    /// Returns the resolved template, or the reason why it is unavailable: the operator waits for
    /// it, and reports that.
    async fn template(
        &self,
        namespace: &str,
        run: &HarnessRun,
    ) -> Result<Result<NamedTemplate, Unavailable>, Rejection> {
        let reference = &run.spec.template_ref;
        let template = reference.name.clone();
        let found = self.watched.templates.find(namespace, reference).await?;
        let Some(found) = found else {
            return Ok(Err(Unavailable::Missing(template)));
        };
        Ok(match found.resolved() {
            Ok(resolved) => Ok(NamedTemplate {
                resolved,
                digest: encode::digest(found.spec()),
            }),
            Err(why) => Err(Unavailable::Unresolved { template, why }),
        })
    }

    async fn policies(&self, namespace: &str) -> Result<Vec<Arc<BrokerPolicy>>, Rejection> {
        let is_here =
            |policy: &BrokerPolicy| policy.metadata.namespace.as_deref() == Some(namespace);
        self.watched.policies.select(is_here).await
    }

    async fn workspace(
        &self,
        namespace: &str,
        run: &HarnessRun,
    ) -> Result<Option<Arc<Workspace>>, Rejection> {
        match &run.spec.workspace_ref {
            Some(name) => self.watched.workspaces.find(Some(namespace), name).await,
            None => Ok(None),
        }
    }
}
