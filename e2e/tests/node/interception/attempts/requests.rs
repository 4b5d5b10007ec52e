//! Attempts with requests: hosts in several places, several requests in one, and servers of the cluster.

use anyhow::Result;

use super::{fails, fails_with};

/// Requesting a host that no policy grants: the proxy refuses it, and the audit trail records it.
#[tokio::test]
async fn host_that_is_not_granted() -> Result<()> {
    fails("host_that_is_not_granted").await
}

/// Requesting another host than that of the connection (domain fronting): the proxy responds with 421, and the audit
/// trail records it.
#[tokio::test]
async fn host_that_differs_from_sni() -> Result<()> {
    fails_with("host_that_differs_from_sni", "421").await
}

/// Requesting two hosts in one request: the proxy responds with 400.
#[tokio::test]
async fn two_hosts() -> Result<()> {
    fails_with("two_hosts", "400").await
}

/// Requesting the URL of another host over the connection of a granted host: the proxy responds with 421.
#[tokio::test]
async fn absolute_target_of_another_host() -> Result<()> {
    fails_with("absolute_target_of_another_host", "421").await
}

/// Connecting with TLS without the name of a host (SNI): the proxy refuses the connection.
#[tokio::test]
async fn handshake_without_a_name() -> Result<()> {
    fails("handshake_without_a_name").await
}

/// Speaking another protocol inside TLS to a granted host: the proxy refuses it, because the bytes are no request.
#[tokio::test]
async fn plain_protocol_inside_tls() -> Result<()> {
    fails("plain_protocol_inside_tls").await
}

/// Requesting granted hosts with an expired certificate, that of another host, and one that no authority signed: the
/// proxy responds with an error, and sends the upstream no request.
#[tokio::test]
async fn invalid_certificates_of_upstreams() -> Result<()> {
    fails("invalid_certificates_of_upstreams").await
}

/// Smuggling a second request past the proxy by two lengths: the proxy responds with 400, and the upstream receives no
/// request.
#[tokio::test]
async fn two_lengths() -> Result<()> {
    fails_with("two_lengths", "400").await
}

/// Smuggling a second request by a length and chunks: the proxy responds with 400, and the upstream receives no request.
#[tokio::test]
async fn length_and_chunks() -> Result<()> {
    fails_with("length_and_chunks", "400").await
}

/// Smuggling a second request by a transfer encoding that servers read differently: the proxy refuses it, and the
/// upstream receives one request at most.
#[tokio::test]
async fn obfuscated_chunks() -> Result<()> {
    fails("obfuscated_chunks").await
}

/// Naming the credential or the host in the header Connection, so that the proxy removes it: the upstream receives no
/// placeholder, and only the granted host.
#[tokio::test]
async fn header_that_is_removed_on_the_way() -> Result<()> {
    fails("header_that_is_removed_on_the_way").await
}

/// Adding a header by a line break inside another: the proxy refuses the request or forwards one header without line
/// breaks.
#[tokio::test]
async fn line_break_in_a_header() -> Result<()> {
    fails("line_break_in_a_header").await
}

/// Connecting to the port of the proxy itself, on loopback and at the address of the pod: the proxy refuses the
/// connection.
#[tokio::test]
async fn port_of_the_proxy() -> Result<()> {
    fails("port_of_the_proxy").await
}

/// Using the proxy as a configured proxy, by CONNECT and by an absolute URL: the proxy refuses the connection.
#[tokio::test]
async fn proxy_as_configured_proxy() -> Result<()> {
    fails("proxy_as_configured_proxy").await
}

/// Connecting to the broker by the name in the hosts file of the pod: the proxy receives the connection and refuses its
/// host.
#[tokio::test]
async fn broker_by_its_name() -> Result<()> {
    fails("broker_by_its_name").await
}

/// Connecting to the endpoint of the broker by its address: the proxy receives the connection and refuses its host.
#[tokio::test]
async fn broker_at_its_endpoint() -> Result<()> {
    fails("broker_at_its_endpoint").await
}

/// Connecting to the API server by the address of its Service: the proxy receives the connection and refuses its host.
#[tokio::test]
async fn api_server() -> Result<()> {
    fails("api_server").await
}
