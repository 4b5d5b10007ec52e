//! Attempts with names: to carry data out in them, and to reach other addresses by them.

use anyhow::Result;

use super::fails;

/// Resolving a name that contains stolen data: the proxy responds that the name does not exist, and asks no other
/// server.
#[tokio::test]
async fn name_that_carries_data() -> Result<()> {
    fails("name_that_carries_data").await
}

/// Sending a question with stolen data to a name server outside: the proxy receives the question and responds that the
/// name does not exist.
#[tokio::test]
async fn question_to_another_server() -> Result<()> {
    fails("question_to_another_server").await
}

/// Sending such a question over TCP: the proxy receives it, and no question leaves the pod.
#[tokio::test]
async fn question_over_tcp() -> Result<()> {
    fails("question_over_tcp").await
}

/// Asking for a name below a granted host, for a text or for a zone: the proxy responds without an address, and no
/// question leaves the pod.
#[tokio::test]
async fn question_of_another_type() -> Result<()> {
    fails("question_of_another_type").await
}

/// Sending a question to the port of the proxy itself: the proxy responds as to any question.
#[tokio::test]
async fn port_of_names() -> Result<()> {
    fails("port_of_names").await
}

/// Requesting a granted host with a name that resolves to the metadata address: the proxy does not connect, and the audit
/// trail records it.
#[tokio::test]
async fn granted_name_of_the_metadata_address() -> Result<()> {
    fails("granted_name_of_the_metadata_address").await
}

/// Requesting a granted host with a name that resolves to private addresses, and to that of a node: the proxy does not
/// connect, and the audit trail records it.
#[tokio::test]
async fn granted_name_of_a_private_address() -> Result<()> {
    fails("granted_name_of_a_private_address").await
}

/// Requesting a granted host with a name that resolves to another address each time, one of them the metadata address: the
/// proxy checks the address that it connects to, each time.
#[tokio::test]
async fn name_with_another_address_each_time() -> Result<()> {
    fails("name_with_another_address_each_time").await
}

/// Connecting to the address of another server with a granted host as its name (SNI): the proxy connects to an address
/// of the granted host.
#[tokio::test]
async fn granted_name_at_another_address() -> Result<()> {
    fails("granted_name_at_another_address").await
}

/// Connecting to another port of a granted host: the proxy refuses it, because the policy grants port 443.
#[tokio::test]
async fn granted_host_at_another_port() -> Result<()> {
    fails("granted_host_at_another_port").await
}
