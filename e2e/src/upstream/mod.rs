//! An upstream of the tests, in the network of a real node: an HTTPS server with its own authority at an address of the
//! documentation range, the name server of the node's pods, and destinations that no agent may reach. The upstream
//! records each request, connection and question.

mod authority;
mod claude;
mod names;
mod serving;
mod sink;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use oz_testkit::{Cluster, NAME_SERVER};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use self::authority::Authority;
use self::serving::{Open, serve};
use crate::run;

pub use self::authority::{EXPIRED, MISNAMED, SELF_SIGNED};
pub use self::claude::ANTHROPIC;
pub use self::names::{NameServer, Question, Resolution};
pub use self::sink::{METADATA, SINK, SINK_ADDRESSES, SINK_SECRET};

/// The addresses of the upstream: of the documentation ranges (RFC 5737, RFC 3849).
pub const UPSTREAM_ADDRESSES: [&str; 2] = ["203.0.113.10", "2001:db8:ffff::10"];
/// A host of the upstream for programs that are not agents: `/echo` returns the request, `/ticks` an endless stream of
/// events, `/bytes?N` a body of N bytes; a WebSocket gets each message back.
pub const ECHO: &str = "echo.test";
/// A host of the upstream below the domain `wide.test`.
pub const WIDE: &str = "any.wide.test";
/// A host of the upstream that no test grants.
pub const UNGRANTED: &str = "ungranted.test";
/// The hosts for which the certificate of the upstream is valid, and that resolve to it.
const HOSTS: [&str; 5] = [ANTHROPIC, ECHO, WIDE, UNGRANTED, "changing.test"];
const HTTPS: u16 = 443;
const HTTP: u16 = 80;

/// A request that the upstream received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The time.
    pub at: Timestamp,
    /// The number of the connection, in [`Upstream::connections`].
    pub connection: usize,
    /// The name in the handshake of the connection; empty without TLS.
    pub host: String,
    /// True if the connection used TLS.
    pub tls: bool,
    /// The method.
    pub method: String,
    /// The target of the request line.
    pub target: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The start of the body.
    pub body: Vec<u8>,
}

impl Received {
    /// Returns the values of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Vec<&str> {
        let of_name = self.headers.iter().filter(|(it, _)| it == name);
        of_name.map(|(_, value)| value.as_str()).collect()
    }

    /// Checks whether this text is in the request line, the headers or the body.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        let headers = self.headers.iter();
        self.target.contains(text)
            || headers
                .into_iter()
                .any(|(name, value)| name.contains(text) || value.contains(text))
            || String::from_utf8_lossy(&self.body).contains(text)
    }
}

/// A connection to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The name in the handshake; empty without TLS, and if the handshake failed.
    pub host: String,
    /// The time of the handshake.
    pub opened: Timestamp,
    /// The time at which it closed; `None` while it is open.
    pub closed: Option<Timestamp>,
}

#[derive(Default)]
struct Log {
    received: Vec<Received>,
    connections: Vec<Connection>,
    keys: BTreeSet<String>,
    directory: Option<PathBuf>,
}

#[derive(Default)]
struct State {
    log: Mutex<Log>,
}

/// A running upstream. It has separate threads, so that several tests can share it.
#[allow(missing_debug_implementations, reason = "it contains keys")]
pub struct Upstream {
    /// The certificate of its authority, as PEM.
    pub authority: String,
    /// The name server of the node's pods.
    pub names: NameServer,
    cluster: &'static Cluster,
    state: Arc<State>,
    runtime: Option<Runtime>,
}

/// The sockets of an upstream.
struct Sockets {
    https: Vec<TcpListener>,
    http: Vec<TcpListener>,
    names: UdpSocket,
    sink_streams: Vec<TcpListener>,
    sink_datagrams: Vec<UdpSocket>,
}

impl Upstream {
    /// Starts an upstream in the network of the cluster's real node. A node can have one.
    ///
    /// # Errors
    /// When the node is not one of the testkit's, or has one already.
    pub fn start(cluster: &'static Cluster) -> Result<Self> {
        let served = UPSTREAM_ADDRESSES.map(|address| address.parse::<IpAddr>());
        let served = served.into_iter().collect::<Result<Vec<_>, _>>()?;
        let sinks = sink::addresses()?;
        for address in served.iter().chain(&sinks) {
            let mut command = cluster.node_network_command("ip")?;
            command.args(["address", "replace", &address.to_string(), "dev", "lo"]);
            if address.is_ipv6() {
                command.arg("nodad");
            }
            run(command)?;
        }
        for address in &sinks {
            sink::count(cluster, *address)?;
        }
        let authority = Authority::new()?;
        let hosts = HOSTS.into_iter().chain([SINK]).collect::<Vec<_>>();
        let config = authority.server(&hosts)?;
        let sockets = cluster.within_node_network(|| Sockets::bind(&served, &sinks))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("upstream")
            .enable_all()
            .build()?;
        let mut upstream = Self {
            authority: authority.certificate,
            names: NameServer::default(),
            cluster,
            state: Arc::default(),
            runtime: None,
        };
        for host in HOSTS.into_iter().chain([EXPIRED, MISNAMED, SELF_SIGNED]) {
            upstream.names.set(host, Resolution::Always(served.clone()));
        }
        let of_sink = sinks.iter().filter(|it| it.to_string() != METADATA);
        upstream
            .names
            .set(SINK, Resolution::Always(of_sink.copied().collect()));
        sockets.serve(&runtime, &upstream, &TlsAcceptor::from(Arc::new(config)))?;
        upstream.runtime = Some(runtime);
        Ok(upstream)
    }

