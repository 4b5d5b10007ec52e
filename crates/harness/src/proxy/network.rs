//! The interface of the proxy to the system: the destination of a redirected connection, the addresses of a name, and
//! whether an address may be reached. Tests have another network, on loopback.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};

use oz_egress::address::Denied;
use oz_outbound::Allowed;
use tokio::net::TcpStream;

/// The network of a proxy.
pub(crate) trait Network: Send + Sync + 'static {
    /// Returns the address to which the client of a redirected connection connected.
    ///
    /// # Errors
    /// When the connection was not redirected.
    fn destination(&self, stream: &TcpStream) -> io::Result<SocketAddr>;

    /// Returns the addresses of a host.
    fn lookup(
        &self,
        host: &str,
        port: u16,
    ) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;

    /// Checks whether a connection for this host may have this address.
    ///
    /// # Errors
    /// The reason why it may not.
    fn check(&self, host: &str, address: IpAddr) -> Result<(), String>;
}

/// The network of a run's pod.
pub(crate) struct PodNetwork {
    denied: Denied,
    allowed: Allowed,
}

impl PodNetwork {
    /// Creates the network with the ranges that no connection may reach.
    pub(crate) fn new(denied: Denied) -> Self {
        Self {
            denied,
            allowed: Allowed::default(),
        }
    }
}

impl Network for PodNetwork {
    fn destination(&self, stream: &TcpStream) -> io::Result<SocketAddr> {
        Ok(match stream.local_addr()? {
            SocketAddr::V4(_) => rustix::net::sockopt::ip_original_dst(stream)?.into(),
            SocketAddr::V6(_) => rustix::net::sockopt::ipv6_original_dst(stream)?.into(),
        })
    }

    async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        // The dot: otherwise the search list of the pod completes the name.
        let found = tokio::net::lookup_host((format!("{host}."), port)).await?;
        Ok(found.collect())
    }

    fn check(&self, host: &str, address: IpAddr) -> Result<(), String> {
        let address = address.to_canonical();
        self.denied.check(address).map_err(str::to_owned)?;
        self.allowed
            .check(host, address)
            .map_err(|error| error.to_string())
    }
}
