//! Failures: the steps that are still carried out, those that are not, and those that are retried.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use oz_api::names;
use oz_audit::Sink;
use oz_core::controller::Failure;
use oz_runtime::{Election, LeaseTiming};
use oz_trail::Record;
use serde_json::json;

use crate::mock::{Call, Mock, status};
use crate::objects::{BOX_STATUS, BOXES, MAPS, OUTER, SECRETS, open, stored, timebox};
use crate::timebox::Timeboxes;

#[tokio::test]
async fn failed_step_ends_plan_is_reported_once_and_retried() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    let busy = || status(503, "ServiceUnavailable", "try again");
    mock.expect(Method::POST, MAPS, move |_| (503, busy()));
    mock.expect_status(json!({"phase": "Failed", "reason": "ServerError", "children": 0}));
    // The second failure changes nothing in the status.
    mock.expect(Method::POST, MAPS, move |_| (503, busy()));
    mock.expect_create(MAPS, "outer-uid");
    mock.expect_create(SECRETS, "inner-uid");
    mock.expect_status(json!({"phase": "Open", "reason": null, "children": 2}));
    mock.run().finish().await;
}

#[tokio::test]
async fn a_foreign_object_of_the_same_name_is_a_conflict_and_never_written() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    let taken = status(
        409,
        "AlreadyExists",
        "configmaps \"a-outer\" already exists",
    );
    mock.expect(Method::POST, MAPS, |_| (409, taken));
    mock.expect(Method::GET, OUTER, |_| {
        let metadata = json!({"name": "a-outer", "namespace": "dev", "uid": "foreign-uid",
            "resourceVersion": "12"});
        (
            200,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),
        )
    });
    mock.expect_status(json!({"phase": "Failed", "reason": "NameConflict", "children": 0}));
    mock.run().finish().await;
}

#[tokio::test]
async fn rejected_write_is_not_repeated_until_object_changes() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    let invalid = status(422, "Invalid", "data: too long");
    mock.expect(Method::POST, MAPS, |_| (422, invalid));
    mock.expect_status(json!({"phase": "Failed", "reason": "Rejected", "children": 0}));
    let engine = mock.run();
    mock.watched(BOXES).await;
    mock.played().await;

    mock.expect_create(MAPS, "outer-uid");
    mock.expect_create(SECRETS, "inner-uid");
    mock.expect(Method::PATCH, BOX_STATUS, |_| (200, timebox(3_000)));
    let mut changed = timebox(2_000);
    changed["spec"]["content"] = json!("silver");
    mock.show(BOXES, "MODIFIED", &changed);
    engine.finish().await;
}

/// A sink that fails for a number of calls, and then discards the records.
struct Flaky(std::sync::atomic::AtomicUsize);

impl Sink for Flaky {
    fn record<'a>(&'a self, _: &'a Record) -> BoxFuture<'a, Result<(), Failure>> {
        use std::sync::atomic::Ordering;
        let left = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        let result = match left {
            Ok(_) => Err(Failure::transient(
                "SinkUnreachable",
                "no record can be kept",
            )),
            Err(_) => Ok(()),
        };
        futures::future::ready(result).boxed()
    }
}

#[tokio::test]
async fn without_a_durable_record_nothing_that_follows_it_is_written() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    mock.expect_status(json!({"phase": "Failed", "reason": "SinkUnreachable", "children": 0}));
    mock.expect_create(MAPS, "outer-uid");
    mock.expect_create(SECRETS, "inner-uid");
    mock.expect_status(json!({"phase": "Open", "reason": null, "children": 2}));
    let controller = Timeboxes {
        recorded: true,
        ..Timeboxes::default()
    };
    let engine = mock.run_with(controller, Flaky(2.into()), Election::Off);
    engine.finish().await;
}

#[tokio::test]
async fn a_status_that_could_not_be_written_is_tried_again_without_repeating_the_rest() {
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    mock.expect_create(MAPS, "outer-uid");
    mock.expect_create(SECRETS, "inner-uid");
    mock.expect(Method::PATCH, BOX_STATUS, |_| {
        (500, status(500, "InternalError", "sorry"))
    });
    mock.expect_status(open());
    mock.run().finish().await;
}

#[tokio::test]
async fn a_kind_that_is_not_installed_is_waited_for_and_named() {
    let mock = Mock::default();
    mock.unknown(BOXES);
    mock.list(BOXES, json!([timebox(900)]));
    let engine = mock.run();
    let crd = "CRD timeboxes.test.wizardofoz.co".to_owned();
    let named = async {
        while !engine.readiness.waiting_for().contains(&crd) {
            tokio::task::yield_now().await;
        }
    };
    let named = tokio::time::timeout(std::time::Duration::from_secs(20), named).await;
    assert!(named.is_ok(), "{:?}", engine.readiness.waiting_for());

    mock.expect_create(MAPS, "outer-uid");
    mock.expect_create(SECRETS, "inner-uid");
    mock.expect_status(open());
    mock.listed(BOXES);
    let readiness = engine.readiness.clone();
    engine.finish().await;
    assert_eq!(readiness.waiting_for(), Vec::<String>::new());
}