    /// Accepts a key of Claude's API.
    pub fn accept_key(&self, key: &str) {
        self.state.log.lock().keys.insert(key.to_owned());
    }

    /// Refuses a key of Claude's API from now on.
    pub fn refuse_key(&self, key: &str) {
        self.state.log.lock().keys.remove(key);
    }

    /// Serves the files of this directory, at every host.
    pub fn serve_directory(&self, directory: &Path) {
        self.state.log.lock().directory = Some(directory.to_owned());
    }

    /// Returns the requests so far.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.state.log.lock().received.clone()
    }

    /// Returns the connections so far.
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        self.state.log.lock().connections.clone()
    }

    /// Returns the number of packets to each destination that no agent may reach.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn packets_to_sinks(&self) -> Result<Vec<(IpAddr, u64)>> {
        let count = |address| Ok((address, sink::counted(self.cluster, address)?));
        sink::addresses()?.into_iter().map(count).collect()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Sockets {
    /// Binds the sockets. To be called in the network of the node.
    fn bind(served: &[IpAddr], sinks: &[IpAddr]) -> Result<Self> {
        let listen = |addresses: &[IpAddr], ports: &[u16]| -> Result<Vec<TcpListener>> {
            let all = addresses
                .iter()
                .flat_map(|it| ports.iter().map(|port| (*it, *port)));
            all.map(|address| {
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("failed to listen at {address:?}"))?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            })
            .collect()
        };
        let datagrams = |address: SocketAddr| -> Result<UdpSocket> {
            let socket = UdpSocket::bind(address)
                .with_context(|| format!("failed to listen at {address}"))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let mut sink_datagrams = Vec::new();
        for address in sinks {
            for port in sink::UDP_PORTS {
                sink_datagrams.push(datagrams((*address, port).into())?);
            }
        }
        Ok(Self {
            https: listen(served, &[HTTPS])?,
            http: listen(served, &[HTTP])?,
            names: datagrams((NAME_SERVER, 53).into())?,
            sink_streams: listen(sinks, &sink::TCP_PORTS)?,
            sink_datagrams,
        })
    }

    fn serve(self, runtime: &Runtime, upstream: &Upstream, tls: &TlsAcceptor) -> Result<()> {
        let _entered = runtime.enter();
        let names = tokio::net::UdpSocket::from_std(self.names)?;
        runtime.spawn(upstream.names.clone().serve(names));
        let (https, http) = (self.https, self.http);
        let listeners = https.into_iter().map(|it| (it, Some(tls.clone())));
        for (listener, tls) in listeners.chain(http.into_iter().map(|it| (it, None))) {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            runtime.spawn(accept(listener, tls, Arc::clone(&upstream.state)));
        }
        for listener in self.sink_streams {
            runtime.spawn(disclose(tokio::net::TcpListener::from_std(listener)?));
        }
        for socket in self.sink_datagrams {
            runtime.spawn(disclose_by_datagram(tokio::net::UdpSocket::from_std(
                socket,
            )?));
        }
        Ok(())
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    tls: Option<TlsAcceptor>,
    state: Arc<State>,
) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let (tls, state) = (tls.clone(), Arc::clone(&state));
        tokio::spawn(connection(stream, tls, state));
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return serve(stream, Open::new(&state, "", false)).await;
    };
    match tls.accept(stream).await {
        Ok(stream) => {
            let host = stream
                .get_ref()
                .1
                .server_name()
                .unwrap_or_default()
                .to_owned();
            serve(stream, Open::new(&state, &host, true)).await;
        }
        // A client that does not trust the certificate closes the connection.
        Err(_) => drop(Open::new(&state, "", true)),
    }
}

/// Sends the secret of the sink to each client.
async fn disclose(listener: tokio::net::TcpListener) -> Result<()> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let length = SINK_SECRET.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{SINK_SECRET}");
            let _ = stream.write_all(head.as_bytes()).await;
            let mut rest = [0; 1024];
            while let Ok(1..) = stream.read(&mut rest).await {}
        });
    }
}

async fn disclose_by_datagram(socket: tokio::net::UdpSocket) -> Result<()> {
    let mut buffer = [0; 2048];
    loop {
        let (_, from) = socket.recv_from(&mut buffer).await?;
        let _ = socket.send_to(SINK_SECRET.as_bytes(), from).await;
    }
}
