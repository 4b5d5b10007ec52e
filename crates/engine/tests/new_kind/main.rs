//! A complete example of a kind that ends. A Freeze requests that no user deploys into its namespace for a
//! while: as long as it lasts there is a ConfigMap of its name. A comment at each part states its location
//! in oz.

#![allow(missing_docs, clippy::unwrap_used, reason = "an example")]

mod tests;

use std::convert::Infallible;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, Resource as _, ResourceExt as _};
use oz_admission::{Cx, Hook, Notes, Operation, Rejection, Review, Validate};
use oz_api::duration::{DurationError, GoDuration};
use oz_api::{Ending, Phase, defined, labels};
use oz_core::controller::*;
use oz_core::kinds::{Family, Kind, Role, Rules};
use oz_core::lifecycle::drift::Drift;
use oz_core::lifecycle::machine::{self, Lifecycle, Lost, Need, Sealed};
use oz_core::lifecycle::window::Window;
use oz_core::lifecycle::{End, State as StateOf, Stop};
use oz_core::validate::Violation;
use oz_trail::{Action, Decision as RecordDecision, Record};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

// The type and its names: a file in `api/src/kinds`, and its line in `for_each_kind!` of `core/src/kinds`.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.wizardofoz.co", version = "v1", kind = "Freeze")]
#[kube(namespaced, status = "FreezeStatus", shortname = "frz")]
pub struct FreezeSpec {
    duration: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FreezeStatus {
    phase: Phase,
    ending: Option<Ending>,
}

impl Kind for Freeze {
    const FAMILY: Family = Family::Access;
    const ROLE: Role = Role::Request;
    const NAME: &'static str = "freeze";

    defined!();
}

// The rules: a file in `core/src/kinds`.
impl Rules for Freeze {
    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        self.window().err().into_iter().collect()
    }
}

impl Freeze {
    fn window(&self) -> Result<Window, Violation> {
        let (text, day) = (&self.spec.duration, GoDuration::from_secs(86_400));
        let wrong = |why| Violation::of_value("spec.duration", format!("{why}"), text);
        let asked: Result<GoDuration, DurationError> = text.parse();
        let created = self.meta().creation_timestamp.as_ref().map(|time| time.0);
        let window = |asked| Window::new(created.unwrap_or_default(), Some(asked), day, day);
        asked.map(window).map_err(wrong)
    }

    fn child(&self) -> Child {
        let mut map = ConfigMap::default();
        map.metadata.name = self.meta().name.clone();
        map.metadata.namespace = self.namespace();
        let uid = self.uid().unwrap_or_default();
        labels::mark(&mut map.metadata, "Freeze", &self.name_any(), &uid);
        map.data = Some([("frozen".to_owned(), "true".to_owned())].into());
        Child::new(&map)
    }
}

// The decision: in `core/src/access`. It asks nothing; `crates/operator` answers the questions of a
// kind.
struct Freezes;
type State = StateOf<Window>;
type Decided = Verdict<(), Decision<State>>;

/// A freeze in one pass. The machine calls these methods in the order of every kind, time first.
struct Pass<'a>(Timestamp, &'a Freeze, &'a [Live]);

impl Pass<'_> {
    fn status(&self) -> FreezeStatus {
        self.1.status.clone().unwrap_or_default()
    }
}

impl Lifecycle for Pass<'_> {
    type Grant = Window;
    type Offer = Window;
    type Special = Infallible;
    type Question = ();

    fn now(&self) -> Timestamp {
        self.0
    }
    fn is_over(&self) -> bool {
        self.status().phase.is_terminal()
    }
    fn is_deleted(&self) -> bool {
        self.1.meta().deletion_timestamp.is_some()
    }
    fn begun(&self) -> Option<End> {
        self.status().ending.map(End::from)
    }
    fn sealed(&self) -> Sealed<Window> {
        let (window, exists) = (self.1.window().ok(), !self.2.is_empty());
        let lost = !exists && self.status().phase == Phase::Active;
        Sealed {
            until: window.as_ref().map(|window| window.until),
            grant: window.filter(|_| exists).map(Box::new),
            lost: lost.then(|| Lost {
                drift: Drift::Deleted("the ConfigMap".to_owned()),
                is_retired: false,
            }),
        }
    }
    fn drift(&self, _: &Window) -> Option<Drift> {
        let made = self.1.child().object.data;
        let changed = self.2.iter().any(|live| live.object.data != made);
        changed.then(|| Drift::Changed("the ConfigMap".to_owned()))
    }
    fn early_ends(&self, _: &Window) -> Vec<End> {
        Vec::new()
    }
    fn propose(&mut self) -> Result<Window, Stop<Infallible, ()>> {
        let invalid = |wrong: Violation| Failure::invalid("Invalid", wrong.to_string());
        let window = self.1.window().map_err(invalid);
        window.map_err(|failure| Stop::Refuse(Phase::Failed, failure))
    }
    fn waits_until(&self) -> Timestamp {
        Timestamp::MAX
    }
}

