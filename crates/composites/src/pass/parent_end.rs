//! The end of a parent that is deleted with its window. The deletion has the checks of a child's deletion: the account
//! deletes the parent, and each author of a parent of a privileged kind must be allowed to delete it.

use jiff::Timestamp;
use kube::core::DynamicObject;
use oz_api::labels;
use oz_core::controller::{Decision, Failure, Live, Plan, Step, Verdict};
use oz_core::lifecycle::window::{after, has_come};

use super::composite::Composite;
use super::facts::{Parent, Question};
use super::report::{Pass, decided};
use crate::adoption::is_of_oz;
use crate::answer::WindowError;
use crate::function::title;
use crate::guard::Report;
use crate::mode::Mode;
use crate::owner::Owner;
use crate::rights::{self, CHECK_AGAIN};

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
        let lasts = metadata.deletion_timestamp.is_some()
            || self.mode == Mode::Leave
            || !window.deletes_parent()
            || !self.declared.selects(labels::of_object(metadata));
        if lasts { None } else { window.end(parent) }
    }

    /// Returns the decision about a parent at its end; `None` before its end.
    pub(super) fn end_parent(
        &self,
        parent: &Parent<'_>,
    ) -> Option<Verdict<Question, Decision<Pass>>> {
        let owner = &parent.owner;
        let end = self.parent_end(owner.object);
        end.filter(|end| has_come(parent.now, *end))?;
        if self.mode == Mode::DryRun {
            let kind = &self.family.parent.resource.kind;
            let namespace = owner.object.metadata.namespace.as_deref();
            let report = Report {
                delete: vec![title(kind, namespace, owner.name.as_str())],
                ..self.report(parent)
            };
            let report = report.step(owner.uid.as_str());
            return Some(decided(Plan::default().then([report])));
        }
        Some(match may_delete(parent) {
            Ok(()) => decided(Plan::default().then([Step::DeleteSelf])),
            Err(Kept::Need(question)) => Verdict::Need {
                question,
                until: None,
            },
            Err(Kept::Refused(failure)) => {
                let plan = Plan::default().because(failure);
                decided(plan.wake_at(after(parent.now, CHECK_AGAIN)))
            }
        })
    }
}

/// Checks whether a parent may be deleted.
fn may_delete(parent: &Parent<'_>) -> Result<(), Kept> {
    let owner = &parent.owner;
    if is_of_oz(owner.object) {
        let error = "was created by oz, and composites do not delete it";
        return Err(owner.invalid("Reserved", &error).into());
    }
    // The rights are not checked where nothing is written.
    let Some(policy) = owner.rules.bindable else {
        return Ok(());
    };
    let authors = rights::authors_of(owner);
    let live = Live {
        resource: owner.rules.family.parent.resource.clone(),
        object: owner.object.clone(),
    };
    let want = rights::taken(&live, authors.as_deref().unwrap_or(&[]));
    let Some(want) = want else {
        return Ok(());
    };
    if let Err(error) = authors {
        let message = format!(
            "{} is not deleted at its end: its kind is privileged, and its author is not \
             verified: {error}",
            owner.key()
        );
        return Err(Failure {
            message,
            ..error.failure()
        }
        .into());
    }
    match want.answer(&parent.facts.rights) {
        None => Err(Kept::Need(Question::Rights(vec![want]))),
        Some(found) => want.judge(policy, found).map_err(|failure| {
            let message = format!("{}: {}", owner.key(), failure.message);
            Failure { message, ..failure }.into()
        }),
    }
}

/// Returns the plan for a parent of a composite without a function, which only ends.
pub(super) fn wait_for_end(owner: &Owner<'_>) -> Plan {
    let window = owner.rules.window;
    match window.map(|window| window.bounds(owner.object)).transpose() {
        // A parent without an end lasts.
        Err(WindowError::NoEnd { .. }) => Plan::default(),
        Err(error) => Plan::default().because(owner.invalid("WindowInvalid", &error)),
        Ok(bounds) => {
            let until = bounds.and_then(|bounds| bounds.until);
            until.into_iter().fold(Plan::default(), Plan::wake_at)
        }
    }
}
