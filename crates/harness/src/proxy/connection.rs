//! One connection of the pod: its destination, its first bytes, and its end when the grants that it uses go.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use oz_api::harness::wire::EgressReason;
use oz_egress::hello::First;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::grants::State;
use super::network::Network;
use super::peek::peek;
use super::prefixed::Prefixed;
use super::serve::{self, Session};
use super::state::Proxy;
use super::tls::{self, Alert, HTTP};
use super::uses::Uses;

/// Serves a connection until it ends, or until the grants that it uses go.
pub(crate) async fn handle<N: Network>(proxy: &Arc<Proxy<N>>, stream: TcpStream) {
    let destination = proxy.network.destination(&stream);
    let port = destination.as_ref().map_or(0, SocketAddr::port);
    // A connection that was not redirected is one to the proxy.
    let is_own = match destination {
        Ok(destination) => is_own(proxy, &stream, destination),
        Err(_) => true,
    };
    if is_own {
        proxy.counts.refuse("", port, EgressReason::ProxyPort, None);
        return;
    }
    if stream.set_nodelay(true).is_err() {
        return;
    }
    // Before the first decision: a change after it is not missed.
    let seen = proxy.grants.subscribe();
    let uses = Arc::new(Uses::default());
    tokio::select! {
        biased;
        () = lose(seen, &uses) => {}
        () = converse(proxy, stream, port, Arc::clone(&uses)) => {}
    }
}

fn is_own<N>(proxy: &Proxy<N>, stream: &TcpStream, destination: SocketAddr) -> bool {
    let address = destination.ip().to_canonical();
    let is_here = |local: IpAddr| local.to_canonical() == address;
    address.is_loopback()
        || address.is_unspecified()
        || proxy.own.iter().copied().any(is_here)
        || stream.local_addr().is_ok_and(|local| is_here(local.ip()))
}

/// Waits until the grants no longer contain what a connection uses.
async fn lose(mut seen: watch::Receiver<State>, uses: &Uses) {
    while seen.changed().await.is_ok() {
        if !uses.are_granted(&seen.borrow_and_update()) {
            return;
        }
    }
}

async fn converse<N: Network>(
    proxy: &Arc<Proxy<N>>,
    mut stream: TcpStream,
    port: u16,
    uses: Arc<Uses>,
) {
    let (first, bytes) = peek(&mut stream).await;
    let session = |host: Option<String>| Session::new(Arc::clone(proxy), uses.clone(), host, port);
    match first {
        First::Tls { name, alpn } => {
            uses.connect(&name, port);
            if let Err((reason, alert)) = check(proxy, &name, port, &alpn).await {
                proxy.counts.refuse(&name, port, reason, None);
                return tls::refuse(stream, alert).await;
            }
            let stream = Prefixed::new(bytes, stream);
            match proxy.acceptor.accept(&name, stream).await {
                Ok(stream) => serve::serve(session(Some(name)), stream).await,
                Err(_) => {
                    let reason = EgressReason::Handshake;
                    proxy.counts.refuse(&name, port, reason, None);
                }
            }
        }
        First::Http => serve::serve(session(None), Prefixed::new(bytes, stream)).await,
        First::Incomplete => proxy.counts.refuse("", port, EgressReason::Protocol, None),
        First::Refused(reason, _) => {
            proxy.counts.refuse("", port, reason, None);
            match bytes.first() {
                // A handshake of TLS.
                Some(0x16) => tls::refuse(stream, Alert::HandshakeFailure).await,
                // The end of the connection is all that other protocols understand.
                _ => drop(stream.shutdown().await),
            }
        }
    }
}

/// Checks whether a handshake with a client may begin.
async fn check<N: Network>(
    proxy: &Proxy<N>,
    host: &str,
    port: u16,
    alpn: &[Vec<u8>],
) -> Result<(), (EgressReason, Alert)> {
    let Ok(granted) = proxy.grants.current().await else {
        return Err((EgressReason::GrantsStale, Alert::InternalError));
    };
    if !granted.allows(host, port) {
        return Err((EgressReason::HostNotGranted, Alert::AccessDenied));
    }
    if !alpn.is_empty() && !alpn.iter().any(|protocol| protocol == HTTP) {
        return Err((EgressReason::Protocol, Alert::NoApplicationProtocol));
    }
    Ok(())
}