impl Controller for Freezes {
    type Object = Freeze;
    type Facts = ();
    type Question = ();
    type State = State;
    type Status = FreezeStatus;

    fn name(&self) -> &str {
        Freeze::NAME
    }
    fn dynamic_type(&self) {}
    fn current_status(&self, freeze: &Freeze) -> Option<FreezeStatus> {
        freeze.status.clone()
    }

    fn decide(&self, now: Timestamp, freeze: &Freeze, _: &(), live: &[Live]) -> Decided {
        let uid = freeze.uid().unwrap_or_default();
        let record = |action, decision, reason: &str| {
            let record = Record::about(now, action, decision, &uid, reason, freeze.name_any());
            [Step::Record(record)]
        };
        let state = match machine::assess(&mut Pass(now, freeze, live)) {
            Ok(state) => state,
            Err(Need { question, until }) => {
                let until = Some(until);
                return Verdict::Need { question, until };
            }
        };
        let plan = match &state {
            State::Granted(window) => Plan::default().wake_at(window.until),
            State::Grantable(window) => Plan::default()
                .then(record(
                    Action::AccessGranted,
                    RecordDecision::Allow,
                    "Success",
                ))
                .then([Step::Apply(freeze.child())])
                .wake_at(window.until),
            State::Ending(end, _) => Plan::default()
                .then(live.iter().map(|live| Step::Delete(live.reference())))
                .then(record(end.action(), RecordDecision::End, end.reason.into())),
            _ => Plan::default(),
        };
        Verdict::Decided(Decision { plan, state })
    }

    fn status(
        &self,
        now: Timestamp,
        freeze: &Freeze,
        decision: &Decision<State>,
        outcome: &Outcome,
    ) -> FreezeStatus {
        let mut status = freeze.status.clone().unwrap_or_default();
        let (done, exists) = (outcome.failure.is_none(), !outcome.live.is_empty());
        match &decision.state {
            State::Granted(_) | State::Grantable(_) if exists => status.phase = Phase::Active,
            State::Refused(phase, _) => status.phase = *phase,
            State::Ending(end, _) => {
                status.ending = Some(end.ending(status.ending.as_ref(), now));
                if done && !exists {
                    status.phase = end.phase();
                }
            }
            _ => {}
        }
        status
    }
}

// The hook: in `crates/webhook`.
impl Validate for Freezes {
    type Object = Freeze;

    async fn validate(&self, cx: &Cx, review: &Review<Freeze>) -> Result<Notes, Rejection> {
        let violations = review.object.iter().flat_map(|it| it.violations(cx.now));
        let refusal = |wrong: Violation| Rejection::invalid("Invalid", wrong.to_string());
        violations
            .map(refusal)
            .next()
            .map_or(Ok(Notes::none()), Err)
    }
}

fn hook() -> Hook {
    Hook::validating(Freeze::NAME, Freezes).on([Operation::Create])
}

// The explanation: in `crates/client`, which calls the operator's own decision.
fn explain(now: Timestamp, freeze: &Freeze) -> String {
    let decision = Freezes.decide(now, freeze, &(), &[]).decided();
    match decision.map(|decision| decision.state) {
        Some(State::Grantable(window)) => format!("nothing is deployed until {}", window.until),
        Some(State::Refused(_, why)) => why.message,
        other => format!("{other:?}"),
    }
}
