//! Emergencies of bindings: the role is bound without an approval and without a change ticket, and reviewed afterwards.

use jiff::SignedDuration;
use oz_api::{
    EmergencyConfig, Phase, ReviewConfig, TransientClusterRoleBinding, TransientRoleBinding,
    conditions, labels,
};
use serde_json::json;

use super::world::*;
use crate::access::emergency::{on_record, review, subject};
use crate::access::policy::{EmergencyRule, Judgement};
use crate::access::testing::judgements::{TIMEOUT, judgement, require, ticket};
use crate::controller::{Controller as _, Failure, Live, Verdict};
use crate::transient::{Facts, Grant, Question};

/// Returns the terms of an access policy for emergencies of this user.
fn rule(user: &str, most: i32) -> EmergencyRule {
    EmergencyRule {
        policy: "prod".into(),
        terms: Some(EmergencyConfig {
            groups: Vec::new(),
            users: vec![user.into()],
            max_duration: "3m".into(),
            review: ReviewConfig {
                deadline: "24h".into(),
                groups: vec!["security".into()],
                users: Vec::new(),
            },
            open_reviews: most,
        }),
    }
}

/// Returns a judgement that requires the approval of carol and a change ticket, unless bob declares an emergency.
fn guarded() -> Judgement {
    let mut judgement = judgement();
    require(&mut judgement, "carol", TIMEOUT);
    judgement.tickets = vec![ticket(None, Some("jira"))];
    judgement.emergencies = vec![rule("bob", 2)];
    judgement
}

fn judged<K: InMemory>(mut world: World<K>, judgement: Judgement) -> World<K> {
    world.judgement = Some(judgement);
    world.stamp();
    world
}

/// Returns the emergency of bob.
fn emergency(change: impl FnOnce(&mut World<TransientRoleBinding>)) -> World<TransientRoleBinding> {
    let mut world = lasting("10m");
    let spec = &mut world.object.spec;
    spec.subjects[0].name = "bob".into();
    spec.reason = Some("it burns".into());
    spec.emergency = Some(true);
    world.judgement = Some(guarded());
    change(&mut world);
    world.stamp();
    world
}

fn sealed(live: &[Live]) -> Grant {
    Grant::open_any(&keys(), &live[0]).unwrap()
}

#[test]
fn emergency_is_bound_at_once_for_as_long_as_the_policies_permit_and_recorded_with_proof() {
    let mut world = emergency(|_| ());
    let status = world.settle(timestamp(2));
    assert_eq!(status.phase, Phase::Active);
    assert_eq!(status.expires_at, Some(timestamp(2 + 180)));
    assert_eq!(status.approval, None);
    assert!(conditions::find(&status.conditions, conditions::APPROVED).is_none());
    assert_eq!(
        world.condition(conditions::EMERGENCY),
        "True (GrantedWithoutApproval)"
    );
    assert_eq!(world.bound(), ["bob"]);
    let emergency = sealed(&world.live).emergency.unwrap();
    assert_eq!(emergency.due_at, timestamp(2 + 24 * 60 * 60));

    let [record] = world.records.as_slice() else {
        panic!("{:?}", world.records);
    };
    assert!(
        record.message.starts_with("EMERGENCY: "),
        "{}",
        record.message
    );
    let found = on_record(&keys(), record).unwrap();
    let found = subject::Subject::Emergency(found);
    let made = subject::opened(&keys(), &found, review::records_so_far(Vec::new()), None);
    let made = made.unwrap().unwrap();
    assert_eq!(made.metadata.namespace.as_deref(), Some("shop"));
    let about = made.spec.access_request_ref.unwrap();
    assert_eq!(
        (<&str>::from(about.kind), about.uid.as_str()),
        ("TransientRoleBinding", UID)
    );
    assert_eq!(made.spec.emergency, "it burns");
    assert_eq!(world.settle(timestamp(182)).phase, Phase::Expired);
}

#[test]
fn emergency_event_is_a_warning() {
    let mut world = emergency(|_| ());
    let before = world.status();
    let after = world.settle(timestamp(2));
    let events = world
        .controller
        .transitions(&world.object, Some(&before), &after);
    let names: Vec<_> = events.iter().map(|it| (it.reason, it.warning)).collect();
    assert_eq!(names, [("EmergencyGranted", true)]);
}

#[test]
fn review_of_cluster_wide_emergency_is_about_no_namespace() {
    let object = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "TransientClusterRoleBinding",
        "metadata": {"name": "on-call"},
        "spec": {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "bob"}],
            "duration": "10m", "reason": "it burns", "emergency": true,
        },
    });
    let world = World::<TransientClusterRoleBinding>::from_object(object);
    let mut world = judged(world, guarded());
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Active);
    let found = subject::Subject::Emergency(on_record(&keys(), &world.records[0]).unwrap());
    let own = Some("oz-system");
    let made = subject::opened(&keys(), &found, review::records_so_far(Vec::new()), own);
    let made = made.unwrap().unwrap();
    assert_eq!(made.metadata.namespace.as_deref(), own);
    assert_eq!(made.reviewed_namespace(), Some(""));
    assert!(review::read(&keys(), &made).is_some());
}

