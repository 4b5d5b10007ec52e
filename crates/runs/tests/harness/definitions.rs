//! The status of templates and policies, and the time of their next pass.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use oz_api::conditions;
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, ClusterHarnessTemplateSpec, HarnessTemplate,
    HarnessTemplateSpec,
};
use oz_core::access::seal::Keys;
use oz_core::controller::{Controller, Outcome, Transition};
use oz_runs::definitions::{
    ClusterTemplates, DISCOVERY_ACTIVE, DISCOVERY_EXPIRED, Policies, PolicyFacts, READY, Templates,
};
use serde_json::{Value, json};

use crate::{inheriting, now, policy, template};

const REASON: &str = "a reason of twenty letters or more";

/// Returns the results of a pass over an object: the status, the time of the next pass, and the events.
pub(crate) fn pass<C: Controller>(
    controller: &C,
    at: Timestamp,
    object: &C::Object,
    facts: &C::Facts,
) -> (C::Status, Option<Timestamp>, Vec<Transition>) {
    let decision = controller.decide(at, object, facts, &[]).decided().unwrap();
    assert!(decision.plan.stages.is_empty(), "nothing is made for it");
    let after = controller.status(at, object, &decision, &Outcome::default());
    let before = controller.current_status(object);
    let events = controller.transitions(object, before.as_ref(), &after);
    (after, decision.plan.wake, events)
}

/// A condition in a line: status, reason and message.
pub(crate) fn line(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
    type_: &str,
) -> String {
    let found = conditions::find(conditions, type_).unwrap();
    format!("{} {}: {}", found.status, found.reason, found.message)
}

pub(crate) fn names(events: &[Transition]) -> Vec<&'static str> {
    events.iter().map(|event| event.reason).collect()
}

fn based(spec: HarnessTemplateSpec) -> Option<Arc<ClusterHarnessTemplate>> {
    let spec = ClusterHarnessTemplateSpec(spec);
    Some(Arc::new(ClusterHarnessTemplate::new("base", spec)))
}

/// Returns the condition Ready of a namespaced template.
fn ready(spec: HarnessTemplateSpec, base: Option<Arc<ClusterHarnessTemplate>>) -> String {
    let object = HarnessTemplate::new("parrot", spec);
    let (status, wake, _) = pass(&Templates, now(), &object, &base);
    assert_eq!(wake, None, "time changes nothing of it");
    line(&status.conditions, READY)
}

#[test]
fn a_template_is_ready_or_says_everything_that_is_wrong_with_it() {
    let overlay = json!({"podTemplateOverlay": {"spec": {"hostNetwork": true, "hostPID": true}}});
    let path = "spec.podTemplateOverlay.spec";
    let all_overlay = format!(
        "False OverlayInvalid: {path}.hostNetwork: cannot be set by a template; {path}.hostPID: cannot be set by a template"
    );
    let many = json!({
        "image": null,
        "command": [],
        "defaults": {"timeout": "0s", "terminationGracePeriodSeconds": 301},
        "podTemplateOverlay": {"spec": {"hostIPC": true}},
    });
    let all_of_many = format!(
        "False Invalid: spec.image: must be set, unless the template inherits (baseTemplateRef); \
         spec.command: must be set, unless the template inherits (baseTemplateRef); \
         spec.defaults.timeout: must be greater than zero; \
         spec.defaults.terminationGracePeriodSeconds: must be from 0 to 300; \
         {path}.hostIPC: cannot be set by a template"
    );
    for (fields, said) in [
        (json!({}), "True Success: the template is valid"),
        (overlay, all_overlay.as_str()),
        (many, all_of_many.as_str()),
    ] {
        assert_eq!(ready(template(fields.clone()), None), said);
        let spec = ClusterHarnessTemplateSpec(template(fields));
        let object = ClusterHarnessTemplate::new("parrot", spec);
        let (status, wake, _) = pass(&ClusterTemplates, now(), &object, &());
        assert_eq!(line(&status.conditions, READY), said);
        assert_eq!(wake, None);
    }
    let spec = ClusterHarnessTemplateSpec(inheriting(json!({})));
    let object = ClusterHarnessTemplate::new("parrot", spec);
    let (status, ..) = pass(&ClusterTemplates, now(), &object, &());
    assert_eq!(
        line(&status.conditions, READY),
        "False Invalid: spec.baseTemplateRef: a cluster template inherits from none: use a HarnessTemplate for that"
    );
}

