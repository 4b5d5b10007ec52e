//! Free ports on loopback.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context as _, Result};

/// Below the range that Linux takes the local ports of outgoing connections from (32768 and up):
/// such a connection cannot take one of ours between here and the moment its owner listens.
const FIRST: u16 = 20_000;
const LAST: u16 = 29_999;

/// `N` different ports that nobody listens on now. Another process may choose the same ones before
/// they are listened on: start again with others then.
///
/// # Errors
///
/// Fails when too many ports are taken.
pub(crate) fn free<const N: usize>() -> Result<[u16; N]> {
    let span = u32::from(LAST - FIRST) + 1;
    // Every call starts somewhere else, so that parallel starts rarely meet.
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), FIRST);
    let start = u32::try_from(seed % u64::from(span)).unwrap_or_default();
    let mut listeners = Vec::with_capacity(N);
    for offset in 0..span {
        if listeners.len() == N {
            break;
        }
        let port = FIRST + u16::try_from((start + offset) % span).unwrap_or_default();
        listeners.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(|held| (port, held)));
    }
    let ports: Vec<u16> = listeners.iter().map(|(port, _)| *port).collect();
    ports.try_into().ok().context("failed to find free ports")
}

/// An address on loopback that nobody listens on now, and that no outgoing connection takes before its
/// owner listens.
///
/// # Errors
///
/// Fails when too many ports are taken.
pub fn free_address() -> Result<SocketAddr> {
    let [port] = free()?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}
