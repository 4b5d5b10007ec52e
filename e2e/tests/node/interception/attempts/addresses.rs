//! Attempts to reach an address past the proxy.

use anyhow::Result;

use super::fails;

/// Opening a raw socket, to send packets that the firewall would take for others: the kernel denies it, because the
/// container has no capability.
#[tokio::test]
async fn raw_socket() -> Result<()> {
    fails("raw_socket").await
}

/// Opening a packet socket, to send frames below the firewall: the kernel denies it.
#[tokio::test]
async fn packet_socket() -> Result<()> {
    fails("packet_socket").await
}

/// Sending a datagram to another server: the firewall of the pod rejects it.
#[tokio::test]
async fn datagram_to_any_port() -> Result<()> {
    fails("datagram_to_any_port").await
}

/// Connecting by QUIC (HTTP/3), which has no TCP that could be redirected: the firewall rejects the datagram, and
/// clients use TCP.
#[tokio::test]
async fn quic_datagram() -> Result<()> {
    fails("quic_datagram").await
}

/// Connecting by SCTP, UDP-Lite or DCCP: the kernel or the firewall denies each of them.
#[tokio::test]
async fn other_transport() -> Result<()> {
    fails("other_transport").await
}

/// Sending data in an ICMP echo by a socket that requires no capability: the kernel or the firewall denies it.
#[tokio::test]
async fn ping_socket() -> Result<()> {
    fails("ping_socket").await
}

/// Sending data in an ICMP echo by a raw socket: the kernel denies it.
#[tokio::test]
async fn raw_ping() -> Result<()> {
    fails("raw_ping").await
}

/// Sending data in an ICMPv6 echo: the kernel or the firewall denies it.
#[tokio::test]
async fn ping_over_ipv6() -> Result<()> {
    fails("ping_over_ipv6").await
}

/// Connecting to an IPv6 address, in case only IPv4 is redirected: the proxy receives the connection and refuses its
/// host.
#[tokio::test]
async fn connection_over_ipv6() -> Result<()> {
    fails("connection_over_ipv6").await
}

/// Sending a datagram to an IPv6 address: the firewall rejects it.
#[tokio::test]
async fn datagram_over_ipv6() -> Result<()> {
    fails("datagram_over_ipv6").await
}

/// Connecting to an IPv4 address in the form of an IPv6 address: the proxy receives the connection and refuses its
/// host.
#[tokio::test]
async fn mapped_address() -> Result<()> {
    fails("mapped_address").await
}

/// Changing to the user of the proxy, with connections that leave the pod: the kernel denies the change.
#[tokio::test]
async fn user_of_the_proxy() -> Result<()> {
    fails("user_of_the_proxy").await
}

/// Running a program of the image with the set-user-ID bit of root: the kernel ignores the bit, because the container
/// may not gain privileges.
#[tokio::test]
async fn program_of_root() -> Result<()> {
    fails("program_of_root").await
}

/// Creating a user namespace in which the agent has the user id of the proxy: the profile of system calls denies it,
/// and the firewall would compare the id outside the namespace.
#[tokio::test]
async fn user_namespace() -> Result<()> {
    fails("user_namespace").await
}

/// Deleting the tables of the firewall from the container of the agent: the kernel denies it, because the container has
/// no capability.
#[tokio::test]
async fn rules_of_the_firewall() -> Result<()> {
    fails("rules_of_the_firewall").await
}

/// Connecting to the metadata address of a cloud: the proxy receives the connection and refuses its host.
#[tokio::test]
async fn metadata_address() -> Result<()> {
    fails("metadata_address").await
}

/// Requesting the metadata address as the host of a request: the proxy refuses it, because no policy can grant it.
#[tokio::test]
async fn metadata_address_as_host() -> Result<()> {
    fails("metadata_address_as_host").await
}

/// Speaking another protocol than HTTP and TLS to any server: the proxy refuses the connection, and the audit trail
/// records it.
#[tokio::test]
async fn plain_protocol() -> Result<()> {
    fails("plain_protocol").await
}

/// Opening 2,000 connections at once, to end the interception: the proxy limits them, and serves the next request.
#[tokio::test]
async fn thousands_of_connections() -> Result<()> {
    fails("thousands_of_connections").await
}
