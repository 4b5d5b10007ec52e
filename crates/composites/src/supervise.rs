//! The controllers of CompositeControllers and RegoControllers: the decision which of them run, as which service
//! account, and their conditions. An invalid composite, or one with an account that lacks a right, does not run and
//! reports it; other composites are not affected.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::core::{Selector, SelectorExt};
use oz_api::composite::CompositeControllerStatus;
use oz_api::encode::hex;
use oz_api::{Uid, conditions};
use oz_core::controller::{
    Controller, Decision, Effect, Failure, Live, Outcome, Plan, Step, Transition, Verdict,
};
use oz_core::lifecycle::drift;
use oz_core::lifecycle::window::after;
use oz_core::validate::Violation;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

pub use super::mode::Mode;
pub use super::needs::{binds, has_ends, needs, needs_of_rules};
pub use oz_api::names::COMPOSITE_FINALIZER as FINALIZER;

use super::account::{Account, Accounts};
use super::declared::{Declared, Family, KindName};
use super::guard::{self, Tally};
use super::needs::rules;
use super::since::{POLICY_INVALID, Refused, VERSION};
use super::source::{Declaration, Source};

/// Name of the port that starts and stops composites.
pub const PORT: &str = "composites";
/// Interval between two lookups of kinds and rights without a change.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// Interval between two lookups while something is missing.
const LOOK_AGAIN_SOON: SignedDuration = SignedDuration::from_secs(15);
/// Interval between two passes while parents are released.
const LEAVING: SignedDuration = SignedDuration::from_millis(500);

/// Interval between two passes while the deletions of a policy are counted.
const COUNTING: SignedDuration = SignedDuration::from_secs(2);

/// Reason of a composite with an account that lacks a right.
const PERMISSION_MISSING: &str = "PermissionMissing";
/// Reason of a composite with a kind that the API server does not serve.
pub const KIND_MISSING: &str = "KindMissing";

/// Condition: the declaration is valid.
pub const ACCEPTED: &str = "Accepted";
/// Condition: the account has the required rights.
pub const PERMITTED: &str = "Permitted";
/// Condition: the composite runs.
pub const RUNNING: &str = "Running";

/// Reason of a composite with a policy that would delete more children than the limit.
pub const DELETION_LIMIT_EXCEEDED: &str = "DeletionLimitExceeded";

/// The controller of the composites of one kind of declaration.
#[derive(Clone, Debug)]
pub struct Composites<S> {
    accounts: Accounts,
    natively: Vec<KindName>,
    /// Selector of the composites that run here.
    selector: Selector,
    declarations: PhantomData<fn() -> S>,
}

/// The data about one composite.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The kinds of the composite, as the API server describes them, if it can run with them.
    pub family: Result<Family, Failure>,
    /// The kinds that exist, whether or not the composite can run.
    pub kinds: Kinds,
    /// Whether the parents' status may hold observedGeneration.
    pub observes_generation: bool,
    /// The rights that the account lacks.
    pub lacks: Result<Vec<ResourceAttributes>, Failure>,
    /// The policy that runs in process; `None` for a function behind HTTP.
    pub policy: Option<Result<PolicyFound, Failure>>,
    /// The digest of a policy that does not compile, if its modules exist.
    pub refused: Option<String>,
    /// Number of the parents that the composite holds; `None` if it is unknown.
    pub held: Option<usize>,
    /// The reports of its parents; `None` if they are unknown.
    pub tally: Option<Tally>,
    /// The rights that only the responses of its functions determine.
    pub later: Later,
}

/// The rights that only the responses of functions determine, as far as they are known before a composite runs. The
/// kinds that `customize` selects for the first parent are among the rights that the account lacks.
#[derive(Clone, Debug, Default)]
pub struct Later {
    /// The failure of the call of `customize` for the first parent; `None` if there is no parent.
    pub customize: Option<Failure>,
    /// The rights to bind roles, if the account has none of them, and bindings are among the children.
    pub binds: Vec<ResourceAttributes>,
}

