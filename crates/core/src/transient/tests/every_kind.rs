//! The ends of a binding that exists, for each kind of binding: of oz, and as published.

use std::collections::BTreeMap;
use std::sync::Arc;

use oz_api::kind::Kind as _;
use oz_api::{EndReason, Phase, RBAC_GROUP};
use serde_json::{Value, json};

use super::world::*;
use crate::access::lock::Locks;
use crate::access::policy::Judgement;
use crate::access::testing::judgements::{judgement, ticket};
use crate::access::testing::order;
use crate::for_each_kind;
use crate::tickets::{Answer, CheckTerms, Said};

/// Runs a block for each kind of binding.
macro_rules! for_each_binding {
    ($kind:ident => $body:block) => {
        for_each_kind!(bindings $kind => $body);
        for_each_kind!(published $kind => $body);
    };
}

/// Creates a binding of alice to `view` by bob, from 60 to 360 seconds after noon, with these further fields.
fn binding<K: InMemory>(more: &Value) -> World<K> {
    let mut spec = json!({
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "alice"}],
        "validFrom": timestamp(60), "validUntil": timestamp(360),
    });
    let fields = more.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(fields);
    let mut object = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()),
        "metadata": {"name": "on-call", "namespace": (!K::CLUSTER).then_some("shop")},
    });
    match K::PREFIX {
        "" => object
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone()),
        _ => object["spec"] = spec,
    }
    World::from_object(object)
}

/// Returns the end of a binding at this second, after a change in its window.
fn end_of<K: InMemory>(
    second: i64,
    change: impl FnOnce(&mut World<K>),
) -> (Phase, Option<EndReason>) {
    let mut world = binding::<K>(&json!({}));
    assert_eq!(world.settle(timestamp(60)).phase, Phase::Active);
    assert_eq!(world.bound(), ["alice"]);
    change(&mut world);
    let status = world.settle(timestamp(second));
    assert!(world.bound().is_empty());
    (status.phase, status.ending.map(|ending| ending.reason))
}

#[test]
fn binding_of_every_kind_ends_with_its_window() {
    for_each_binding!(K => {
        let end = end_of::<K>(360, |_| {});
        assert_eq!(end, (Phase::Expired, Some(EndReason::Expired)), "{}", K::NAME);
    });
}

#[test]
fn lock_ends_binding_of_every_kind() {
    for user in ["alice", "bob"] {
        for_each_binding!(K => {
            let end = end_of::<K>(61, |world| {
                world.locks = Locks {
                    all: vec![order::lock(&json!({"user": user}))],
                    unreadable: 0,
                };
            });
            let expected = (Phase::Revoked, Some(EndReason::Locked));
            assert_eq!(end, expected, "{} {user}", K::NAME);
        });
    }
}

#[test]
fn changed_binding_of_every_kind_is_revoked() {
    for_each_binding!(K => {
        let end = end_of::<K>(61, |world| {
            world.live[0].object.data["subjects"][0]["name"] = json!("mallory");
        });
        let expected = (Phase::Revoked, Some(EndReason::DriftDetected));
        assert_eq!(end, expected, "{}", K::NAME);
    });
}

/// Returns the response of the check `desk` at this second.
fn said(second: i64, answer: Answer) -> BTreeMap<String, Said> {
    let said = Said {
        asked_at: timestamp(second),
        answer,
        away_since: None,
    };
    BTreeMap::from([("desk".to_owned(), said)])
}

/// The published kinds have no field for a change ticket.
#[test]
fn closed_ticket_ends_binding_of_both_kinds_of_oz() {
    let checks = BTreeMap::from([("desk".to_owned(), CheckTerms::UNKNOWN)]);
    let checks = Some(Arc::new(checks));
    for_each_kind!(bindings K => {
        let mut world = binding::<K>(&json!({"ticket": "INC-42"}));
        world.judgement = Some(Judgement {
            tickets: vec![ticket(None, Some("desk"))],
            ..judgement()
        });
        world.stamp();
        world.tickets.checks = checks.clone();
        world.tickets.said = said(60, Answer::Accepted);
        assert_eq!(world.settle(timestamp(61)).phase, Phase::Active, "{}", K::NAME);
        world.tickets.said = said(121, Answer::Refused("it is closed".into()));
        let status = world.settle(timestamp(122));
        assert_eq!(status.phase, Phase::Revoked, "{}", K::NAME);
        assert_eq!(status.ending.unwrap().reason, EndReason::TicketClosed);
        assert!(world.bound().is_empty());
    });
}
