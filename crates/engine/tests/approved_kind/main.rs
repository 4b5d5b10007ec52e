//! A complete kind that ends, with approvals and locks. A Pause requests that no user deploys into its namespace for a
//! while: as long as it lasts there is a ConfigMap of its name. Access policies decide who must approve it, and a lock
//! ends it: the kind says what the rules of all kinds read. `new_kind` shows the hook and the explanation of a kind.

#![allow(missing_docs, clippy::unwrap_used, reason = "an example")]

mod tests;

use std::convert::Infallible;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, Resource as _, ResourceExt as _};
use oz_api::duration::{DurationError, GoDuration};
use oz_api::*;
use oz_core::access::approval::{self, ApprovalRequest, Approvals, Candidate};
use oz_core::access::denial::Denial;
use oz_core::access::fact::Fact;
use oz_core::access::lock::{Access, Locks};
use oz_core::access::policy::{self, Judgement};
use oz_core::access::rules::{self, Held, HeldFacts, Known, Passed, Proposal};
use oz_core::access::stamp::{self, Stamp, StampError};
use oz_core::controller::*;
use oz_core::kinds::{Family, Kind, Role};
use oz_core::lifecycle::drift::Drift;
use oz_core::lifecycle::machine::{self, Lifecycle, Lost, Need, Sealed};
use oz_core::lifecycle::seal::Keys;
use oz_core::lifecycle::window::Window;
use oz_core::lifecycle::{End, State as StateOf, Stop as StopOf};
use oz_trail::{Action, Decision as Ruling, Record};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

// The type and its names: a file in `api/src/kinds`, and its line in `for_each_kind!` of `core/src/kinds`.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.wizardofoz.co", version = "v1", kind = "Pause")]
#[kube(namespaced, status = "PauseStatus")]
pub struct PauseSpec {
    duration: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PauseStatus {
    phase: Phase,
    ending: Option<Ending>,
    approval: Option<ApprovalStatus>,
}

impl Kind for Pause {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Request;
    const NAME: &'static str = "pause";

    defined!();
}

impl Pause {
    fn status(&self) -> PauseStatus {
        self.status.clone().unwrap_or_default()
    }

    fn created(&self) -> Timestamp {
        let created = self.meta().creation_timestamp.as_ref();
        created.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    }

    fn window(&self) -> Result<Window, Stop> {
        let (text, day) = (&self.spec.duration, GoDuration::from_secs(86_400));
        let invalid = |why| Failure::invalid("Invalid", format!("spec.duration: {why}"));
        let asked: Result<GoDuration, DurationError> = text.parse();
        let asked = asked.map_err(|why| Stop::Refuse(Phase::Failed, invalid(why)))?;
        Ok(Window::new(self.created(), Some(asked), day, day))
    }

    fn child(&self) -> Child {
        let mut map = ConfigMap::default();
        map.metadata.name = self.meta().name.clone();
        map.metadata.namespace = self.namespace();
        let uid = self.uid().unwrap_or_default();
        labels::mark(&mut map.metadata, "Pause", &self.name_any(), &uid);
        map.data = Some([("paused".to_owned(), "true".to_owned())].into());
        Child::new(&map)
    }

    /// Returns the object of approvals. Their kind is one of `ApprovedKind` in `api/src/approval.rs`, where a kind of oz
    /// has its line; this example uses the line of another kind.
    fn candidate(&self) -> Option<Candidate<'_>> {
        Some(Candidate {
            kind: "TransientRoleBinding",
            identity: Identity::try_from(self.meta()).ok()?,
            metadata: self.meta(),
            answered_in: self.meta().namespace.as_deref(),
            template: None,
            spec_digest: self.spec_digest(),
            phase: self.status().phase,
            subjects: &[],
            emergency: false,
        })
    }
}

// The decision: in `core/src/access`. `crates/operator` reads the facts, here before each pass, so that nothing is asked.
struct Pauses(Keys);

#[derive(Clone, Default)]
struct Facts {
    locks: Locks,
    approvals: Vec<AccessRequestApproval>,
    same_stamp: Option<String>,
}

struct Grant {
    stamp: Stamp,
    until: Timestamp,
}

