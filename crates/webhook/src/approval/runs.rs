//! Approvals and denials of harness runs: their templates and the access policies of the cluster
//! define the approval rules.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use oz_admission::Rejection;
use oz_api::harness::HarnessRun;
use oz_core::access::approval::admission::{self, Found};
use oz_core::access::policy;
use oz_core::access::stamp::{self, Stamp};
use oz_core::kinds::Kind as _;
use oz_runs::objects::KIND;
use oz_runs::run::{candidate, spec_digest};
use oz_runs::stored::StoredObject;
use oz_runs::terms;

use super::approvable::{Approvable, Judged, Question, answers, stricter};
use crate::harness::{FoundTemplate, RunTemplates};
use crate::policy::{Judges, RunAsking};
use crate::refusal::{denied, namespace, unidentified};
use crate::stamp::requester;

/// The harness runs, and their templates.
pub(crate) struct Runs {
    pub(crate) templates: RunTemplates,
    pub(crate) judges: Judges,
}

impl Runs {
    async fn allowed(&self, question: Question<'_>) -> Result<Judged, Rejection> {
        let Question {
            keys,
            cx,
            review,
            object,
        } = question;
        let (run, answers) = futures::try_join!(question.find::<HarnessRun>(), answers(question))?;
        let Some(run) = run else {
            return Err(question.missing(HarnessRun::title()));
        };
        let stored = StoredObject::new(&run).map_err(unidentified)?;
        let stamp = stamp::open(keys, KIND, &run.metadata, &spec_digest(&run)).ok();
        let judgement = stamp.as_ref().and_then(|stamp| stamp.judgement.as_ref());
        let reference = &run.spec.template_ref;
        let template = self.templates.find(namespace(review)?, reference).await?;
        let required = |template: &FoundTemplate| {
            let resolved = template.resolved().ok()?;
            let approval = policy::joined(resolved.approval, judgement);
            Some((template.digest(), approval))
        };
        let found = Found {
            request: candidate(&stored),
            template: template.as_ref().and_then(required),
            answers: &answers,
        };
        let approver = requester(&review.user);
        let rules = admission::may(keys, &approver, object, &found, cx.now).map_err(denied)?;
        if let (true, Some(stamp), Some(template)) = (object.spec.approval, &stamp, &template) {
            self.still(question, &run, stamp, template).await?;
        }
        Ok(Judged {
            rules,
            template: run.spec.template_ref.name.clone(),
        })
    }

    /// Checks the run against the current access policies: if they are stricter than the sealed
    /// judgement, the approver has not seen them.
    async fn still(
        &self,
        question: Question<'_>,
        run: &HarnessRun,
        stamp: &Stamp,
        template: &FoundTemplate,
    ) -> Result<(), Rejection> {
        let Question { cx, review, .. } = question;
        let asking = RunAsking {
            requester: &stamp.requester,
            extra: &stamp.extra,
            run,
            namespace: namespace(review)?,
            template: Some(template),
        };
        let new = self.judges.judge_run(cx, &review.user, &asking).await?;
        let sealed = stamp.judgement.as_ref();
        let tickets = template.resolved().map(|resolved| resolved.tickets);
        let tickets = tickets.unwrap_or_default();
        let ask = terms::ask(&run.spec);
        let Some(why) = policy::stricter_of_run(sealed, new.as_ref(), ask, &tickets) else {
            return Ok(());
        };
        let stored = StoredObject::new(run).map_err(unidentified)?;
        Err(stricter(&candidate(&stored), &why))
    }

    async fn withdrawn(&self, question: Question<'_>) -> Result<(), Rejection> {
        let run = question.find::<HarnessRun>().await?;
        let stored = run.as_ref().map(StoredObject::new).transpose();
        let stored = stored.map_err(unidentified)?;
        let candidate = stored.as_ref().map(candidate);
        question.withdrawn(candidate.as_ref())
    }
}

impl Approvable for Runs {
    fn kind(&self) -> &'static str {
        HarnessRun::title()
    }

    fn is_of_the_cluster(&self) -> bool {
        false
    }

    fn judge<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Judged, Rejection>> {
        self.allowed(question).boxed()
    }

    fn withdraw<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<(), Rejection>> {
        self.withdrawn(question).boxed()
    }
}