/// The existing kinds of a composite: children expire in these, also if the composite cannot run.
#[derive(Clone, Debug, PartialEq)]
pub enum Kinds {
    /// The kinds are unknown, or the kind of the parents is not served at the moment.
    Unknown,
    /// The kind of the parents has no definition: there are no parents.
    NoParents,
    /// The kinds are served.
    Served {
        /// The family without the kinds of children that are not served.
        family: Family,
        /// Whether an omitted kind has a definition: it may have children that cannot be read now.
        hidden: bool,
    },
}

/// A policy that runs in process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFound {
    /// Digest of its modules.
    pub digest: String,
    /// The language that it is written in.
    pub language: String,
}

impl PolicyFound {
    /// Combines several policies into one, with a digest that changes with each of them; `None` without a policy.
    #[must_use]
    pub fn together(found: &[Self]) -> Option<Self> {
        let of = |part: fn(&Self) -> &String| found.iter().map(part).collect::<BTreeSet<_>>();
        let languages: Vec<&str> = of(|one| &one.language)
            .into_iter()
            .map(String::as_str)
            .collect();
        let digests: Vec<&str> = found.iter().map(|one| one.digest.as_str()).collect();
        Some(Self {
            digest: Self::digest_of(&digests)?,
            language: languages.join(", "),
        })
    }

    /// Returns the digest of several policies together, whether or not they compile; `None` without a policy.
    #[must_use]
    pub fn digest_of(digests: &[&str]) -> Option<String> {
        let different: BTreeSet<&&str> = digests.iter().collect();
        match (different.first(), different.len()) {
            (first, ..=1) => Some((**first?).to_owned()),
            _ => {
                let all = digests.join("\n");
                Some(format!("sha256:{}", hex(&Sha256::digest(all))))
            }
        }
    }
}

/// The composite to run, as input of the port.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The declaration; `None` if nothing runs for it.
    pub composite: Option<Declaration>,
    /// The kinds of the composite.
    pub family: Option<Family>,
    /// The service account that reads and writes.
    pub account: Account,
    /// Whether the parents' status may hold observedGeneration.
    pub observes_generation: bool,
    /// Digest of the policy: a composite with another policy is started again.
    pub policy: Option<String>,
    /// The mode.
    pub mode: Mode,
}

/// The response of the port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Runs {
    /// Whether functions are called.
    pub running: bool,
}

/// The state of a composite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    accepted: Option<(bool, &'static str, String)>,
    permitted: Option<(bool, &'static str, String)>,
    policy: Option<PolicyFound>,
    /// The policy that an earlier version of oz accepted, and this one refuses.
    refused: Option<Refused>,
    /// Whether the policy may delete children that it does not return, although it is guarded.
    trusted: bool,
    /// Whether a change that the policy requests is withheld.
    withholds: bool,
    tally: Option<Tally>,
}

impl<S: Source> Composites<S> {
    /// Creates the controller with the accounts that read and write, and the kinds that oz itself reconciles: a
    /// composite of such a kind would conflict with oz.
    #[must_use]
    pub fn new(accounts: Accounts, natively: Vec<KindName>) -> Self {
        Self {
            accounts,
            natively,
            selector: Selector::default(),
            declarations: PhantomData,
        }
    }

    /// Limits the controller to composites with these labels. A composite without them, or that loses them, belongs
    /// to another controller.
    #[must_use]
    pub fn selecting(mut self, labels: impl IntoIterator<Item = (String, String)>) -> Self {
        self.selector = labels.into_iter().collect();
        self
    }

    /// Checks whether the composite is to be stopped.
    fn is_leaving(&self, composite: &S) -> bool {
        let metadata = composite.meta();
        let none = BTreeMap::new();
        let labels = metadata.labels.as_ref().unwrap_or(&none);
        metadata.deletion_timestamp.is_some() || !self.selector.matches(labels)
    }

    fn stop(&self, uid: Uid<'_>) -> Step {
        self.effect(uid, None, None, None, Mode::Ends)
    }

