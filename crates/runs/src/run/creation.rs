//! A new run, as the rules read it at its creation.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::harness::{BrokerPolicy, HarnessRun, Workspace};
use oz_core::access::denial::Denial;
use oz_core::access::emergency;
use oz_core::access::lock::{Access, Locks};
use oz_core::access::policy::Judgement;
use oz_core::access::rules::{Creation, CreationStop, NewObject};
use oz_core::access::stamp::{self, Stamp, StampError};
use oz_core::lifecycle::seal::Keys;
use oz_core::validate::Violation;

use super::spec::{access, judged, spec_digest};
use crate::admission::{self, Named};
use crate::objects::KIND;
use crate::policy::Matching;
use crate::requires::{self, Shortfall};
use crate::template::{Resolved, Unresolved};
use crate::terms;

type Stop = CreationStop<RunQuestion>;

/// A new run.
pub struct NewRun<'a> {
    creation: Creation<'a>,
    namespace: &'a str,
    run: &'a HarnessRun,
    stamp: Result<Stamp, StampError>,
    /// The facts that were asked for.
    pub facts: RunFacts,
}

/// The facts about a new run. A fact is `None` until its question was asked.
#[derive(Debug, Default)]
pub struct RunFacts {
    /// The answer to [`RunQuestion::Locks`].
    pub locks: Option<Locks>,
    /// The answer to [`RunQuestion::Template`].
    pub template: Option<Result<NamedTemplate, Unavailable>>,
    /// The answer to [`RunQuestion::Definitions`].
    pub definitions: Option<Definitions>,
    /// The answer to [`RunQuestion::Reviews`].
    pub unreviewed: Option<Vec<String>>,
    /// Whether the creator may get each object of [`RunQuestion::Reads`]; false until that was asked.
    pub may_read: bool,
}

/// The template that a run names.
#[derive(Debug)]
pub struct NamedTemplate {
    /// The template, merged with its base.
    pub resolved: Resolved,
    /// Digest of its spec.
    pub digest: String,
}

/// The reason why the template of a run is unavailable. The run waits for it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unavailable {
    /// It does not exist.
    #[error("template {0} does not exist; the run waits a minute for it")]
    Missing(String),
    /// It cannot be resolved.
    #[error("template {template}: {why}")]
    Unresolved {
        /// The name of the template.
        template: String,
        /// The reason.
        why: Unresolved,
    },
}

/// The objects of the namespace that define runs of a template.
#[derive(Debug)]
pub struct Definitions {
    /// All broker policies of the namespace.
    pub policies: Vec<Arc<BrokerPolicy>>,
    /// The workspace that the run names, if it exists.
    pub workspace: Option<Arc<Workspace>>,
}

/// A question about a new run. They are asked in this order, and only if the answer matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunQuestion {
    /// All locks.
    Locks,
    /// The template that the run names.
    Template,
    /// The broker policies of the namespace, and the workspace that the run names.
    Definitions,
    /// The unreviewed emergencies of the creator, by the UIDs of their objects.
    Reviews,
    /// Whether the creator may get these objects, as the API server decides. A run that names others is denied with the
    /// answer.
    Reads(Vec<Named>),
}

impl<'a> NewRun<'a> {
    /// Reads a new run in this namespace, of which no fact is known yet.
    #[must_use]
    pub fn new(
        keys: &Keys,
        creation: Creation<'a>,
        (namespace, run): (&'a str, &'a HarnessRun),
    ) -> Self {
        Self {
            creation,
            namespace,
            run,
            stamp: stamp::open(keys, KIND, &run.metadata, &spec_digest(run)),
            facts: RunFacts::default(),
        }
    }

    /// Returns the template that the rules read, if it is available.
    #[must_use]
    pub fn found_template(&self) -> Option<&NamedTemplate> {
        self.facts.template.as_ref()?.as_ref().ok()
    }