type State = StateOf<Grant>;
type Stop = StopOf<Infallible, ()>;
/// The state of a pause, and the approvals that it requires.
type Assessed = (State, Option<ApprovalStatus>);
type Decided = Decision<Assessed>;
type Found = Verdict<(), Decided>;

/// A pause in one pass. The machine and the rules call its methods in the order of every kind.
struct Pass<'a> {
    now: Timestamp,
    pause: &'a Pause,
    facts: &'a Facts,
    live: &'a [Live],
    stamp: Result<Stamp, StampError>,
    approvals: Option<Approvals>,
}

impl Pass<'_> {
    fn config(&self) -> Option<ApprovalConfig> {
        policy::rules(self.stamp.as_ref().ok()?.judgement.as_ref())
    }

    fn evaluated(&self, keys: &Keys) -> Option<Approvals> {
        let (candidate, config) = (self.pause.candidate()?, self.config()?);
        let (stamp, digest) = (self.stamp.as_ref().ok()?, &candidate.spec_digest);
        let by = &stamp.requester;
        let asked = ApprovalRequest::from_candidate(&candidate, by, digest, &config)?;
        let (found, trust) = ((&*self.facts.approvals, None), (keys, &self.facts.locks));
        let asked = (&candidate, &asked);
        Some(Approvals::evaluate(asked, found, trust, self.now))
    }

    fn grant(&self) -> Result<Grant, Stop> {
        let stamp = self.stamp.clone();
        let stamp = stamp.map_err(|why| Stop::Wait(why.failure()))?;
        let until = self.pause.window()?.until;
        Ok(Grant { stamp, until })
    }

    fn record(&self, action: Action, decision: Ruling, reason: &str) -> Record {
        let (uid, name) = (self.pause.uid(), self.pause.name_any());
        let uid = uid.unwrap_or_default();
        Record::about(self.now, action, decision, &uid, reason, name)
    }

    /// Returns the records that ask the approvers, once for each content.
    fn requests(&self, why: &Failure) -> Option<Vec<Record>> {
        let (stamp, approvals) = (self.stamp.as_ref().ok()?, self.approvals.as_ref()?);
        let (asked, note) = (Action::ApprovalRequested, Ruling::Note);
        let record = self.record(asked, note, why.reason);
        let (by, said) = (stamp.requester.clone(), self.pause.status().approval);
        let (config, asked) = (self.config()?, (by, &approvals.status));
        let records = approval::request_of(record, why, &config, asked, said.as_ref());
        Some(records)
    }
}

impl Held for Grant {
    fn access(&self) -> Access<'_> {
        let stamp = &self.stamp;
        Access::bound(&stamp.requester, &[], Some(&stamp.namespace))
    }
}

impl Proposal for Pass<'_> {
    type Question = ();
    type Special = Infallible;

    fn ask_same_stamp() {}
    fn known(&self) -> Known<'_> {
        Known {
            now: self.now,
            created: self.pause.created(),
            locks: &self.facts.locks,
            same_stamp: Some(&self.facts.same_stamp),
            unreviewed: None,
        }
    }
    fn stamp(&self) -> Result<&Stamp, &StampError> {
        self.stamp.as_ref()
    }
    fn access<'a>(&'a self, requester: &'a Requester) -> Access<'a> {
        Access::bound(requester, &[], self.pause.meta().namespace.as_deref())
    }
    fn spec(&self, _: &mut Vec<Fact>) -> Result<(), Stop> {
        self.pause.window().map(drop)
    }
    fn judged(&self, judgement: Option<&Judgement>) -> Result<(), Denial> {
        policy::not_refused(judgement, None)
    }
    fn approvals(&self) -> Option<&Approvals> {
        self.approvals.as_ref()
    }
}