    fn effect(
        &self,
        uid: Uid<'_>,
        composite: Option<&S>,
        survey: Option<&Survey>,
        policy: Option<String>,
        mode: Mode,
    ) -> Step {
        // One that is not listed is not used, also to end what it made.
        let account = composite.map(|composite| composite.account(&self.accounts.default));
        let account = account.and_then(|named| self.accounts.listed(Some(&named)).cloned());
        let composite = composite.map(|composite| {
            let mut composite = composite.clone().without_status();
            let metadata = composite.meta_mut();
            metadata.managed_fields = None;
            // What does not change what runs is not part of what runs.
            metadata.resource_version = None;
            metadata.finalizers = None;
            metadata.deletion_timestamp = None;
            metadata.deletion_grace_period_seconds = None;
            composite.declaration()
        });
        let run = Run {
            composite,
            family: survey.and_then(|survey| match &survey.kinds {
                Kinds::Served { family, .. } => Some(family.clone()),
                Kinds::Unknown | Kinds::NoParents => None,
            }),
            account: account.unwrap_or_else(|| self.accounts.default.clone()),
            observes_generation: survey.is_some_and(|survey| survey.observes_generation),
            policy,
            mode,
        };
        Step::Effect(Effect {
            port: PORT.to_owned(),
            key: uid.to_string(),
            payload: serde_json::to_value(run).unwrap_or_else(|_| json!({})),
        })
    }

    fn not_listed(&self, declared: &Declared) -> String {
        let named = declared.run_as.as_ref().unwrap_or(&self.accounts.default);
        let all = std::iter::once(&self.accounts.default).chain(&self.accounts.others);
        let all: Vec<String> = all.map(ToString::to_string).collect();
        format!(
            "the service account {named} is not allowed for composites: {}; see \
                composites.accounts",
            all.join(", ")
        )
    }