    /// Returns the template, or the reason why it is unavailable.
    fn named(&self) -> Result<Result<&NamedTemplate, &Unavailable>, Stop> {
        let asked = self.facts.template.as_ref();
        let found = asked.ok_or(CreationStop::Need(RunQuestion::Template))?;
        Ok(found.as_ref())
    }

    fn definitions(&self) -> Result<(Matching<'_>, Option<&Workspace>), Stop> {
        let asked = self.facts.definitions.as_ref();
        let known = asked.ok_or(CreationStop::Need(RunQuestion::Definitions))?;
        let policies = known.policies.iter().map(AsRef::as_ref);
        let matching = Matching::from_policies(policies, &self.run.spec.template_ref.name);
        Ok((matching, known.workspace.as_deref()))
    }
}

impl NewObject for NewRun<'_> {
    type Question = RunQuestion;
    const AGAIN: &'static str = "submit the run";

    fn ask_locks() -> RunQuestion {
        RunQuestion::Locks
    }

    fn ask_reviews() -> RunQuestion {
        RunQuestion::Reviews
    }

    fn creation(&self) -> Creation<'_> {
        self.creation
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.run.metadata
    }

    fn violations(&self) -> Vec<Violation> {
        admission::run(self.run)
    }

    fn stamp(&self) -> Result<&Stamp, &StampError> {
        self.stamp.as_ref()
    }

    fn locks(&self) -> Option<&Locks> {
        self.facts.locks.as_ref()
    }

    fn access(&self) -> Result<Access<'_>, Stop> {
        let (creator, namespace) = (self.creation.creator, Some(self.namespace));
        Ok(access(creator, namespace, self.run))
    }

    fn template(&self, warnings: &mut Vec<String>) -> Result<(), Stop> {
        warnings.extend(self.named()?.err().map(ToString::to_string));
        Ok(())
    }

    /// Checks whether the run has the change ticket that its template requires, and whether the creator may declare its
    /// emergency.
    fn permits(&self) -> Result<(), Stop> {
        let Ok(template) = self.named()? else {
            return Ok(());
        };
        let may = terms::may(self.creation.creator, &self.run.spec, &template.resolved);
        may.map_err(Stop::from)
    }

    fn judged(&self, judgement: Option<&Judgement>, _: &mut Vec<String>) -> Result<(), Stop> {
        judged(self.run, judgement).map_err(Stop::from)
    }

    fn template_terms(&self, _: &mut Vec<String>) -> Result<(), Stop> {
        let Ok(template) = self.named()? else {
            return Ok(());
        };
        let (policies, workspace) = self.definitions()?;
        let resolved = &template.resolved;
        let found = admission::run_of_template(self.run, resolved, &policies, workspace);
        Stop::of_fields(found)
    }

    fn emergency(&self) -> Result<Option<emergency::Terms>, Stop> {
        let template = self.named()?.ok();
        Ok(template.and_then(|it| it.resolved.declared_emergency(&self.run.spec)))
    }

    fn unreviewed(&self) -> Option<&[String]> {
        self.facts.unreviewed.as_deref()
    }

    /// Checks whether the creator may read the sources of the prompt, and whether the broker policies grant what the template
    /// requires. They follow the access policies: a user who is denied by these does not learn which credentials are granted.
    fn requirements(&self, _: &mut Vec<String>) -> Result<(), Stop> {
        let reads = admission::of_run(self.run);
        if !reads.is_empty() && !self.facts.may_read {
            return Err(Stop::Need(RunQuestion::Reads(reads)));
        }
        let Ok(template) = self.named()? else {
            return Ok(());
        };
        let (policies, _) = self.definitions()?;
        let (name, now) = (&self.run.spec.template_ref.name, self.creation.now);
        requires::admitted(name, self.namespace, &template.resolved, &policies, now).map_err(
            |lacking| {
                let reason = match lacking {
                    Shortfall::Expired { .. } => "DiscoveryExpired",
                    Shortfall::Lacking { .. } => "NotGranted",
                };
                let denial = Denial::new(reason, lacking.to_string());
                Stop::of_field(denial, "spec.templateRef")
            },
        )
    }
}
