//! The end of a parent that is deleted with its window. The deletion has the checks of a child's deletion: the account
//! deletes the parent, and each author of a parent of a privileged kind must be allowed to delete it.

use jiff::Timestamp;
use kube::core::DynamicObject;
use oz_core::controller::{Decision, Failure, Live, Plan, Step, Verdict};
use oz_core::lifecycle::window::{after, has_come};

use super::adoption::is_of_oz;
use super::answer::WindowError;
use super::controller::{Composite, Facts, JUDGED_AGAIN, Parent, Pass, Question, decided};
use super::function::title;
use super::guard::Report;
use super::rights;
use super::supervise::Mode;

/// The reason why a parent is not deleted yet.
enum Kept {
    /// The decision requires this data.
    Need(Question),
    /// The parent must not be deleted.
    Refused(Failure),
}

impl From<Failure> for Kept {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl Composite {
    /// Returns the instant at which the parent itself is deleted; `None` if it is not deleted, or is being deleted
    /// already.
    #[must_use]
    pub fn parent_end(&self, parent: &DynamicObject) -> Option<Timestamp> {
        let window = self.declared.window.as_ref()?;
        let metadata = &parent.metadata;
        let labels = metadata.labels.clone().into_iter().flatten();
        let lasts = metadata.deletion_timestamp.is_some()
            || self.mode == Mode::Leave
            || !window.deletes_parent()
            || !self.declared.selects(&labels.collect());
        if lasts { None } else { window.end(parent) }
    }

    /// Returns the decision about a parent at its end.
    pub(super) fn ends(
        &self,
        now: Timestamp,
        parent: &Parent<'_>,
        facts: &Facts,
    ) -> Option<Verdict<Question, Decision<Pass>>> {
        let object = parent.owner.object;
        self.parent_end(object).filter(|end| has_come(now, *end))?;
        if self.mode == Mode::DryRun {
            let kind = &self.family.parent.resource.kind;
            let namespace = object.metadata.namespace.as_deref();
            let report = Report {
                delete: vec![title(kind, namespace, parent.owner.name.as_str())],
                ..self.report(parent)
            };
            return Some(decided(
                Plan::default().then([report.step(parent.owner.uid.as_str())]),
            ));
        }
        Some(match self.may_delete(parent, facts) {
            Ok(()) => decided(Plan::default().then([Step::DeleteSelf])),
            Err(Kept::Need(question)) => Verdict::Need {
                question,
                until: None,
            },
            Err(Kept::Refused(failure)) => {
                let plan = Plan::default().because(failure);
                decided(plan.wake_at(after(now, JUDGED_AGAIN)))
            }
        })
    }

    /// Checks whether a parent may be deleted.
    fn may_delete(&self, parent: &Parent<'_>, facts: &Facts) -> Result<(), Kept> {
        let object = parent.owner.object;
        if is_of_oz(object) {
            let message = format!(
                "{} was created by oz, and composites do not delete it",
                self.title(object)
            );
            return Err(Failure::invalid("Reserved", message).into());
        }
        // The rights are not checked where nothing is written.
        let Some(policy) = self.bindable.as_deref() else {
            return Ok(());
        };
        let kind = &self.family.parent.resource;
        let authors = rights::title(&kind.kind, &kind.group);
        let authors = rights::authors_of(&self.keys, &authors, object);
        let live = Live {
            resource: kind.clone(),
            object: object.clone(),
        };
        let want = rights::taken(&live, authors.as_deref().unwrap_or(&[]));
        let Some(want) = want else {
            return Ok(());
        };
        if let Err(error) = authors {
            let message = format!(
                "{} is not deleted at its end: its kind is privileged, and its author is not \
                 verified: {error}",
                self.title(object)
            );
            return Err(Failure {
                message,
                ..error.failure()
            }
            .into());
        }
        match want.answer(&facts.rights) {
            None => Err(Kept::Need(Question::Rights(vec![want]))),
            Some(found) => want.judge(policy, found).map_err(|failure| {
                let message = format!("{}: {}", self.title(object), failure.message);
                Failure { message, ..failure }.into()
            }),
        }
    }

    /// Returns the plan for a parent of a composite without a function, which only ends.
    pub(super) fn lasts(&self, parent: &Parent<'_>) -> Plan {
        let object = parent.owner.object;
        let window = self.declared.window.as_ref();
        match window.map(|window| window.bounds(object)).transpose() {
            // A parent without an end lasts.
            Err(WindowError::NoEnd { .. }) => Plan::default(),
            Err(error) => {
                let message = format!("{} {error}", self.title(object));
                Plan::default().because(Failure::invalid("WindowInvalid", message))
            }
            Ok(bounds) => {
                let until = bounds.and_then(|bounds| bounds.until);
                until.into_iter().fold(Plan::default(), Plan::wake_at)
            }
        }
    }
}
