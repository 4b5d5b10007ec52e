//! Evaluating: the decision whether a composite runs, and in which mode, from its survey.

use jiff::{SignedDuration, Timestamp};
use oz_api::Uid;
use oz_api::names::COMPOSITE_FINALIZER;
use oz_core::controller::{Decision, Failure, Plan, Step};
use oz_core::lifecycle::window::after;

use super::composites::{Composites, is_held};
use super::deletions::{DELETION_LIMIT_EXCEEDED, Guarded, guard_of};
use super::permit::permitted;
use super::report::Standing;
use super::survey::{PolicyFound, Survey};
use crate::account::Account;
use crate::declared::Declared;
use crate::mode::Mode;
use crate::needs::has_ends;
use crate::since::{POLICY_INVALID, Refused};
use crate::source::Source;

/// Interval between two lookups of kinds and rights without a change.
pub(super) const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// Interval between two lookups while something is missing.
pub(super) const LOOK_AGAIN_SOON: SignedDuration = SignedDuration::from_secs(15);
/// Interval between two passes while the deletions of a policy are counted.
const COUNTING: SignedDuration = SignedDuration::from_secs(2);

impl<S: Source> Composites<S> {
    /// Returns the decision about a composite with its survey.
    pub(super) fn surveyed(
        &self,
        now: Timestamp,
        uid: Uid<'_>,
        (composite, declared): (&S, &Declared),
        survey: &Survey,
    ) -> Decision<Standing> {
        let soon = |mut decision: Decision<Standing>| {
            decision.plan = decision.plan.wake_at(after(now, LOOK_AGAIN_SOON));
            decision
        };
        if let Err(failure) = &survey.family {
            let why = (failure.reason, failure.message.clone());
            return soon(self.refused(uid, composite, Some(survey), why));
        }
        let policy = match &survey.policy {
            Some(Err(failure)) => {
                return soon(self.policy_refused(uid, composite, survey, failure));
            }
            Some(Ok(found)) => Some(found.clone()),
            None => None,
        };
        let account = self.accounts.listed(declared.run_as.as_ref());
        let lacks = self.lacking((composite, declared), account, survey);
        if let Some((reason, message)) = lacks {
            let ends = self.only_end(uid, composite, Some(survey));
            return soon(Decision {
                plan: Plan::default().then([ends]),
                state: Standing {
                    accepted: Some(accepted()),
                    permitted: Some((false, reason, message)),
                    policy,
                    ..Standing::default()
                },
            });
        }
        let account = account.unwrap_or(&self.accounts.default);
        self.start(now, uid, (composite, declared), account, survey, policy)
    }

    /// Returns the decision about an invalid composite, which does not run. Existing children still expire.
    pub(super) fn refused(
        &self,
        uid: Uid<'_>,
        composite: &S,
        survey: Option<&Survey>,
        (reason, message): (&'static str, String),
    ) -> Decision<Standing> {
        let ends = self.only_end(uid, composite, survey);
        Decision {
            plan: Plan::default().then([ends]),
            state: Standing {
                accepted: Some((false, reason, message)),
                ..Standing::default()
            },
        }
    }

    /// Returns the decision about a composite with a policy that does not compile or cannot be read.
    fn policy_refused(
        &self,
        uid: Uid<'_>,
        composite: &S,
        survey: &Survey,
        failure: &Failure,
    ) -> Decision<Standing> {
        let digest = survey.refused.as_deref();
        let digest = digest.filter(|_| failure.reason == POLICY_INVALID);
        let refused = Refused::find(composite.standing(), digest);
        let message = match &refused {
            Some(refused) => refused.message(&failure.message),
            None => failure.message.clone(),
        };
        let why = (failure.reason, message);
        let mut decision = self.refused(uid, composite, Some(survey), why);
        decision.state.refused = refused;
        decision
    }

    /// Returns the decision about a composite that runs.
    fn start(
        &self,
        now: Timestamp,
        uid: Uid<'_>,
        (composite, declared): (&S, &Declared),
        account: &Account,
        survey: &Survey,
        policy: Option<PolicyFound>,
    ) -> Decision<Standing> {
        let digest = policy.as_ref().map(|found| found.digest.clone());
        let mut plan = Plan::default();
        if has_ends(declared, policy.is_some()) && !is_held(composite) {
            plan = plan.then([Step::Hold(COMPOSITE_FINALIZER.to_owned())]);
        }
        let guarded = guard_of(composite, declared, survey, digest.as_deref());
        let mode = match &guarded {
            _ if declared.dry_run => Mode::DryRun,
            Guarded::Not => Mode::Run,
            Guarded::Counting | Guarded::TooMany(_) => Mode::Guard,
        };
        if matches!(guarded, Guarded::Counting) {
            plan = plan.wake_at(after(now, COUNTING));
        }
        if !survey.later.binds.is_empty() {
            plan = plan.wake_at(after(now, LOOK_AGAIN_SOON));
        }
        let run = self.effect(uid, Some(composite), Some(survey), digest, mode);
        Decision {
            plan: plan.then([run]).wake_at(after(now, LOOK_AGAIN)),
            state: Standing {
                accepted: Some(match guarded {
                    Guarded::TooMany(message) if mode == Mode::Guard => {
                        (false, DELETION_LIMIT_EXCEEDED, message)
                    }
                    _ => accepted(),
                }),
                permitted: Some(permitted(account, &survey.later.binds)),
                policy,
                refused: None,
                trusted: mode == Mode::Run && declared.most_deletions.is_some(),
                withholds: mode != Mode::Run,
                tally: survey.tally.clone(),
            },
        }
    }
}

/// Returns the condition of an accepted composite.
fn accepted() -> (bool, &'static str, String) {
    (true, "Accepted", "the composite is accepted".to_owned())
}
