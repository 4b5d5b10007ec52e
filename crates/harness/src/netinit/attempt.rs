//! Attempts to leave the pod, after the table is written: each must end at the proxy's ports, or be refused.
//!
//! The destinations are addresses of documentation (RFC 5737, RFC 3849), which have no host. Nothing is sent in a family
//! that the pod has no route in.
//!
//! See <https://www.rfc-editor.org/rfc/rfc5737#section-3>.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use oz_api::harness::interception::{DNS_PORT, PROXY_PORT};
use rustix::net::sockopt::{Timeout, ip_original_dst, ipv6_original_dst, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

/// The timeout of a connection within the pod.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The port of DNS.
const DNS: u16 = 53;
/// A TCP port that is not DNS.
const OTHER_TCP: u16 = 443;
/// A UDP port that is not DNS.
const OTHER_UDP: u16 = 9;
/// The type of an echo request of ICMP.
const ECHO: u8 = 8;

/// A family of addresses.
struct Family {
    name: &'static str,
    outside: IpAddr,
    loopback: IpAddr,
    any: IpAddr,
}

const FAMILIES: [Family; 2] = [
    Family {
        name: "IPv4",
        outside: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        loopback: IpAddr::V4(Ipv4Addr::LOCALHOST),
        any: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    },
    Family {
        name: "IPv6",
        outside: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        loopback: IpAddr::V6(Ipv6Addr::LOCALHOST),
        any: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    },
];

/// Tries to leave the pod in each way. Returns lines for the log about ways that could not be tried.
///
/// # Errors
/// When a packet was not refused, or a connection did not arrive at the proxy's port.
pub(super) fn leave() -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for family in &FAMILIES {
        let name = family.name;
        let Ok(datagrams) = family.datagrams(OTHER_UDP) else {
            lines.push(format!("{name}: not tried, since the pod has no route"));
            continue;
        };
        refused(name, "a datagram", datagrams.send(b"oz"))?;
        if let Some(sent) = family.echo() {
            refused(name, "an ICMP echo request", sent)?;
        }
        for (port, proxy) in [(OTHER_TCP, PROXY_PORT), (DNS, DNS_PORT)] {
            if !family.connection(port, proxy)? {
                lines.push(format!(
                    "{name}: the destination of connections to port {port} was not compared, since port {proxy} is \
                     in use by a container that runs already"
                ));
            }
        }
        family.question()?;
    }
    Ok(lines)
}

fn refused<T>(family: &str, what: &str, sent: io::Result<T>) -> Result<()> {
    // Any error means that nothing was sent; EPERM is the one of the table.
    match sent {
        Err(_) => Ok(()),
        Ok(_) => bail!(
            "failed to confine the pod: {family}: {what} left it in spite of table inet oz; another program, such as the \
             init container of a service mesh, writes rules of netfilter that come first: exclude the run's pod from it"
        ),
    }
}

/// Repeats a call that a signal interrupts; the kernel does not repeat one with a timeout.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Family {
    /// Returns a socket that sends to the outside. No packet is sent. An error means that the pod has no route.
    fn datagrams(&self, port: u16) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((self.any, 0))?;
        socket.connect((self.outside, port))?;
        Ok(socket)
    }

    /// Sends an echo request, if the kernel allows sockets for them (icmp(7), `ping_group_range`). Not in IPv6: the
    /// kernel reports no refusal of such a packet to the call that sends it.
    fn echo(&self) -> Option<io::Result<usize>> {
        if self.outside.is_ipv6() {
            return None;
        }
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP)).ok()?;
        let outside = SocketAddr::new(self.outside, 0);
        let packet = [ECHO, 0, 0, 0, 0, 0, 0, 1];
        Some(sendto(&socket, &packet, SendFlags::empty(), &outside).map_err(io::Error::from))
    }

    /// Connects to the outside, and checks that the connection arrives at the port of the loopback address, and that its
    /// original destination can be read there. Returns false if the port is in use.
    fn connection(&self, port: u16, proxy: u16) -> Result<bool> {
        let outside = SocketAddr::new(self.outside, port);
        let failed = || self.not_redirected(outside, proxy);
        let listener = match TcpListener::bind((self.loopback, proxy)) {
            Ok(listener) => Some(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
            Err(error) => return Err(error).with_context(failed),
        };
        let client = TcpStream::connect_timeout(&outside, TIMEOUT).with_context(failed)?;
        let Some(listener) = listener else {
            return Ok(false);
        };
        set_socket_timeout(&listener, Timeout::Recv, Some(TIMEOUT)).with_context(failed)?;
        let (server, peer) = listener.accept().with_context(failed)?;
        let own = client.local_addr().with_context(failed)?;
        let found = self.original(&server).with_context(failed)?;
        if peer.port() != own.port() || found != outside {
            bail!("{}: it arrived as a connection to {found}", failed());
        }
        Ok(true)
    }

    fn original(&self, server: &impl AsFd) -> io::Result<SocketAddr> {
        Ok(match self.outside {
            IpAddr::V4(_) => SocketAddr::V4(ip_original_dst(server)?),
            IpAddr::V6(_) => SocketAddr::V6(ipv6_original_dst(server)?),
        })
    }

    /// Sends a datagram to the port of DNS, and checks that it arrives at the port of the loopback address, and that
    /// the answer from there arrives.
    fn question(&self) -> Result<()> {
        let outside = SocketAddr::new(self.outside, DNS);
        let failed = || self.not_redirected(outside, DNS_PORT);
        let server = match UdpSocket::bind((self.loopback, DNS_PORT)) {
            Ok(server) => server,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(()),
            Err(error) => return Err(error).with_context(failed),
        };
        let client = self.datagrams(DNS).with_context(failed)?;
        for socket in [&server, &client] {
            socket
                .set_read_timeout(Some(TIMEOUT))
                .with_context(failed)?;
        }
        client.send(b"question").with_context(failed)?;
        let mut buffer = [0; 16];
        let (length, peer) =
            uninterrupted(|| server.recv_from(&mut buffer)).with_context(failed)?;
        let question = buffer.get(..length).unwrap_or_default().to_vec();
        server.send_to(b"answer", peer).with_context(failed)?;
        let length = uninterrupted(|| client.recv(&mut buffer)).with_context(failed)?;
        let answer = buffer.get(..length).unwrap_or_default();
        if question != b"question" || answer != b"answer" {
            bail!("{}: another packet arrived", failed());
        }
        Ok(())
    }

    fn not_redirected(&self, outside: SocketAddr, proxy: u16) -> String {
        format!(
            "failed to redirect connections of the pod to its proxy: {}: to {outside}, not received at {}; another \
             program, such as a service mesh, may write rules of netfilter that come first: exclude the run's pod from \
             it",
            self.name,
            SocketAddr::new(self.loopback, proxy)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_that_is_sent_fails_the_pod() {
        let error = refused("IPv4", "a datagram", Ok(2)).unwrap_err();
        assert!(
            format!("{error:#}").starts_with("failed to confine the pod: IPv4: a datagram left it"),
            "{error:#}"
        );
        for errno in [rustix::io::Errno::PERM, rustix::io::Errno::NETUNREACH] {
            refused::<usize>("IPv4", "a datagram", Err(errno.into())).unwrap();
        }
    }

    #[test]
    fn interrupted_call_is_repeated() {
        let mut results = [Err(io::ErrorKind::Interrupted.into()), Ok(7)].into_iter();
        assert_eq!(uninterrupted(|| results.next().unwrap()).unwrap(), 7);
    }
}
