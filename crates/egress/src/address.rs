//! The addresses that a run reaches under no name: private networks, the addresses that names have in the pod, and the
//! ranges of pods, services and nodes. The addresses that no request of oz may reach, such as loopback and link-local
//! ones, are `oz_outbound`'s; the proxy asks both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use oz_api::harness::interception::{NAMES_V4, NAMES_V6};

/// The address ranges that the configuration denies, in addition to private ones.
#[derive(Clone, Debug, Default)]
pub struct Denied {
    ranges: Vec<IpNet>,
}

/// A text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range of addresses, such as 10.0.0.0/8, or an address")]
pub struct RangeError(String);

impl Denied {
    /// Parses ranges and addresses, separated by commas.
    ///
    /// # Errors
    /// The first text that is neither.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let ranges = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        let range = |one: &str| {
            let range = one.parse::<IpNet>().ok();
            let range = range.or_else(|| one.parse::<IpAddr>().ok().map(IpNet::from));
            range.ok_or_else(|| RangeError(one.to_owned()))
        };
        let ranges = ranges.map(range).collect::<Result<_, _>>()?;
        Ok(Self { ranges })
    }

    /// Checks whether a run may reach an address.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn check(&self, address: IpAddr) -> Result<(), &'static str> {
        let forms = [Some(address), embedded(address).map(IpAddr::V4)];
        for address in forms.into_iter().flatten() {
            if is_private(address) {
                return Err("is in a private network");
            }
            if is_of_names(address) {
                return Err("is an address that names resolve to in the pod");
            }
            if is_reserved(address) {
                return Err("is in a reserved network");
            }
            if self.ranges.iter().any(|range| range.contains(&address)) {
                return Err("is in a range that the configuration denies");
            }
        }
        Ok(())
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            // RFC 6598: the addresses between carriers and customers, which clusters use for pods and nodes.
            let is_shared = address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64;
            address.is_private() || is_shared
        }
        IpAddr::V6(address) => {
            // RFC 3879: site-local addresses, before RFC 4193.
            let is_site_local = address.segments()[0] & 0xffc0 == 0xfec0;
            address.is_unique_local() || is_site_local
        }
    }
}

/// Checks whether an address is one that names have in the pod.
#[must_use]
pub fn is_of_names(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            Ipv4Net::new(NAMES_V4.0, NAMES_V4.1).is_ok_and(|names| names.contains(&address))
        }
        IpAddr::V6(address) => {
            Ipv6Net::new(NAMES_V6.0, NAMES_V6.1).is_ok_and(|names| names.contains(&address))
        }
    }
}

/// Checks for networks that the internet does not route, so that only a local network could have them: RFC 6890.
/// The ranges of documentation are not among them: they reach nothing.
/// See <https://www.rfc-editor.org/rfc/rfc6890#section-2.2>.
fn is_reserved(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let octets = address.octets();
            octets[0] >= 240 || octets[..3] == [192, 0, 0]
        }
        IpAddr::V6(address) => matches!(address.segments(), [0x100, 0, 0, 0, ..]),
    }
}

/// Returns the IPv4 address that an IPv6 address contains and to which a gateway may forward it: mapped, compatible,
/// NAT64 (also the local prefix of RFC 8215), 6to4 and Teredo.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let from = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => from(high, low),
        [0x2001, 0, _, _, _, _, high, low] => from(!high, !low),
        _ => None,
    }
}

/// Returns an address within a network that the digits of a digest choose.
pub(crate) fn in_names_v4(digest: u32) -> Ipv4Addr {
    let (network, prefix) = NAMES_V4;
    let hosts = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
    Ipv4Addr::from(u32::from(network) | (digest & hosts))
}

/// Returns an IPv6 address within a network that the digits of a digest choose.
pub(crate) fn in_names_v6(digest: u128) -> Ipv6Addr {
    let (network, prefix) = NAMES_V6;
    let hosts = u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
    Ipv6Addr::from(u128::from(network) | (digest & hosts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_denied_addresses_are_refused_in_every_form() {
        let denied = Denied::parse("203.0.113.0/24, 192.0.2.7,,2001:db8::/32").unwrap();
        for (address, is_refused) in [
            ("10.0.0.1", true),
            ("172.16.0.1", true),
            ("172.32.0.1", false),
            ("192.168.1.1", true),
            ("100.63.255.255", false),
            ("100.64.0.0", true),
            ("100.127.255.255", true),
            ("100.128.0.0", false),
            ("198.18.0.1", true),
            ("198.19.255.255", true),
            ("198.20.0.0", false),
            ("192.0.0.192", true),
            ("240.0.0.1", true),
            ("203.0.113.9", true),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("1.1.1.1", false),
            ("fd00::1", true),
            ("fc00::1", true),
            ("fec0::1", true),
            ("fd6f:7a00::1", true),
            ("2001:db8::1", true),
            ("2606:4700::1111", false),
            ("100::1", true),
            ("::ffff:10.0.0.1", true),
            ("::ffff:1.1.1.1", false),
            ("::10.0.0.1", true),
            ("64:ff9b::10.0.0.1", true),
            ("64:ff9b::1.1.1.1", false),
            ("64:ff9b:1::192.168.0.1", true),
            ("2002:a00:1::1", true),
            // Teredo holds the address inverted.
            ("2001:0:1:2:3:4:f5ff:fffe", true),
            ("::ffff:203.0.113.9", true),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(denied.check(address).is_err(), is_refused, "{address}");
        }
        assert!(
            Denied::parse("")
                .unwrap()
                .check([1, 1, 1, 1].into())
                .is_ok()
        );
        for text in ["10.0.0.0/33", "ten", "10.0.0.0/8;10.0.0.0/9", "::/129"] {
            assert_eq!(
                Denied::parse(text).unwrap_err(),
                RangeError(text.to_owned())
            );
        }
    }
}
