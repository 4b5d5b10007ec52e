//! Counts of destinations.

use std::time::Duration;

use http::StatusCode;
use oz_api::harness::wire::{EgressCount, EgressReason};

use super::world::{HOST, World};

#[tokio::test]
async fn connections_and_uses_are_counted() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    for _ in 0..3 {
        assert_eq!(client.ask().await.0, StatusCode::OK);
    }
    // The first of each kind at once, the others a minute later.
    tokio::time::pause();
    let uses = |egress: &[EgressCount]| egress.iter().map(|one| one.uses).sum::<u64>();
    let egress = world.broker.reported(|egress| uses(egress) == 3).await;
    let granted = egress.iter().map(|one| one.granted).sum::<u64>();
    assert_eq!(granted, 1);
    for one in &egress {
        assert_eq!((one.host.as_str(), one.port, one.refused), (HOST, 443, 0));
        assert_eq!(
            one.credential.as_deref(),
            (one.uses > 0).then_some("API_KEY")
        );
    }
}

/// The same refusal again and again: two reports in the first minute at most.
#[tokio::test]
async fn repeats_are_reported_once_a_minute() {
    let world = World::start().await;
    let counts = &world.proxy.counts;
    let refuse = || counts.refuse("x.example.com", 443, EgressReason::HostNotGranted, None);
    refuse();
    world.broker.reported(|egress| egress.len() == 1).await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    for _ in 0..1000 {
        refuse();
    }
    let egress = world.broker.reported(|egress| egress.len() == 2).await;
    assert_eq!((egress[0].refused, egress[1].refused), (1, 1000));
    assert!(begun.elapsed() >= Duration::from_secs(50));
}

/// Names without end: their number in memory and in a report is limited, and no refusal is lost.
#[tokio::test]
async fn many_destinations_are_counted_together() {
    let world = World::start().await;
    let counts = &world.proxy.counts;
    for number in 0..10_000 {
        let name = format!("{number}.example.com");
        counts.refuse(&name, 0, EgressReason::HostNotGranted, None);
    }
    tokio::time::pause();
    let refused = |egress: &[EgressCount]| egress.iter().map(|one| one.refused).sum::<u64>();
    let egress = world
        .broker
        .reported(|egress| refused(egress) == 10_000)
        .await;
    assert!(egress.len() <= 257, "{}", egress.len());
    assert!(*world.broker.state.reports.borrow() >= 5);
}

/// The proxy of the original ignores the failure.
#[tokio::test]
async fn f24_counts_that_did_not_arrive_are_reported_later() {
    let world = World::start().await;
    let state = &world.broker.state;
    let path = "/v1/report".to_owned();
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    state.refusals.lock().insert(path, unavailable);
    let counts = &world.proxy.counts;
    counts.refuse("x.example.com", 443, EgressReason::NoHost, None);
    world.proxy.counts.finish(&world.proxy.broker).await;
    state.refusals.lock().clear();
    world.proxy.counts.finish(&world.proxy.broker).await;
    let egress = world.broker.reported(|egress| !egress.is_empty()).await;
    assert_eq!(egress.iter().map(|one| one.refused).sum::<u64>(), 1);
}
