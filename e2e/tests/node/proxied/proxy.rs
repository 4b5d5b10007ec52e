//! An HTTP proxy on loopback with tunnels that lead out of the namespace of the test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The proxy.
pub(super) struct TestProxy {
    address: SocketAddr,
    way: Arc<Way>,
    serving: JoinHandle<()>,
}

/// The way of tunnels to servers.
struct Way {
    /// The runtime in the other network.
    outside: Handle,
    /// The servers outside by their names and ports; only the proxy resolves the names.
    servers: BTreeMap<String, SocketAddr>,
    /// The servers that clients asked for.
    asked: Mutex<BTreeSet<String>>,
}

impl TestProxy {
    /// Starts a proxy for these servers, HOST:PORT.
    pub(super) async fn start(
        outside: Handle,
        servers: BTreeMap<String, SocketAddr>,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let way = Arc::new(Way {
            outside,
            servers,
            asked: Mutex::default(),
        });
        let passing = Arc::clone(&way);
        Ok(Self {
            address: listener.local_addr()?,
            way,
            serving: tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let way = Arc::clone(&passing);
                    tokio::spawn(async move { way.pass(stream).await });
                }
            }),
        })
    }

    /// Returns its URL.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the servers to which clients requested tunnels.
    pub(super) fn asked(&self) -> BTreeSet<String> {
        self.way.asked.lock().clone()
    }
}

impl Drop for TestProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Way {
    /// Passes a connection on through a tunnel.
    async fn pass(&self, mut stream: TcpStream) -> Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let server = head
            .strip_prefix("CONNECT ")
            .and_then(|rest| rest.split(' ').next());
        // A request without a tunnel is recorded, too, and the test fails.
        let server = server.unwrap_or(&head).to_owned();
        self.asked.lock().insert(server.clone());
        let Some(address) = self.servers.get(&server).copied() else {
            stream.write_all(b"HTTP/1.1 502 So\r\n\r\n").await?;
            return Ok(());
        };
        let mut there = self.outside.spawn(TcpStream::connect(address)).await??;
        stream.write_all(b"HTTP/1.1 200 So\r\n\r\n").await?;
        copy_bidirectional(&mut stream, &mut there).await?;
        Ok(())
    }
}