#[test]
fn emergency_without_permission_is_denied() {
    type Change = fn(&mut World<TransientRoleBinding>);
    let rows: [(&str, Change); 7] = [
        ("ReasonRequired", |world| world.object.spec.reason = None),
        ("EmergencyForOthers", |world| {
            world.object.spec.subjects[0].name = "alice".into();
        }),
        ("NameTooLong", |world| {
            world.object.metadata.name = Some("n".repeat(245));
        }),
        ("EmergencyAccessDisabled", |world| {
            world.judgement.as_mut().unwrap().emergencies.clear();
        }),
        ("EmergencyAccessDisabled", |world| world.judgement = None),
        // One policy permits it, and another requires an approval regardless of emergencies.
        ("EmergencyAccessDisabled", |world| {
            let strict = EmergencyRule {
                policy: "strict".into(),
                terms: None,
            };
            world.judgement.as_mut().unwrap().emergencies.push(strict);
        }),
        ("EmergencyNotAllowed", |world| {
            world.judgement.as_mut().unwrap().emergencies = vec![rule("carol", 2)];
        }),
    ];
    for (number, (reason, change)) in rows.into_iter().enumerate() {
        let mut world = emergency(change);
        assert_eq!(world.settle(timestamp(2)).phase, Phase::Denied, "{number}");
        assert_eq!(world.records.last().unwrap().reason, reason, "{number}");
        assert!(world.live.is_empty());
    }
}

#[test]
fn emergency_begins_at_once() {
    let mut world = emergency(|world| {
        let spec = &mut world.object.spec;
        spec.valid_from = Some(timestamp(60).to_string());
    });
    assert_eq!(world.settle(timestamp(2)).phase, Phase::Failed);
    assert!(world.condition("Ready").contains("Invalid"));
}

#[test]
fn unreviewed_emergencies_of_requester_limit_further_ones() {
    for (unreviewed, phase) in [
        (Ok(vec![]), Phase::Active),
        (Ok(vec!["a".to_owned()]), Phase::Active),
        (Ok(vec!["a".to_owned(), "b".to_owned()]), Phase::Denied),
        (
            Err(Failure::transient("NotReady", "not listed")),
            Phase::Pending,
        ),
    ] {
        let mut world = emergency(|_| ());
        world.unreviewed.clone_from(&unreviewed);
        assert_eq!(world.settle(timestamp(2)).phase, phase, "{unreviewed:?}");
        if phase == Phase::Denied {
            assert_eq!(
                world.condition(conditions::EMERGENCY),
                "False (TooManyOpenReviews)"
            );
        }
    }
}

#[test]
fn emergency_waits_a_day_for_audit_records_in_the_cluster() {
    const DAY: i64 = 24 * 60 * 60;
    let mut world = emergency(|_| ());
    let failure = Failure::invalid("ReviewsUnavailable", "set audit.objects: true");
    world.unreviewed = Err(failure);
    for second in [2, DAY - 1] {
        let status = world.settle(timestamp(second));
        assert_eq!(status.phase, Phase::Pending, "{second}");
        assert_eq!(world.condition("Ready"), "False (ReviewsUnavailable)");
        let ready = conditions::find(&status.conditions, "Ready").unwrap();
        assert_eq!(ready.message, "set audit.objects: true");
    }
    assert_eq!(world.settle(timestamp(DAY)).phase, Phase::Expired);
    assert!(world.live.is_empty());
}

#[test]
fn room_is_asked_for_an_emergency_only() {
    let question = |world: &World<TransientRoleBinding>| {
        let facts = Facts {
            unreviewed: None,
            ..world.facts(timestamp(2))
        };
        let verdict = world
            .controller
            .decide(timestamp(2), &world.object, &facts, &[]);
        match verdict {
            Verdict::Need { question, .. } => Some(question),
            Verdict::Decided(_) => None,
        }
    };
    let Some(Question::Emergencies(limit)) = question(&emergency(|_| ())) else {
        panic!("no question");
    };
    assert_eq!((limit.requester.user.as_str(), limit.most), ("bob", 2));
    assert!(question(&lasting("10m")).is_none());
}

#[test]
fn emergency_is_not_bound_without_its_record_and_survives_a_crash() {
    let mut world = emergency(|_| ());
    world.records_fail = true;
    world.settle(timestamp(2));
    assert!(world.live.is_empty());
    world.records_fail = false;
    world.status_fails = true;
    world.pass(timestamp(3));
    world.status_fails = false;
    let expiry = timestamp(3 + 180);
    assert_eq!(world.settle(timestamp(10)).expires_at, Some(expiry));
    assert_eq!(
        world.condition(conditions::EMERGENCY),
        "True (GrantedWithoutApproval)"
    );
    assert_eq!(world.actions(), ["EmergencyGranted"]);
}

#[test]
fn grant_of_an_earlier_release_is_valid() {
    let mut world = lasting("10m");
    world.settle(timestamp(2));
    let text = &world.live[0].object.metadata.annotations.as_ref().unwrap()[labels::GRANT];
    assert!(
        !text.contains("emergency") && !text.contains("ticket"),
        "{text}"
    );
    let grant = sealed(&world.live);
    assert_eq!((grant.ticket, grant.emergency), (None, None));
    let length = grant.until.duration_since(grant.activated_at);
    assert_eq!(length, SignedDuration::from_mins(10));
}
