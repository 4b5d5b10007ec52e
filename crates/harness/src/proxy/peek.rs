//! The first bytes of a connection, which may name the host.

use std::time::Duration;

use oz_api::harness::wire::EgressReason;
use oz_egress::hello::{First, MAX_HELLO, first};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time in which a client sends its first message.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The size of the buffer in which the first message usually fits.
const USUAL: usize = 2048;

/// Reads until the first bytes say what the connection is. Returns the bytes, too.
pub(crate) async fn peek(stream: &mut TcpStream) -> (First, Vec<u8>) {
    let mut bytes = Vec::with_capacity(USUAL);
    let read = timeout(TIMEOUT, read(stream, &mut bytes)).await;
    let first = read.unwrap_or_else(|_| protocol("the client sent nothing that names a host"));
    (first, bytes)
}

async fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> First {
    loop {
        match first(bytes) {
            First::Incomplete if bytes.len() < MAX_HELLO => {}
            First::Incomplete => return protocol("the first message is too long"),
            known => return known,
        }
        let mut more = (&mut *stream).take(MAX_HELLO.saturating_sub(bytes.len()) as u64);
        match more.read_buf(bytes).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => return protocol("the client sent nothing that names a host"),
        }
    }
}

const fn protocol(why: &'static str) -> First {
    First::Refused(EgressReason::Protocol, why)
}
