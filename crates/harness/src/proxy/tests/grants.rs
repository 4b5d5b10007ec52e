//! Changes of grants: connections without a grant end.

use http::StatusCode;
use oz_api::harness::wire::EgressReason;

use super::world::{HOST, KEY, World, lent};

#[tokio::test]
async fn connections_are_cut_when_the_host_is_no_longer_granted() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    assert_eq!(client.ask().await.0, StatusCode::OK);
    world
        .broker
        .change(|grants| grants.hosts[0].ports = vec![80])
        .await;
    client.ended.await.unwrap();
    assert!(world.tls(HOST).await.is_err());
}

#[tokio::test]
async fn connections_are_cut_when_their_credential_goes() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    assert_eq!(client.ask().await.0, StatusCode::OK);
    assert_eq!(world.proxy.credentials.count(), 1);
    world
        .broker
        .change(|grants| grants.credentials.clear())
        .await;
    client.ended.await.unwrap();
    assert_eq!(world.proxy.credentials.count(), 0);
    // The placeholder of a credential that is not granted is not sent anywhere.
    let (status, text) = world.client(HOST).await.ask().await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    assert_eq!(world.upstream.requests(), 1);
}

#[tokio::test]
async fn connections_stay_when_another_host_is_granted() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    assert_eq!(client.ask().await.0, StatusCode::OK);
    for number in 0..10 {
        world
            .broker
            .change(|grants| {
                let mut host = grants.hosts[0].clone();
                host.host = format!("h{number}.example.com");
                grants.hosts.push(host);
            })
            .await;
    }
    assert_eq!(client.ask().await.0, StatusCode::OK);
    assert_eq!(*world.upstream.seen.connections.lock(), 1);
    assert_eq!(world.broker.lends(), 1);
}

#[tokio::test]
async fn replaced_secret_is_fetched_again() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    assert_eq!(client.ask().await.0, StatusCode::OK);
    let values = &world.broker.state.values;
    values
        .lock()
        .insert("API_KEY".to_owned(), lent("another-key", "2"));
    world
        .broker
        .change(|grants| grants.credentials[0].version = "2".to_owned())
        .await;
    client.ended.await.unwrap();
    let mut client = world.client(HOST).await;
    assert_eq!(client.ask().await.0, StatusCode::OK);
    assert_eq!(
        world.upstream.header("authorization").unwrap(),
        "Bearer another-key"
    );
    assert_eq!(world.broker.lends(), 2);
}

/// The broker lends a newer value than that of the grants: the request waits for the grants.
#[tokio::test]
async fn newer_value_is_used_when_the_grants_have_its_version() {
    let world = World::start().await;
    let values = &world.broker.state.values;
    values
        .lock()
        .insert("API_KEY".to_owned(), lent("another-key", "2"));
    let mut client = world.client(HOST).await;
    let change = async {
        while world.broker.lends() == 0 {
            tokio::task::yield_now().await;
        }
        world
            .broker
            .change(|grants| grants.credentials[0].version = "2".to_owned())
            .await;
    };
    let ((status, text), ()) = tokio::join!(client.ask(), change);
    assert_eq!(status, StatusCode::OK, "{text}");
    assert_eq!(
        world.upstream.header("authorization").unwrap(),
        "Bearer another-key"
    );
}

#[tokio::test]
async fn lent_value_expires() {
    let world = World::start().await;
    let values = &world.broker.state.values;
    let mut short = lent(KEY, "1");
    short.seconds = 0;
    values.lock().insert("API_KEY".to_owned(), short);
    let mut client = world.client(HOST).await;
    assert_eq!(client.ask().await.0, StatusCode::OK);
    assert_eq!(client.ask().await.0, StatusCode::OK);
    assert_eq!(world.broker.lends(), 2);
}

/// The broker is gone: after 30 seconds the proxy refuses everything, and closes its connections.
#[tokio::test]
async fn grants_lapse_without_a_broker() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    assert_eq!(client.ask().await.0, StatusCode::OK);
    world.broker.stop();
    tokio::time::pause();
    client.ended.await.unwrap();
    tokio::time::resume();
    assert_eq!(world.proxy.credentials.count(), 0);
    assert!(world.proxy.grants.now().unwrap_err().contains("30 s"));
    let error = world.tls(HOST).await.unwrap_err();
    assert!(error.to_string().contains("InternalError"), "{error}");
    let (status, text) = world.plain_client().await.ask().await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    assert!(text.contains("broker"), "{text}");
}

/// The broker refuses the run, for example since it has ended: everything ends at once.
#[tokio::test]
async fn refusal_of_the_broker_ends_the_grants() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    assert_eq!(client.ask().await.0, StatusCode::OK);
    let state = &world.broker.state;
    let refuse = |status| {
        state
            .refusals
            .lock()
            .insert("/v1/grants".to_owned(), status)
    };
    refuse(StatusCode::FORBIDDEN);
    // The answer to the held request is one more.
    state.grants.send_modify(|grants| grants.digest += "b");
    client.ended.await.unwrap();
    let error = world.tls(HOST).await.unwrap_err();
    assert!(error.to_string().contains("InternalError"), "{error}");
    let egress = world.broker.reported(|egress| {
        let mut reasons = egress.iter().map(|one| one.reason);
        reasons.any(|reason| reason == Some(EgressReason::GrantsStale))
    });
    egress.await;
    // And again once the broker answers.
    state.refusals.lock().clear();
    let mut seen = world.proxy.grants.subscribe();
    seen.wait_for(|state| state.granted().is_ok())
        .await
        .unwrap();
    assert_eq!(world.client(HOST).await.ask().await.0, StatusCode::OK);
}

/// Grants that cannot be read: nothing is granted by those before.
#[tokio::test]
async fn unreadable_grants_grant_nothing() {
    let world = World::start().await;
    let mut seen = world.proxy.grants.subscribe();
    let state = &world.broker.state;
    state.grants.send_modify(|grants| {
        grants.digest = "../?".to_owned();
    });
    seen.wait_for(|state| state.granted().is_err())
        .await
        .unwrap();
    assert!(world.tls(HOST).await.is_err());
}
