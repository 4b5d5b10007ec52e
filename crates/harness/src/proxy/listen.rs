//! The sockets of the proxy on one loopback address: connections, and DNS over UDP and TCP.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use oz_api::harness::interception::{DNS_PORT, PROXY_PORT};
use oz_api::harness::wire::EgressReason;
use rustix::io::Errno;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::network::Network;
use super::state::Proxy;
use super::{connection, dns};
use crate::log;

/// The pause after a failure to accept a connection, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// The sockets on one address. Not on the wildcard: the answers of a UDP socket there are lost.
pub(crate) struct Listeners {
    proxy: TcpListener,
    dns_tcp: TcpListener,
    dns_udp: UdpSocket,
}

impl Listeners {
    /// Binds the sockets; none if the pod does not have IPv6.
    ///
    /// # Errors
    /// When an address is in use.
    pub(crate) async fn bind(address: IpAddr) -> Result<Option<Self>> {
        let proxy = SocketAddr::new(address, PROXY_PORT);
        let dns = SocketAddr::new(address, DNS_PORT);
        let proxy_listener = match TcpListener::bind(proxy).await {
            Err(error) if address.is_ipv6() && is_without_ipv6(&error) => {
                log::say("the pod has no IPv6");
                return Ok(None);
            }
            bound => bound.with_context(|| format!("failed to listen on {proxy}"))?,
        };
        let failed = || format!("failed to listen on {dns}");
        Ok(Some(Self {
            proxy: proxy_listener,
            dns_tcp: TcpListener::bind(dns).await.with_context(failed)?,
            dns_udp: UdpSocket::bind(dns).await.with_context(failed)?,
        }))
    }

    /// Starts the tasks that serve.
    pub(crate) fn spawn<N: Network>(self, proxy: &Arc<Proxy<N>>, tasks: &mut JoinSet<()>) {
        tasks.spawn(accept(Arc::clone(proxy), self.proxy));
        tasks.spawn(dns::serve_tcp(Arc::clone(proxy), self.dns_tcp));
        tasks.spawn(dns::serve_udp(Arc::clone(proxy), self.dns_udp));
    }
}

fn is_without_ipv6(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
}

/// Accepts connections, until the caller drops this.
pub(crate) async fn accept<N: Network>(proxy: Arc<Proxy<N>>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&proxy.places).try_acquire_owned() else {
            proxy.counts.refuse("", 0, EgressReason::TooMany, None);
            continue;
        };
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            connection::handle(&proxy, stream).await;
            drop(place);
        });
    }
}
