//! Connections to servers, directly or through a proxy. A proxy gets a request for a tunnel (CONNECT), for http too:
//! it learns the name of the server, and no content of a request to a server behind https.
//! See <https://www.rfc-editor.org/rfc/rfc9110#name-connect>.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tower::{Service, ServiceExt as _};

use crate::error::ProxyError;
use crate::proxies::Proxy;
use crate::{Allowed, CONNECT_TIMEOUT, OutboundError, Resolver, proxy};

/// The maximum number of bytes of a proxy's response to CONNECT.
const MAX_HEAD: usize = 8 << 10;
/// The maximum time of the lookup of a name that a proxy resolves, too.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

type BoxError = Box<dyn Error + Send + Sync>;

/// The connector of the [module](self).
#[derive(Clone)]
pub struct Connector {
    allowed: Allowed,
    direct: HttpConnector<Resolver>,
    /// The connector to proxies, which have their own list of permitted hosts.
    to_proxy: HttpConnector<Resolver>,
}

impl Connector {
    pub(crate) fn new(allowed: Allowed) -> Self {
        Self {
            direct: sockets(allowed.clone()),
            to_proxy: sockets(to_proxies(&allowed)),
            allowed,
        }
    }

    async fn connect(self, server: Uri) -> Result<TokioIo<TcpStream>, BoxError> {
        let host = server.host().ok_or(OutboundError::NoHost)?;
        self.allowed.check_host(host)?;
        let Some(proxy) = self.allowed.proxies.find(&server)? else {
            return Ok(self.direct.oneshot(server).await?);
        };
        let port = proxy::port(&server);
        check_name(&self.allowed, host, port).await?;
        let timeout = self.allowed.proxies.timeout();
        let there = format!("{host}:{port}");
        let opened = self.tunnel(&proxy, &there);
        let opened = tokio::time::timeout(timeout, opened).await;
        let opened = opened.map_err(|_| ProxyError::Late {
            proxy: proxy.address.clone(),
            timeout,
        });
        Ok(TokioIo::new(opened??))
    }

    /// Opens a tunnel to a server, HOST:PORT.
    async fn tunnel(&self, proxy: &Proxy, server: &str) -> Result<TcpStream, ProxyError> {
        if let Ok(address) = proxy.host.parse() {
            let checked = to_proxies(&self.allowed).check(&proxy.host, address);
            checked.map_err(|error| ProxyError::Refused {
                proxy: proxy.address.clone(),
                error,
            })?;
        }
        let connected = self.to_proxy.clone().oneshot(proxy.url.clone()).await;
        let stream = connected.map_err(|error| ProxyError::Unreachable {
            proxy: proxy.address.clone(),
            why: root(&error),
        })?;
        tunnel(stream.into_inner(), proxy, server).await
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        Box::pin(self.clone().connect(server))
    }
}

/// Returns a connector that connects to allowed addresses.
fn sockets(allowed: Allowed) -> HttpConnector<Resolver> {
    let mut connector = HttpConnector::new_with_resolver(Resolver::new(allowed));
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector
}

/// Returns the allowed addresses of proxies.
fn to_proxies(allowed: &Allowed) -> Allowed {
    Allowed {
        hosts: allowed.proxies.allowed_hosts(),
        api_servers: allowed.api_servers.clone(),
        ..Allowed::default()
    }
}

/// Checks whether a proxy may be asked to connect to a name. A name that does not resolve here is one that the proxy
/// alone resolves: it must refuse such addresses itself.
async fn check_name(allowed: &Allowed, host: &str, port: u16) -> Result<(), OutboundError> {
    let name = proxy::plain(host);
    if allowed.hosts.contains(&name) {
        return Ok(());
    }
    if name == "localhost" || name.ends_with(".localhost") {
        return Err(OutboundError::Localhost { host: name });
    }
    let found = tokio::time::timeout(LOOKUP_TIMEOUT, lookup_host((name.as_str(), port))).await;
    let Ok(Ok(addresses)) = found else {
        return Ok(());
    };
    // The proxy may choose any address of the name.
    for address in addresses {
        allowed.check(host, address.ip())?;
    }
    Ok(())
}

/// Opens a tunnel to a server, HOST:PORT, on a connection to a proxy.
async fn tunnel(
    mut stream: TcpStream,
    proxy: &Proxy,
    server: &str,
) -> Result<TcpStream, ProxyError> {
    let broken = |error: io::Error| ProxyError::Unreachable {
        proxy: proxy.address.clone(),
        why: error.to_string(),
    };
    let mut request = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n").into_bytes();
    if let Some(credentials) = &proxy.credentials {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(credentials.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await.map_err(broken)?;
    let mut head = Vec::new();
    // Not a byte more than the head: the rest is the server's.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD {
            break;
        }
        head.push(stream.read_u8().await.map_err(broken)?);
    }
    match status(&head) {
        Some(code) if (200..300).contains(&code) => Ok(stream),
        Some(407) => Err(ProxyError::Unauthorized {
            proxy: proxy.address.clone(),
            given: match proxy.credentials {
                Some(_) => "does not accept the user and password",
                None => "requires a user and password",
            },
        }),
        code => Err(ProxyError::NoTunnel {
            proxy: proxy.address.clone(),
            code: code.map_or_else(|| "no HTTP".to_owned(), |code| code.to_string()),
        }),
    }
}

/// Returns the code of a response.
fn status(head: &[u8]) -> Option<u16> {
    let head = str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
    let line = head.lines().next()?.strip_prefix("HTTP/1.")?;
    let code = line.split(' ').nth(1)?;
    code.parse().ok().filter(|_| code.len() == 3)
}

/// Returns the innermost cause of an error.
fn root(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests;