    /// Returns the decision about an invalid composite, which does not run. Existing children still expire.
    fn refused(
        &self,
        uid: Uid<'_>,
        composite: &S,
        survey: Option<&Survey>,
        (reason, message): (&'static str, String),
    ) -> Decision<Standing> {
        let ends = self.effect(uid, Some(composite), survey, None, Mode::Ends);
        Decision {
            plan: Plan::default().then([ends]),
            state: Standing {
                accepted: Some((false, reason, message)),
                ..Standing::default()
            },
        }
    }

    /// Returns the reason why a composite does not run: rights that are missing or unknown.
    fn lacking(
        &self,
        (composite, declared): (&S, &Declared),
        account: Option<&Account>,
        survey: &Survey,
    ) -> Option<(&'static str, String)> {
        match (account, &survey.lacks) {
            (None, _) => Some(("AccountNotListed", self.not_listed(declared))),
            (_, Ok(lacks)) if lacks.is_empty() => unknown(composite, survey),
            (Some(account), Ok(lacks)) => {
                let all: Vec<_> = lacks.iter().chain(&survey.later.binds).cloned().collect();
                Some((PERMISSION_MISSING, rules(account, &all)))
            }
            (_, Err(failure)) => Some((failure.reason, failure.message.clone())),
        }
    }

    /// Returns the decision about a composite with its survey.
    fn surveyed(
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
            let message = failure.message.clone();
            let why = (failure.reason, message);
            return soon(self.refused(uid, composite, Some(survey), why));
        }
        let policy = match &survey.policy {
            Some(Err(failure)) => {
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
                return soon(decision);
            }
            Some(Ok(found)) => Some(found.clone()),
            None => None,
        };
        let accepted = Some((true, "Accepted", "the composite is accepted".to_owned()));
        let account = self.accounts.listed(declared.run_as.as_ref());
        let lacks = self.lacking((composite, declared), account, survey);
        if let Some((reason, message)) = lacks {
            let ends = self.effect(uid, Some(composite), Some(survey), None, Mode::Ends);
            return soon(Decision {
                plan: Plan::default().then([ends]),
                state: Standing {
                    accepted,
                    permitted: Some((false, reason, message)),
                    policy,
                    ..Standing::default()
                },
            });
        }
        let account = account.unwrap_or(&self.accounts.default);
        let digest = policy.as_ref().map(|found| found.digest.clone());
        let mut plan = Plan::default();
        let held = is_held(composite);
        if has_ends(declared, policy.is_some()) && !held {
            plan = plan.then([Step::Hold(FINALIZER.to_owned())]);
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
        let trusted = mode == Mode::Run && declared.most_deletions.is_some();
        let tally = survey.tally.clone();
        let run = self.effect(uid, Some(composite), Some(survey), digest, mode);
        Decision {
            plan: plan.then([run]).wake_at(after(now, LOOK_AGAIN)),
            state: Standing {
                accepted: match guarded {
                    Guarded::TooMany(message) if mode == Mode::Guard => {
                        Some((false, DELETION_LIMIT_EXCEEDED, message))
                    }
                    _ => accepted,
                },
                permitted: Some(permitted(account, &survey.later.binds)),
                policy,
                refused: None,
                trusted,
                withholds: mode != Mode::Run,
                tally,
            },
        }
    }

    /// Returns the decision about a declaration that cannot run. Children that it created before are in its kinds, if
    /// those can be read.
    fn wrong(
        &self,
        now: Timestamp,
        (uid, composite): (Uid<'_>, &S),
        survey: &Option<Survey>,
        (reason, message): (&'static str, String),
    ) -> Verdict<Box<Declared>, Decision<Standing>> {
        let leaving = self.is_leaving(composite);
        let bare = composite.bare();
        match (bare.declared(), survey) {
            (Ok(declared), None) => Verdict::Need {
                question: Box::new(declared),
                until: None,
            },
            (Ok(_), Some(survey)) if leaving => {
                Verdict::Decided(self.leave(now, uid, &bare, survey))
            }
            (Ok(_), Some(survey)) => {
                let mut decision = self.refused(uid, &bare, Some(survey), (reason, message));
                let wake = match survey.kinds {
                    Kinds::Served { hidden: false, .. } => LOOK_AGAIN,
                    _ => LOOK_AGAIN_SOON,
                };
                decision.plan = decision.plan.wake_at(after(now, wake));
                Verdict::Decided(decision)
            }
            (Err(_), _) => {
                let mut decision = self.refused(uid, composite, None, (reason, message));
                if leaving {
                    // Nothing of it has ever run as it is now.
                    decision.plan = decision.plan.then([Step::Release(FINALIZER.to_owned())]);
                }
                Verdict::Decided(decision)
            }
        }
    }

    /// Returns the decision about a composite that is being deleted: children with an expiry are deleted with it, and
    /// parents are released.
    fn leave(
        &self,
        now: Timestamp,
        uid: Uid<'_>,
        composite: &S,
        survey: &Survey,
    ) -> Decision<Standing> {
        let state = Standing::default();
        let run = |mode| self.effect(uid, Some(composite), Some(survey), None, mode);
        let over = || {
            let release = Step::Release(FINALIZER.to_owned());
            Plan::default().then([self.stop(uid)]).then([release])
        };
        let plan = match &survey.kinds {
            Kinds::NoParents => over(),
            _ if survey.held == Some(0) => over(),
            // What cannot be seen now may have ends.
            Kinds::Unknown | Kinds::Served { hidden: true, .. } => {
                let ends = Plan::default().then([run(Mode::Ends)]);
                ends.wake_at(after(now, LOOK_AGAIN_SOON))
            }
            Kinds::Served { .. } => {
                let leaves = Plan::default().then([run(Mode::Leave)]);
                leaves.wake_at(after(now, LEAVING))
            }
        };
        Decision { plan, state }
    }
}

/// Returns the reason why the required rights are unknown, if they are, for a composite that does not run yet. One that
/// runs continues: its parents report each call that fails.
fn unknown<S: Source>(composite: &S, survey: &Survey) -> Option<(&'static str, String)> {
    let failure = survey.later.customize.as_ref()?;
    let standing = composite.standing().filter(|standing| {
        let observed = standing.observed_generation;
        observed.is_some() && observed == composite.meta().generation
    });
    let running = standing.and_then(|standing| conditions::find(&standing.conditions, RUNNING));
    if running.is_some_and(|running| running.status == "True") {
        return None;
    }
    let message = format!(
        "the composite runs when customize has responded for the first parent, which shows the \
            rights that it requires: {}",
        failure.message
    );
    Some((failure.reason, message))
}

/// Returns the condition of a composite that runs, with an account that may have none of the rights to bind roles.
fn permitted(account: &Account, binds: &[ResourceAttributes]) -> (bool, &'static str, String) {
    if binds.is_empty() {
        return (
            true,
            "Permitted",
            format!("{account} has the required rights"),
        );
    }
    // It runs: an account with all rights in a role binds it without this verb.
    let rules = rules(account, binds);
    let message = format!(
        "{rules} (for one of these roles at least, or all rights in it): the API server refuses the \
            bindings among its children"
    );
    (false, PERMISSION_MISSING, message)
}

fn is_held<S: Source>(composite: &S) -> bool {
    drift::has_finalizer(composite.meta(), FINALIZER)
}

/// The decision whether a policy may delete children that it does not return.
enum Guarded {
    /// Deletion is permitted.
    Not,
    /// The number of deletions is unknown yet.
    Counting,
    /// The policy would delete too many children, for this reason.
    TooMany(String),
}

/// Returns the guard of a policy. A policy that ran before, or with an accepted digest, may delete; another must stay
/// within the limit.
fn guard_of<S: Source>(
    composite: &S,
    declared: &Declared,
    survey: &Survey,
    digest: Option<&str>,
) -> Guarded {
    let (Some(most), Some(digest)) = (declared.most_deletions, digest) else {
        return Guarded::Not;
    };
    let before = composite
        .standing()
        .and_then(|status| status.accepted_digest.as_deref());
    let annotations = composite.meta().annotations.as_ref();
    let accepted = annotations.and_then(|annotations| annotations.get(guard::ACCEPT));
    if before == Some(digest) || accepted.is_some_and(|accepted| accepted == digest) {
        return Guarded::Not;
    }
    // What runs may still be the policy before this one: what its parents told says nothing of this.
    let tally = survey.tally.as_ref();
    let tally = tally.filter(|tally| tally.complete && tally.policy.as_deref() == Some(digest));
    let Some(tally) = tally else {
        return Guarded::Counting;
    };
    if tally.is_within(most) {
        return Guarded::Not;
    }
    let doubtful = match tally.doubtful {
        0 => String::new(),
        count => format!(", and possibly {count} more"),
    };
    Guarded::TooMany(format!(
        "the policy {digest} would delete {} children{doubtful}; the maximum is {most} \
            (limits.deletions). Creations and changes continue. To accept the deletions: annotate \
            {}={digest}",
        tally.deletions,
        guard::ACCEPT,
    ))
}

impl<S: Source> Controller for Composites<S> {
    type Object = S;
    type Facts = Option<Survey>;
    type Question = Box<Declared>;
    type State = Standing;
    type Status = CompositeControllerStatus;

    fn name(&self) -> &str {
        S::NAME
    }

    fn dynamic_type(&self) {}

    fn current_status(&self, object: &S) -> Option<CompositeControllerStatus> {
        object.standing().cloned()
    }

    fn decide(
        &self,
        now: Timestamp,
        object: &S,
        facts: &Option<Survey>,
        _: &[Live],
    ) -> Verdict<Box<Declared>, Decision<Standing>> {
        let uid = match Uid::from_metadata(object.meta()) {
            Ok(uid) => uid,
            Err(error) => {
                return Verdict::Decided(Decision {
                    plan: Plan::default().because(error.into()),
                    state: Standing::default(),
                });
            }
        };
        let leaving = self.is_leaving(object);
        if leaving && !is_held(object) {
            let plan = Plan::default().then([self.stop(uid)]);
            return Verdict::Decided(Decision {
                plan,
                state: Standing::default(),
            });
        }
        let declared = match object.declared() {
            Ok(declared) if !self.natively.contains(&declared.parent) => declared,
            Ok(declared) => {
                let message = format!(
                    "{} is served by oz itself (transient.serveExampleCom); switch that off to have the composite run",
                    declared.parent
                );
                return self.wrong(now, (uid, object), facts, ("ServedNatively", message));
            }
            Err(violations) => {
                let message = Violation::list(&violations);
                return self.wrong(now, (uid, object), facts, ("NotAccepted", message));
            }
        };
        match facts {
            None => Verdict::Need {
                question: Box::new(declared),
                until: None,
            },
            Some(survey) if leaving => Verdict::Decided(self.leave(now, uid, object, survey)),
            Some(survey) => Verdict::Decided(self.surveyed(now, uid, (object, &declared), survey)),
        }
    }

    fn status(
        &self,
        now: Timestamp,
        object: &S,
        decision: &Decision<Standing>,
        outcome: &Outcome,
    ) -> CompositeControllerStatus {
        let mut status = object.standing().cloned().unwrap_or_default();
        let generation = object.meta().generation;
        let standing = &decision.state;
        if standing.accepted.is_none() {
            return status;
        }
        status.observed_generation = generation;
        let account = object.account(&self.accounts.default);
        status.account = Some(account.to_string());
        status.policy_refused_since = None;
        match &standing.refused {
            // The policy is the one that the version accepted.
            Some(refused) => status.policy_refused_since = Some(refused.since.clone()),
            None => {
                let policy = standing.policy.as_ref();
                status.policy_digest = policy.map(|policy| policy.digest.clone());
                status.policy_version = policy.map(|_| VERSION.to_owned());
                status.language = policy.map(|policy| policy.language.clone());
            }
        }
        if S::COUNTS_PARENTS {
            let digits = status.policy_digest.as_deref().and_then(|digest| {
                let (_, digits) = digest.split_once(':')?;
                digits.get(..8)
            });
            status.policy = digits.map(ToOwned::to_owned);
            if let Some(tally) = &standing.tally {
                status.parents = i64::try_from(tally.parents).ok();
            }
        }
        if standing.trusted {
            status.accepted_digest.clone_from(&status.policy_digest);
        }
        let tally = standing.tally.as_ref().filter(|_| standing.withholds);
        let pending = tally.into_iter().flat_map(|tally| tally.pending.clone());
        status.pending = pending.collect();
        let mut set = |type_: &str, (holds, reason, message): (bool, &str, String)| {
            conditions::set(
                &mut status.conditions,
                type_,
                holds,
                reason,
                message,
                generation,
                now,
            );
        };
        let unknown = (
            false,
            "NotAccepted",
            "the composite is not accepted".to_owned(),
        );
        set(
            ACCEPTED,
            standing.accepted.clone().unwrap_or(unknown.clone()),
        );
        set(PERMITTED, standing.permitted.clone().unwrap_or(unknown));
        let uid = object.meta().uid.as_deref();
        let answer = uid.and_then(|uid| outcome.answers.get(PORT, uid));
        let runs = answer.and_then(|answer| serde_json::from_value::<Runs>(answer.clone()).ok());
        let is_running = runs.is_some_and(|runs| runs.running);
        let running = match (&outcome.failure, is_running) {
            (_, true) => (true, "Running", "parents are reconciled".to_owned()),
            (Some(failure), false) => (false, failure.reason, failure.message.clone()),
            (None, false) => (false, "Stopped", "see the other conditions".to_owned()),
        };
        set(RUNNING, running);
        status
    }

    fn orphaned(&self, _: Timestamp, object: Option<&S>, _: &[Live]) -> Plan {
        let uid = object.and_then(|object| Uid::from_metadata(object.meta()).ok());
        Plan::default().then(uid.map(|uid| self.stop(uid)))
    }

    fn transitions(
        &self,
        _: &S,
        before: Option<&CompositeControllerStatus>,
        after: &CompositeControllerStatus,
    ) -> Vec<Transition> {
        let mut transitions = Vec::new();
        for type_ in [ACCEPTED, PERMITTED, RUNNING] {
            let old = before.and_then(|before| conditions::find(&before.conditions, type_));
            let Some(new) = conditions::find(&after.conditions, type_) else {
                continue;
            };
            if old.is_some_and(|old| old.status == new.status && old.message == new.message) {
                continue;
            }
            let (warning, reason) = match (type_, new.status.as_str()) {
                (ACCEPTED, "False") => (true, "NotAccepted"),
                (PERMITTED, "False") => (true, "NotPermitted"),
                (RUNNING, "True") => (false, "Running"),
                _ => continue,
            };
            transitions.push(Transition {
                warning,
                reason,
                action: "Run",
                note: new.message.clone(),
                due: None,
            });
        }
        transitions
    }
}