impl Lifecycle for Pass<'_> {
    type Grant = Grant;
    type Offer = Grant;
    type Special = Infallible;
    type Question = ();

    fn now(&self) -> Timestamp {
        self.now
    }
    fn is_over(&self) -> bool {
        self.pause.status().phase.is_terminal()
    }
    fn is_deleted(&self) -> bool {
        self.pause.meta().deletion_timestamp.is_some()
    }
    fn begun(&self) -> Option<End> {
        self.pause.status().ending.map(End::from)
    }
    fn sealed(&self) -> Sealed<Grant> {
        let exists = !self.live.is_empty();
        let grant = self.grant().ok().filter(|_| exists).map(Box::new);
        let was_granted = exists || self.pause.status().phase == Phase::Active;
        let drift = Drift::Deleted("the ConfigMap, or the stamp,".to_owned());
        let is_retired = false;
        Sealed {
            until: self.pause.window().ok().map(|window| window.until),
            lost: (was_granted && grant.is_none()).then_some(Lost { drift, is_retired }),
            grant,
        }
    }
    fn drift(&self, _: &Grant) -> Option<Drift> {
        let made = self.pause.child().object.data;
        let is_changed = self.live.iter().any(|live| live.object.data != made);
        is_changed.then(|| Drift::Changed("the ConfigMap".to_owned()))
    }
    fn early_ends(&self, grant: &Grant) -> Vec<End> {
        let facts = HeldFacts {
            now: self.now,
            locks: &self.facts.locks,
            template: None,
            tickets: &oz_core::tickets::Tickets::default(),
        };
        rules::while_granted::<Self>(grant, &facts)
    }
    fn propose(&mut self) -> Result<Grant, Stop> {
        rules::before_grant(&*self, &mut Passed::default())?;
        self.grant()
    }
    fn waits_until(&self) -> Timestamp {
        let approvals = self.approvals.as_ref().map(|it| it.status.until);
        approvals.unwrap_or(Timestamp::MAX)
    }
}

impl Controller for Pauses {
    type Object = Pause;
    type Facts = Facts;
    type Question = ();
    type State = Assessed;
    type Status = PauseStatus;

    fn name(&self) -> &str {
        Pause::NAME
    }
    fn dynamic_type(&self) {}
    fn current_status(&self, pause: &Pause) -> Option<PauseStatus> {
        pause.status.clone()
    }

    fn decide(&self, now: Timestamp, pause: &Pause, facts: &Facts, live: &[Live]) -> Found {
        let digest = pause.spec_digest();
        let mut pass = Pass {
            now,
            pause,
            facts,
            live,
            stamp: stamp::open(&self.0, Pause::title(), pause.meta(), &digest),
            approvals: None,
        };
        pass.approvals = pass.evaluated(&self.0);
        let state = match machine::assess(&mut pass) {
            Ok(state) => state,
            Err(Need { question, until }) => {
                let until = Some(until);
                return Verdict::Need { question, until };
            }
        };
        let record = |action, ruling, why: &str| [Step::Record(pass.record(action, ruling, why))];
        let plan = Plan::default();
        let plan = match &state {
            State::Granted(grant) => plan.wake_at(grant.until),
            State::Grantable(grant) => plan
                .then(record(Action::AccessGranted, Ruling::Allow, "Success"))
                .then([Step::Apply(pause.child())])
                .wake_at(grant.until),
            State::Ending(end, _) => plan
                .then(live.iter().map(|live| Step::Delete(live.reference())))
                .then(record(end.action(), Ruling::End, end.reason.into())),
            State::Refused(_, why) => {
                plan.then(record(Action::RequestDenied, Ruling::Deny, why.reason))
            }
            State::Waiting(why) => plan
                .then(pass.requests(why).into_iter().flatten().map(Step::Record))
                .wake_at(pass.waits_until())
                .because(why.clone()),
            State::Over | State::Special(_) => plan,
        };
        let state = (state, pass.approvals.map(|approvals| approvals.status));
        Verdict::Decided(Decision { plan, state })
    }

    fn status(&self, now: Timestamp, pause: &Pause, made: &Decided, by: &Outcome) -> PauseStatus {
        let mut status = pause.status();
        let (failure, exists) = (by.failure.as_ref(), !by.live.is_empty());
        let (state, asked) = &made.state;
        let (waits, said) = (state.waits(), status.approval.as_ref());
        status.approval = approval::shown(waits, asked.as_ref(), failure, said);
        match state {
            State::Granted(_) | State::Grantable(_) if exists => status.phase = Phase::Active,
            State::Refused(phase, _) if failure.is_none() => status.phase = *phase,
            State::Ending(end, _) => {
                status.ending = Some(end.ending(status.ending.as_ref(), now));
                if failure.is_none() && !exists {
                    status.phase = end.phase();
                }
            }
            _ => {}
        }
        status
    }
}
