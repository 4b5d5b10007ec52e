//! A complete example of a kind that ends. A Freeze requests that no user deploys into its namespace for a
//! while: as long as it lasts there is a ConfigMap of its name. A comment at each part states its location
//! in oz.

#![allow(missing_docs, clippy::unwrap_used, reason = "an example")]

mod tests;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, Resource as _, ResourceExt as _};
use oz_admission::{Cx, Hook, Notes, Operation, Rejection, Review, Validate};
use oz_api::duration::{DurationError, GoDuration};
use oz_api::{Ending, Phase, defined, labels};
use oz_core::controller::*;
use oz_core::kinds::{Family, Kind, Role, Rules};
use oz_core::lifecycle::window::Window;
use oz_core::lifecycle::{self, End};
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
type State = lifecycle::State<Window>;
type Decided = Verdict<(), Decision<State>>;

fn assess(now: Timestamp, freeze: &Freeze, live: &[Live]) -> State {
    let status = freeze.status.clone().unwrap_or_default();
    if status.phase.is_terminal() {
        return State::Over;
    }
    let invalid = |wrong: Violation| Failure::invalid("Invalid", wrong.to_string());
    let window = match freeze.window().map_err(invalid) {
        Ok(window) => Box::new(window),
        Err(failure) => return State::Refused(Phase::Failed, failure),
    };
    // Time comes first, and an end that has begun does not change.
    let begun = status.ending.map(End::from);
    let deleted = freeze.meta().deletion_timestamp.is_some();
    if let Some(end) = lifecycle::due(now, begun, Some(window.until), deleted) {
        return State::Ending(end, Some(window));
    }
    let as_made = |live: &Live| live.object.data == freeze.child().object.data;
    match live.first().map(as_made) {
        Some(true) => State::Granted(window),
        None if status.phase == Phase::Pending => State::Grantable(window),
        _ => State::Ending(End::drift("the ConfigMap was changed".to_owned()), None),
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
        let state = assess(now, freeze, live);
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