#[test]
fn a_template_that_inherits_goes_by_what_it_and_its_base_come_to() {
    let bad_overlay = json!({"podTemplateOverlay": {"spec": {"hostNetwork": true}}});
    let is_ready =
        "True Success: the template is valid, as ClusterHarnessTemplate base with its own fields";
    let mend = "False BaseInvalid: correct ClusterHarnessTemplate base, from which this template inherits: ";
    let needs = json!({"requires": {"credentials": [{"name": "KEY"}], "egress": [{"host": "example.com"}]}});
    for (own, base, said) in [
        (json!({}), Some(template(json!({}))), is_ready.to_owned()),
        (
            json!({}),
            None,
            "False BaseNotFound: ClusterHarnessTemplate base does not exist: create it, or name another in \
             spec.baseTemplateRef"
                .to_owned(),
        ),
        (
            json!({}),
            Some(inheriting(json!({}))),
            "False BaseInvalid: ClusterHarnessTemplate base has a baseTemplateRef: a base cannot \
             inherit; remove it there"
                .to_owned(),
        ),
        (
            json!({}),
            Some(template(bad_overlay.clone())),
            format!("{mend}spec.podTemplateOverlay.spec.hostNetwork: cannot be set by a template"),
        ),
        // What it replaces of its base may be wrong there.
        (
            json!({"podTemplateOverlay": {"spec": {"nodeSelector": {"a": "b"}}}}),
            Some(template(bad_overlay.clone())),
            is_ready.to_owned(),
        ),
        (
            json!({"defaults": {"timeout": "1m"}}),
            Some(template(json!({"defaults": {"timeout": "never"}}))),
            is_ready.to_owned(),
        ),
        // Its own mistakes come first, whatever its base is.
        (
            json!({"image": "other:1"}),
            None,
            "False Invalid: spec.image: is the base's, and must be absent where baseTemplateRef is set".to_owned(),
        ),
        // Each of the two is right by itself.
        (
            json!({"interactive": {"idleTimeout": "2h"}}),
            Some(template(json!({"interactive": {"maxLifetime": "1h"}}))),
            "False Invalid: with the fields of ClusterHarnessTemplate base: \
             spec.interactive.idleTimeout: must not be longer than maxLifetime"
                .to_owned(),
        ),
        // Needs are joined.
        (needs.clone(), Some(template(needs)), is_ready.to_owned()),
    ] {
        let shown = format!("{own} on {base:?}");
        let base = base.and_then(based);
        assert_eq!(ready(inheriting(own), base), said, "{shown}");
    }
}

/// Returns the field of a template with these approval rules.
fn approval(rules: &Value, timeout: &str) -> Value {
    json!({"approval": {"rules": rules, "timeout": timeout}})
}

#[test]
fn template_and_base_that_both_require_approvals_are_ready_if_both_can_be_given() {
    let with = |fields: Value| based(template(fields));
    let security = |user: &str| json!([{"name": "security", "users": [user]}]);
    let is_ready =
        "True Success: the template is valid, as ClusterHarnessTemplate base with its own fields";
    let own = || inheriting(approval(&security("bob"), "10m"));
    for rules in [security("carol"), security("bob")] {
        assert_eq!(ready(own(), with(approval(&rules, "1h"))), is_ready);
    }
    // Each of them has as many rules as one template may have.
    let many = |users: &str| {
        let rule = |number: i32| json!({"name": format!("r{number}"), "users": [format!("{users}-{number}")]});
        let rules: Value = (0..8).map(rule).collect();
        approval(&rules, "10m")
    };
    assert_eq!(ready(inheriting(many("a")), with(many("b"))), is_ready);

    // Carol counts for one of the rules.
    let two = json!([{"name": "security", "users": ["bob", "carol"], "approvals": 2}]);
    let said = "False Invalid: with the fields of ClusterHarnessTemplate base: spec.approval.rules[1]: can never \
                be met: each user counts for one rule, and the users that the rules name are too few";
    let base = with(approval(&security("carol"), "1h"));
    assert_eq!(ready(inheriting(approval(&two, "10m")), base), said);
    // After the shorter timeout, no escalation follows.
    let escalation = json!({"after": "30m", "users": ["erin"]});
    let late = json!([{"name": "leads", "users": ["carol"], "escalation": escalation}]);
    let said = ready(own(), with(approval(&late, "1h")));
    assert!(
        said.contains("spec.approval.rules[1].escalation.after"),
        "{said}"
    );
    assert!(said.contains("must be shorter than the timeout"), "{said}");

    let said = "False BaseInvalid: correct ClusterHarnessTemplate base, from which this template inherits: \
                spec.approval.rules: must name at least one rule; omit approval to require none";
    assert_eq!(ready(own(), with(approval(&json!([]), "1h"))), said);
}

