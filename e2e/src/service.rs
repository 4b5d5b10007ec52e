//! A stand-in for a Service of the API server: one address, with the current members behind it. The embedded
//! cluster has no network for a real one.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A proxy that passes each connection on to one of its members, in turn, where it stays until it ends, as
/// kube-proxy does.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    members: Arc<Mutex<Vec<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Service {
    /// Starts a Service without members: connections are closed at once.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let members = Arc::default();
        Ok(Self {
            address: listener.local_addr()?,
            task: tokio::spawn(serve(listener, Arc::clone(&members))),
            members,
        })
    }

    /// Returns the address of the Service.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a member, which new connections may reach from now on.
    pub fn add(&self, member: SocketAddr) {
        self.members.lock().push(member);
    }

    /// Removes a member: new connections no longer reach it; open connections stay.
    pub fn remove(&self, member: SocketAddr) {
        self.members.lock().retain(|one| *one != member);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, members: Arc<Mutex<Vec<SocketAddr>>>) {
    let mut connections = tokio::task::JoinSet::new();
    let mut turn = 0_usize;
    while let Ok((mut from, _)) = listener.accept().await {
        turn = turn.wrapping_add(1);
        let member = {
            let members = members.lock();
            let place = turn.checked_rem(members.len());
            place.and_then(|place| members.get(place).copied())
        };
        connections.spawn(async move {
            if let Some(member) = member
                && let Ok(mut to) = TcpStream::connect(member).await
            {
                let _ = from.set_nodelay(true);
                let _ = to.set_nodelay(true);
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}