/// A sink that counts its records.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl Sink for Counting {
    fn record<'a>(&'a self, _: &'a Record) -> BoxFuture<'a, Result<(), Failure>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        futures::future::ready(Ok(())).boxed()
    }
}

#[tokio::test]
async fn a_leader_that_could_not_renew_in_time_writes_nothing_and_records_nothing() {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/oz/leases";
    let lease = format!("{leases}/{}", names::LEASE);
    let mock = Mock::default();
    mock.list(BOXES, json!([timebox(900)]));
    mock.expect(Method::GET, &lease, |_| {
        (404, status(404, "NotFound", "no such lease"))
    });
    mock.expect(Method::POST, leases, |call| {
        (201, stored(&call.body, "lease-uid", 1_001))
    });
    // The leadership ends as soon as it begins, and the next renewal is far away.
    let timing = LeaseTiming {
        duration: Duration::from_secs(15),
        renew_deadline: Duration::ZERO,
        retry_period: Duration::from_secs(3_600),
        look_period: Duration::from_millis(100),
    };
    let leadership = Election::Lease {
        namespace: "oz".to_owned(),
        name: names::LEASE.to_owned(),
        identity: "me".to_owned(),
        timing,
        again: false,
    };
    let controller = Timeboxes {
        recorded: true,
        ..Timeboxes::default()
    };
    let sink = Counting::default();
    let engine = mock.run_with(controller, sink.clone(), leadership);
    mock.played().await;
    let plans = Arc::clone(&engine.controller.plans);
    let tried = async {
        while plans.load(Ordering::Relaxed) < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(20), tried)
            .await
            .is_ok()
    );
    // The engine releases the lease when it stops.
    mock.expect(Method::GET, &lease, |_| {
        let spec = json!({"holderIdentity": "me", "leaseTransitions": 1});
        let metadata = json!({"name": names::LEASE, "namespace": "oz", "resourceVersion": "1001"});
        (200, json!({"metadata": metadata, "spec": spec}))
    });
    mock.expect(Method::PUT, &lease, |call| {
        assert_eq!(call.body["spec"].get("holderIdentity"), None);
        assert_eq!(call.body["metadata"]["resourceVersion"], "1001");
        (200, call.body.clone())
    });
    engine.stop_and_finish().await;
    assert_eq!(sink.0.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn lease_renewal_with_lost_response_is_repeated_at_once() {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/oz/leases";
    let lease = format!("{leases}/{}", names::LEASE);
    let held = |holder: &'static str, version: &'static str| {
        let metadata = json!({"name": names::LEASE, "namespace": "oz", "resourceVersion": version});
        move |_: &Call| {
            let spec = json!({"holderIdentity": holder, "leaseTransitions": 1});
            (200, json!({"metadata": metadata, "spec": spec}))
        }
    };
    let conflict = |_: &Call| (409, status(409, "Conflict", "it was changed"));
    let mock = Mock::default();
    mock.list(BOXES, json!([]));
    mock.expect(Method::GET, &lease, |_| {
        (404, status(404, "NotFound", "no such lease"))
    });
    mock.expect(Method::POST, leases, |call| {
        (201, stored(&call.body, "lease-uid", 1_001))
    });
    // The lease was written, as the next request shows: it is too late to wait for another renewal.
    mock.expect(Method::PUT, &lease, conflict)
        .expect(Method::GET, &lease, held("me", "1002"))
        .expect(Method::PUT, &lease, |call| {
            assert_eq!(call.body["metadata"]["resourceVersion"], "1002");
            (200, call.body.clone())
        });
    mock.expect(Method::PUT, &lease, conflict)
        .expect(Method::GET, &lease, held("another", "1003"));
    let leadership = Election::Lease {
        namespace: "oz".to_owned(),
        name: names::LEASE.to_owned(),
        identity: "me".to_owned(),
        timing: LeaseTiming {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_millis(50),
            retry_period: Duration::from_millis(50),
            look_period: Duration::from_millis(50),
        },
        again: false,
    };
    let engine = mock.run_with(Timeboxes::default(), oz_audit::LogSink, leadership);
    let lost = engine.lost().await;
    assert!(lost.contains("the holder is another"), "{lost}");
    mock.nothing_else();
}