#[test]
fn condition_message_is_bounded_for_any_content() {
    let fields = (0..5_000).map(|number| (format!("x\u{1b}[2J\n{number}"), json!(1)));
    let spec = Value::Object(fields.collect());
    let said = ready(
        template(json!({"podTemplateOverlay": {"spec": spec}})),
        None,
    );
    assert!(
        said.starts_with(
            "False OverlayInvalid: spec.podTemplateOverlay.spec.x\u{fffd}[2J\u{fffd}0"
        ),
        "{said}"
    );
    assert!(said.ends_with("… (5000 violations in all)"), "{said}");
    assert!(said.len() < 5_000 && !said.contains(char::is_control));
}

#[test]
fn nothing_is_written_again_and_the_time_of_a_change_stays() {
    let mut object = HarnessTemplate::new("parrot", inheriting(json!({})));
    object.metadata.generation = Some(3);
    let (status, _, events) = pass(&Templates, now(), &object, &None);
    assert_eq!(status.observed_generation, Some(3));
    assert_eq!(names(&events), ["TemplateNotReady"]);
    assert!(events[0].warning && events[0].note.contains("does not exist"));
    object.status = Some(status.clone());
    let later = now() + SignedDuration::from_hours(1);
    let (again, _, events) = pass(&Templates, later, &object, &None);
    assert_eq!((&again, events), (&status, Vec::new()));

    // Wrong in another way: the time at which it stopped being ready stays.
    let bad = based(template(json!({"image": null})));
    let (other, _, events) = pass(&Templates, later, &object, &bad);
    let times = |status: &oz_api::harness::HarnessTemplateStatus| {
        status.conditions[0].last_transition_time.clone()
    };
    assert_eq!(times(&other), times(&status));
    assert_eq!(names(&events), ["TemplateNotReady"]);
    object.status = Some(other);
    let (mended, _, events) = pass(&Templates, later, &object, &based(template(json!({}))));
    assert_eq!(times(&mended).0, later);
    assert_eq!(names(&events), ["TemplateReady"]);
    assert!(!events[0].warning);
}

pub(crate) fn policies() -> Policies {
    Policies {
        keys: Keys::with_every_owner([[9; 32]]),
        broker: "system:serviceaccount:oz-system:oz-broker".to_owned(),
    }
}

fn discovering(ends: &str) -> BrokerPolicy {
    policy(
        "a",
        json!({"egressDiscovery": {"accepted": true, "reason": REASON, "expiresAt": ends}}),
    )
}

#[test]
fn policy_reports_discovery_and_wakes_at_its_end() {
    let minutes = SignedDuration::from_mins(5);
    let ends: Timestamp = "2026-01-31T10:00:00Z".parse().unwrap();
    let just_before = ends - SignedDuration::from_nanos(1);
    let admits = "True Success: runs are admitted by its grants";
    let only = "NoDiscovery: only granted hosts are permitted";
    let unserved = format!("{admits}; not served yet: egressDiscovery");
    let any = "Active: discovery is not served yet, so that only granted hosts are permitted; it is \
               accepted until 2026-01-31T10:00:00Z";
    let over = "Expired: the discovery expired at 2026-01-31T10:00:00Z, and no run is admitted by \
                this policy until it is removed: add grants for the hosts that it found (kubectl paddock \
                policy suggest --all) and remove spec.egressDiscovery";
    let unread = "Expired: the expiry of the discovery cannot be read, so that it counts as \
                  expired: correct spec.egressDiscovery.expiresAt, or remove spec.egressDiscovery";
    let unreadable = "False Invalid: spec.egressDiscovery.expiresAt: must be an instant in RFC 3339, such as \
                      2026-01-31T09:00:00Z, with Z or an offset";
    let with = discovering("2026-01-31T10:00:00Z");
    for (object, at, ready, (active, expired), said, wake) in [
        (
            policy("a", json!({})),
            now(),
            admits.to_owned(),
            ("False", "False"),
            only,
            now() + minutes,
        ),
        (
            with.clone(),
            now(),
            unserved.clone(),
            ("True", "False"),
            any,
            now() + minutes,
        ),
        (
            with.clone(),
            just_before,
            unserved,
            ("True", "False"),
            any,
            ends,
        ),
        (
            with.clone(),
            ends,
            format!("False {over}"),
            ("False", "True"),
            over,
            ends + minutes,
        ),
        (
            discovering("tomorrow"),
            now(),
            unreadable.to_owned(),
            ("False", "True"),
            unread,
            now() + minutes,
        ),
    ] {
        let (status, woken, _) = pass(&policies(), at, &object, &PolicyFacts::default());
        assert_eq!(line(&status.conditions, READY), ready);
        assert_eq!(
            line(&status.conditions, DISCOVERY_ACTIVE),
            format!("{active} {said}")
        );
        assert_eq!(
            line(&status.conditions, DISCOVERY_EXPIRED),
            format!("{expired} {said}")
        );
        assert_eq!(woken, Some(wake));
    }
}

