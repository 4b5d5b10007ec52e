//! The certificates of hosts, and of the proxy.

use http::StatusCode;
use oz_api::harness::wire::EgressReason;
use rustls::RootCertStore;

use super::upstream::Certificate;
use super::world::{HOST, World};

/// A host with a certificate that is not valid for its name: refused, and no request arrives.
#[tokio::test]
async fn host_with_an_invalid_certificate_gets_no_request() {
    for (certificate, why) in [
        (Certificate::Expired, "expired"),
        (Certificate::OtherName, "not valid for name"),
        (Certificate::SelfSigned, "UnknownIssuer"),
    ] {
        let world = World::with(certificate).await;
        let (status, text) = world.client(HOST).await.ask().await;
        assert_eq!(status, StatusCode::BAD_GATEWAY, "{certificate:?}: {text}");
        assert!(text.contains(why), "{certificate:?}: {text}");
        assert_eq!(world.upstream.requests(), 0);
        let is_counted = |one: &oz_api::harness::wire::EgressCount| {
            one.reason == Some(EgressReason::Upstream) && one.host == HOST
        };
        world
            .broker
            .reported(|egress| egress.iter().any(is_counted))
            .await;
    }
}

/// A host of an authority that only the chart names: not trusted without it.
#[tokio::test]
async fn authority_of_the_configuration_is_trusted_while_the_grants_have_it() {
    let world = World::start().await;
    assert_eq!(world.client(HOST).await.ask().await.0, StatusCode::OK);
    world
        .broker
        .change(|grants| grants.certificates.clear())
        .await;
    let (status, text) = world.client(HOST).await.ask().await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{text}");
}

#[tokio::test]
async fn client_that_does_not_trust_the_authority_is_counted() {
    let world = World::start().await;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    assert!(world.tls_with(HOST, roots, &[]).await.is_err());
    let egress = world.broker.reported(|egress| !egress.is_empty()).await;
    assert_eq!(egress[0].reason, Some(EgressReason::Handshake));
    assert_eq!((egress[0].host.as_str(), egress[0].port), (HOST, 443));
}

#[tokio::test]
async fn leaf_is_made_once_for_a_hundred_handshakes() {
    let world = World::start().await;
    let before = world.proxy.acceptor.authority().made();
    let handshakes = (0..100).map(|_| world.tls(HOST));
    let done = futures::future::join_all(handshakes).await;
    assert!(done.iter().all(Result::is_ok));
    assert_eq!(world.proxy.acceptor.authority().made(), before + 1);
}
