//! Addresses that must not receive requests, regardless of the URL: those by which a program reaches its own
//! machine, or the metadata that a cloud serves about a machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the reason why an address, as [`reached`] returns it, must not receive requests; `None` if it may.
#[must_use]
pub(crate) fn refused(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => refused_v4(address),
        IpAddr::V6(address) => refused_v6(address),
    }
}

/// Returns the address that a request reaches: the IPv4 address that an IPv6 address contains and to which a gateway may
/// forward it, else the address itself.
#[must_use]
pub(crate) fn reached(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => embedded(address).map_or(IpAddr::V6(address), IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn refused_v4(address: Ipv4Addr) -> Option<&'static str> {
    // The metadata addresses of Alibaba and Azure, which are in no range that is reserved for this.
    const METADATA: [Ipv4Addr; 2] = [
        Ipv4Addr::new(100, 100, 100, 200),
        Ipv4Addr::new(168, 63, 129, 16),
    ];
    if address.is_loopback() || address.octets()[0] == 0 {
        Some("is a loopback address")
    } else if address.is_link_local() {
        Some("is link-local")
    } else if METADATA.contains(&address) {
        Some("is a metadata service of a cloud")
    } else if address.is_multicast() || address.is_broadcast() {
        Some("is a multicast or broadcast address")
    } else {
        None
    }
}

fn refused_v6(address: Ipv6Addr) -> Option<&'static str> {
    // Amazon's metadata and its credentials of pods, and Google's metadata.
    const METADATA: [Ipv6Addr; 3] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    ];
    if address.is_unicast_link_local() {
        Some("is link-local")
    } else if METADATA.contains(&address) {
        Some("is a metadata service of a cloud")
    } else if address.is_multicast() {
        Some("is a multicast address")
    } else {
        None
    }
}

/// Returns the IPv4 address that an IPv6 address contains: mapped, compatible (which the loopback and the unspecified
/// address are, too), of NAT64 (also by the local prefix of RFC 8215), 6to4 and Teredo.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => from(high, low),
        [0x2001, 0, _, _, _, _, high, low] => from(!high, !low),
        _ => None,
    }
}
