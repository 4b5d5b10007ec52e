//! The name server of the pod, over UDP and TCP on loopback. It answers by the grants, and forwards no question: names
//! would carry data out of the pod.

use std::sync::Arc;
use std::time::Duration;

use oz_api::harness::wire::EgressReason;
use oz_egress::dns::{Answer, answer};
use oz_egress::grants::Granted;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::network::Network;
use super::state::Proxy;

/// The maximum size of a question over UDP in bytes; longer ones are truncated, and then not readable.
const MAX_QUESTION: usize = 4096;
/// The maximum number of connections over TCP.
const MAX_CONNECTIONS: usize = 32;
/// The time in which a client over TCP sends a question and takes the answer.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failure to accept or receive.
const PAUSE: Duration = Duration::from_millis(50);
/// The response code for a failure of the server.
const SERVER_FAILURE: u8 = 2;

/// Responds to queries over UDP, until the caller drops this.
pub(crate) async fn serve_udp<N: Network>(proxy: Arc<Proxy<N>>, socket: UdpSocket) {
    let mut buffer = vec![0; MAX_QUESTION];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            sleep(PAUSE).await;
            continue;
        };
        let question = buffer.get(..length).unwrap_or_default();
        if let Some(bytes) = respond(&proxy, question) {
            // A client that does not take the answer asks again.
            let _ = socket.send_to(&bytes, from).await.is_ok();
        }
    }
}

/// Responds to queries over TCP, until the caller drops this.
pub(crate) async fn serve_tcp<N: Network>(proxy: Arc<Proxy<N>>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            // A client that sends no complete question gets no answer.
            let _ = converse(&proxy, stream).await.is_ok();
            drop(place);
        });
    }
}

async fn converse<N: Network>(proxy: &Proxy<N>, mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let exchange = async {
            let length = stream.read_u16().await?;
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await?;
            let Some(answer) = respond(proxy, &question) else {
                return Err(std::io::ErrorKind::InvalidData.into());
            };
            let length = u16::try_from(answer.len()).map_err(std::io::Error::other)?;
            let mut message = length.to_be_bytes().to_vec();
            message.extend(answer);
            stream.write_all(&message).await
        };
        timeout(TCP_TIMEOUT, exchange).await??;
    }
}

fn respond<N: Network>(proxy: &Proxy<N>, question: &[u8]) -> Option<Vec<u8>> {
    let granted = proxy.grants.now();
    let has_lapsed = granted.is_err();
    let granted = granted.unwrap_or_else(|_| Arc::new(Granted::default()));
    let Answer {
        mut bytes,
        name,
        refused,
    } = answer(&granted, proxy.families, question)?;
    if refused {
        let reason = match has_lapsed {
            true => EgressReason::GrantsStale,
            false => EgressReason::HostNotGranted,
        };
        proxy.counts.refuse(&name, 0, reason, None);
    }
    // The name may exist again in a moment: clients remember that a name does not exist.
    if has_lapsed && let Some(flags) = bytes.get_mut(3) {
        *flags = (*flags & 0xf0) | SERVER_FAILURE;
    }
    Some(bytes)
}
