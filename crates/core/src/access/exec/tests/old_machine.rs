//! The comparison of the assessment of exec requests with that before the machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use oz_api::{ApprovalConfig, OnCallCheck, OnPodReplacement, OnTemplateChange, TicketConfig};
use proptest::prelude::*;

use super::world::*;
use crate::access::exec::ExecAccess;
use crate::access::kind::PodSeen;
use crate::access::testing::old_machine::{Event, events, run};
use crate::tickets::{Answer, CheckTerms, FailurePolicy, Person, Said};

fn said(answer: Answer) -> Said {
    Said {
        asked_at: timestamp(1),
        away_since: matches!(answer, Answer::Away(_)).then_some(timestamp(1)),
        answer,
    }
}

fn ticket_said(world: &mut World, answer: Answer) {
    let said = said(answer);
    world.tickets.said.insert("jira".to_owned(), said);
}

fn on_call_said(world: &mut World, answer: Answer) {
    let alice = Person {
        user: "alice".into(),
        groups: vec!["devs".into()],
        ..Person::default()
    };
    let said = said(answer);
    let checks = world.tickets.on_call.entry(alice).or_default();
    checks.insert("duty".to_owned(), said);
}

/// Returns a plain request, a request whose grant depends on checks and on its template, and a grant that follows.
fn begin(number: usize) -> World {
    let mut world = World::new();
    if number == 1 {
        world.request.spec.ticket = Some("INC-42".into());
        let config = world.config();
        config.ticket = Some(TicketConfig {
            pattern: None,
            check: Some("jira".into()),
        });
        config.approval = Some(ApprovalConfig {
            unless: vec![OnCallCheck {
                check: "duty".into(),
                group: None,
            }],
            ..approval(&["bob"], None)
        });
        let terms = CheckTerms {
            failure_policy: FailurePolicy::Fail,
            interval: SignedDuration::from_secs(60),
            timeout: SignedDuration::from_secs(3),
        };
        let checks = ["jira", "duty"].map(|name| (name.to_owned(), terms));
        world.tickets.checks = Some(Arc::new(BTreeMap::from(checks)));
        ticket_said(&mut world, Answer::Accepted);
        on_call_said(&mut world, Answer::Accepted);
    }
    if number == 2 {
        world.config().on_pod_replacement = OnPodReplacement::Follow;
    }
    if number > 0 {
        world.config().on_template_change = OnTemplateChange::Revoke;
        world.stamp("alice", &["devs"]);
    }
    world
}

fn replace(world: &mut World, uid: Option<&str>) {
    let name = world.status().pod_name.unwrap_or_default();
    world.pod = Some(PodSeen {
        name,
        uid: uid.map(ToOwned::to_owned),
    });
}

fn all_events() -> Vec<Event<ExecAccess>> {
    let own: [Event<ExecAccess>; 6] = [
        |world| replace(world, None),
        |world| replace(world, Some("other")),
        |world| ticket_said(world, Answer::Refused("it is closed".into())),
        |world| ticket_said(world, Answer::Away("no response".into())),
        |world| on_call_said(world, Answer::Refused("off call".into())),
        |world| on_call_said(world, Answer::Away("no response".into())),
    ];
    [events(), own.to_vec()].concat()
}

proptest! {
    #[test]
    fn machine_agrees_with_old_assessment(
        number in 0_usize..3,
        settled: bool,
        history in prop::collection::vec((0_usize..25, 0_i64..90, any::<bool>()), 0..12),
    ) {
        let mut world = begin(number);
        if settled {
            world.settle(timestamp(1));
        }
        run(world, &all_events(), history);
    }
}
