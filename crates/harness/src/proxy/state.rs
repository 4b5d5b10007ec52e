//! The state of the proxy that its connections share.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Result;
use oz_egress::dns::Families;
use tokio::sync::Semaphore;

use super::authority::Authority;
use super::credentials::Credentials;
use super::grants::{Grants, Poll, State};
use super::network::Network;
use super::report::Counts;
use super::tls::Acceptor;
use super::upstream::Trust;
use crate::broker::Broker;

/// The maximum number of connections: each takes about 55 KiB with the one to its host, and the container has 64 MiB.
pub(crate) const MAX_CONNECTIONS: usize = 768;

/// The state of the proxy that its connections share.
pub(crate) struct Proxy<N> {
    pub(super) network: N,
    pub(super) broker: Broker,
    pub(super) grants: Grants,
    pub(super) credentials: Credentials,
    pub(super) counts: Counts,
    pub(super) acceptor: Acceptor,
    pub(super) trust: Trust,
    pub(super) families: Families,
    /// The addresses of the pod.
    pub(super) own: Vec<IpAddr>,
    /// The places of connections, on all addresses.
    pub(super) places: Arc<Semaphore>,
}

impl<N: Network> Proxy<N> {
    pub(crate) fn new(
        network: N,
        broker: Broker,
        authority: Authority,
        own: Vec<IpAddr>,
    ) -> Result<Self> {
        let v6 = own.iter().any(IpAddr::is_ipv6);
        Ok(Self {
            network,
            broker,
            grants: Grants::new(),
            credentials: Credentials::default(),
            counts: Counts::default(),
            acceptor: Acceptor::new(authority)?,
            trust: Trust::default(),
            families: Families {
                v4: !v6 || own.iter().any(IpAddr::is_ipv4),
                v6,
            },
            own,
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        })
    }

    /// Keeps the grants current. `changed` gets each state.
    pub(crate) async fn follow(&self, mut changed: impl FnMut(&State)) {
        let poll = Poll::new(&self.broker, &self.grants);
        poll.run(|state| {
            self.credentials.retain(state);
            changed(state);
        })
        .await;
    }

    /// Reports the counts of destinations.
    pub(crate) async fn report(&self) {
        self.counts.run(&self.broker).await;
    }
}