#[test]
fn a_policy_that_is_wrong_says_all_of_it_and_what_time_did_to_it_is_nothing_wrong() {
    let wrong = policy(
        "a",
        json!({
            "appliesToTemplates": ["["],
            "grants": {"egress": [{"host": "*"}]},
            "egressDiscovery": {"accepted": false, "reason": "short", "expiresAt": "2026-01-31T10:00:00Z"},
        }),
    );
    let (status, _, _) = pass(&policies(), now(), &wrong, &PolicyFacts::default());
    let said = line(&status.conditions, READY);
    assert!(said.starts_with("False Invalid: "), "{said}");
    for field in [
        "spec.appliesToTemplates[0]: ",
        "spec.grants.egress[0].host: ",
        "spec.egressDiscovery.accepted: ",
        "spec.egressDiscovery.reason: ",
    ] {
        assert!(said.contains(field), "{field} is not in {said}");
    }
    // One that is not accepted lets nothing through.
    assert!(line(&status.conditions, DISCOVERY_ACTIVE).starts_with("False NoDiscovery: "));
    // The hook would have refused an end so far ahead; it stands, and ends then.
    let far = discovering("2027-01-31T10:00:00Z");
    let (status, _, _) = pass(&policies(), now(), &far, &PolicyFacts::default());
    assert!(line(&status.conditions, READY).starts_with("True "));
}

#[test]
fn policy_events_report_each_change_once() {
    let ends: Timestamp = "2026-01-31T10:00:00Z".parse().unwrap();
    // Of one object: its discovery at this generation, looked at at this instant, and what is told.
    let mut object = policy("a", json!({}));
    let table = [
        (1, None, now(), vec!["PolicyReady", "PolicyNotVerified"]),
        (1, None, now(), vec![]),
        (
            2,
            Some("2026-01-31T09:30:00Z"),
            now(),
            vec!["DiscoveryActive"],
        ),
        // Something else of it changed.
        (3, Some("2026-01-31T09:30:00Z"), now(), vec![]),
        (
            4,
            Some("2026-01-31T10:00:00Z"),
            now(),
            vec!["DiscoveryActive"],
        ),
        (
            4,
            Some("2026-01-31T10:00:00Z"),
            ends,
            vec!["DiscoveryExpired"],
        ),
        (4, Some("2026-01-31T10:00:00Z"), ends, vec![]),
        (5, None, ends, vec!["PolicyReady", "DiscoveryRemoved"]),
    ];
    for (generation, discovery, at, told) in table {
        object.metadata.generation = Some(generation);
        object.spec.egress_discovery =
            discovery.and_then(|until| discovering(until).spec.egress_discovery);
        let (status, _, events) = pass(&policies(), at, &object, &PolicyFacts::default());
        assert_eq!(names(&events), told, "generation {generation} at {at}");
        let expired = events
            .iter()
            .find(|event| event.reason == "DiscoveryExpired");
        assert_eq!(expired.and_then(|event| event.due), expired.map(|_| ends));
        object.status = Some(status);
    }
    // Nobody was there while it was active, so that nobody is late.
    let old = discovering("2026-01-31T08:00:00Z");
    let (_, _, events) = pass(&policies(), now(), &old, &PolicyFacts::default());
    assert_eq!(names(&events), ["PolicyNotVerified", "DiscoveryExpired"]);
    assert_eq!(events[1].due, None);
}
