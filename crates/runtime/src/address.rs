//! Addresses to listen on, in the form of the original's flags: `:8081` is port 8081 on every
//! interface, `0` is no address.

use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The address to listen on, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub Option<SocketAddr>);

/// The error for a text that is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is neither an address with a port, nor a port.
    #[error("{text} is not an address to listen on; write IP:PORT, :PORT, or 0 for none")]
    Malformed {
        /// The text.
        text: String,
    },
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text == "0" {
            return Ok(Self(None));
        }
        let address = match text.strip_prefix(':') {
            Some(port) => port
                .parse()
                .map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
                .ok(),
            None => text.parse().ok(),
        };
        let malformed = || AddressError::Malformed {
            text: text.to_owned(),
        };
        address
            .map(|address| Self(Some(address)))
            .ok_or_else(malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_port_of_all_interfaces_an_address_or_nothing() {
        for (text, expected) in [
            (":8081", Ok(Some("[::]:8081"))),
            ("127.0.0.1:0", Ok(Some("127.0.0.1:0"))),
            ("[::1]:9443", Ok(Some("[::1]:9443"))),
            ("0", Ok(None)),
            ("", Err(())),
            ("8081", Err(())),
            (":x", Err(())),
            (":65536", Err(())),
        ] {
            let parsed = text
                .parse::<Address>()
                .map(|address| address.0)
                .map_err(|_| ());
            assert_eq!(
                parsed,
                expected.map(|text| text.map(|text| text.parse().unwrap())),
                "{text}"
            );
        }
    }
}
