//! Requests through proxies that work, that deny, and that hang, and the servers that no proxy is asked for.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;

use super::*;
use crate::proxies::{Proxies, ProxySettings};
use crate::{Trust, client};

/// The response of a proxy to CONNECT.
#[derive(Clone, Copy)]
enum Behaviour {
    /// The proxy opens a tunnel to this server, whichever it is asked for.
    Tunnel(SocketAddr),
    /// The proxy responds with this text.
    Text(&'static str),
    /// The proxy does not respond.
    Hang,
}

/// A proxy, with the heads of the requests that it got.
struct TestProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TestProxy {
    async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, behaviour, Arc::clone(&seen)));
            }
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }

    /// Returns the settings of a client that uses this proxy.
    fn settings(&self) -> ProxySettings {
        ProxySettings {
            proxy: format!("http://{}", self.address),
            allowed_hosts: BTreeSet::from(["127.0.0.1".to_owned()]),
            ..ProxySettings::default()
        }
    }
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else {
            break;
        };
        head.push(byte);
        // The first byte of a handshake of TLS, to which no server here responds.
        if head == [0x16] {
            break;
        }
    }
    String::from_utf8(head).unwrap()
}

async fn serve(mut stream: TcpStream, behaviour: Behaviour, seen: Arc<Mutex<Vec<String>>>) {
    let head = head(&mut stream).await;
    seen.lock().push(head);
    match behaviour {
        Behaviour::Tunnel(server) => {
            let mut server = TcpStream::connect(server).await.unwrap();
            let opened = b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n";
            stream.write_all(opened).await.unwrap();
            let _ = copy_bidirectional(&mut stream, &mut server).await;
        }
        Behaviour::Text(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
        }
        Behaviour::Hang => std::future::pending().await,
    }
}

/// Starts a server that responds `here` to each request.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if !head(&mut stream).await.starts_with("GET ") {
                continue;
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere";
            let _ = stream.write_all(answer).await;
        }
    });
    address
}

fn allowed(settings: ProxySettings) -> Allowed {
    Allowed {
        proxies: Proxies::new(settings, |_| None),
        ..Allowed::default()
    }
}

/// Returns the response to a request, or the innermost cause of its failure.
async fn sent(allowed: Allowed, url: &str) -> Result<Bytes, String> {
    let client = client(allowed, &Trust::Public).unwrap();
    let request = Request::get(url).body(Full::<Bytes>::default()).unwrap();
    match client.request(request).await {
        Ok(answer) => Ok(answer.into_body().collect().await.unwrap().to_bytes()),
        Err(error) => Err(root(&error)),
    }
}

#[tokio::test]
async fn request_reaches_server_through_tunnel_of_proxy() {
    let secret = tempfile::tempdir().unwrap();
    std::fs::write(secret.path().join("username"), "oz").unwrap();
    std::fs::write(secret.path().join("password"), "hidden").unwrap();
    let proxy = TestProxy::start(Behaviour::Tunnel(server().await)).await;
    for (settings, url, connect, credentials) in [
        (
            proxy.settings(),
            "http://chat.invalid/hook",
            "CONNECT chat.invalid:80 HTTP/1.1\r\n",
            None,
        ),
        (
            proxy.settings(),
            "http://8.8.8.8:8080/",
            "CONNECT 8.8.8.8:8080 HTTP/1.1\r\n",
            None,
        ),
        (
            ProxySettings {
                secret: Some(secret.path().to_owned()),
                ..proxy.settings()
            },
            "http://chat.invalid:81/",
            "CONNECT chat.invalid:81 HTTP/1.1\r\n",
            Some("Proxy-Authorization: Basic b3o6aGlkZGVu\r\n"),
        ),
    ] {
        let answer = sent(allowed(settings), url).await;
        assert_eq!(answer.as_deref(), Ok(&b"here"[..]), "{url}");
        let head = proxy.heads().pop().unwrap();
        assert!(head.starts_with(connect), "{head}");
        let has = credentials.is_some_and(|line| head.contains(line));
        assert_eq!(has, head.contains("Proxy-Authorization"), "{head}");
        assert_eq!(has, credentials.is_some(), "{head}");
    }
    // The server does not support TLS; the proxy gets its name only.
    let refused = sent(allowed(proxy.settings()), "https://chat.invalid/a?b=c").await;
    assert!(refused.is_err());
    let head = proxy.heads().pop().unwrap();
    assert!(head.starts_with("CONNECT chat.invalid:443 "), "{head}");
    assert!(!head.contains("b=c"), "{head}");
}

#[tokio::test]
async fn proxy_that_denies_is_reported_with_its_code() {
    for (text, why) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "requires a user and password (407); outbound.secret",
        ),
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\n\r\n<html>",
            "responded 403 to CONNECT",
        ),
        (
            "HTTP/1.1 302 Found\r\nLocation: http://login\r\n\r\n",
            "responded 302 to CONNECT",
        ),
        ("HTTP/1.1 2000 OK\r\n\r\n", "responded no HTTP to CONNECT"),
        ("SSH-2.0-x\r\n\r\n", "responded no HTTP to CONNECT"),
        ("HTTP/1.1 200 OK\r\n", "failed to connect to the proxy"),
        ("", "failed to connect to the proxy"),
    ] {
        let proxy = TestProxy::start(Behaviour::Text(text)).await;
        let refused = sent(allowed(proxy.settings()), "http://chat.invalid/").await;
        let refused = refused.unwrap_err();
        assert!(refused.contains(why), "{text:?}: {refused}");
        let address = proxy.address.to_string();
        assert!(refused.contains(&address), "{text:?}: {refused}");
    }
}

#[tokio::test]
async fn password_that_proxy_refuses_is_in_no_message() {
    let answer = "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
    let proxy = TestProxy::start(Behaviour::Text(answer)).await;
    let settings = ProxySettings {
        proxy: format!("http://oz:hidden@{}", proxy.address),
        ..proxy.settings()
    };
    let refused = sent(allowed(settings), "http://chat.invalid/").await;
    let refused = refused.unwrap_err();
    assert!(
        refused.contains("does not accept the user and password (407)"),
        "{refused}"
    );
    assert!(!refused.contains("hidden"), "{refused}");
    let head = proxy.heads().pop().unwrap();
    assert!(head.contains("Basic b3o6aGlkZGVu\r\n"), "{head}");
}

#[tokio::test]
async fn endless_head_of_proxy_is_not_read() {
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(1 << 20));
    let endless: &'static str = Box::leak(endless.into_boxed_str());
    let proxy = TestProxy::start(Behaviour::Text(endless)).await;
    let refused = sent(allowed(proxy.settings()), "http://chat.invalid/").await;
    let refused = refused.unwrap_err();
    assert!(refused.contains("responded no HTTP"), "{refused}");
}

#[tokio::test]
async fn proxy_that_hangs_is_reported_after_timeout() {
    let proxy = TestProxy::start(Behaviour::Hang).await;
    let proxies = Proxies::new(proxy.settings(), |_| None);
    let hurried = Allowed {
        proxies: proxies.with_timeout(Duration::from_millis(50)),
        ..Allowed::default()
    };
    let refused = sent(hurried, "http://chat.invalid/").await.unwrap_err();
    assert!(
        refused.contains("opened no tunnel within 50ms"),
        "{refused}"
    );
}

#[tokio::test]
async fn exempt_server_is_reached_without_proxy() {
    let proxy = TestProxy::start(Behaviour::Tunnel(server().await)).await;
    let settings = ProxySettings {
        no_proxy: vec![".invalid".to_owned()],
        ..proxy.settings()
    };
    // No such host exists.
    assert!(
        sent(allowed(settings), "http://chat.invalid/")
            .await
            .is_err()
    );
    assert_eq!(proxy.heads(), Vec::<String>::new());
    // This machine is always exempt, and the permitted hosts of the proxy are not those of the client.
    let here = server().await;
    let url = format!("http://{here}/");
    let refused = sent(allowed(proxy.settings()), &url).await.unwrap_err();
    assert!(refused.contains("is a loopback address"), "{refused}");
    let permitted = Allowed {
        hosts: Arc::new(BTreeSet::from(["127.0.0.1".to_owned()])),
        ..allowed(proxy.settings())
    };
    assert_eq!(sent(permitted, &url).await.as_deref(), Ok(&b"here"[..]));
    assert_eq!(proxy.heads(), Vec::<String>::new());
}

#[tokio::test]
async fn proxy_is_not_asked_for_own_machine_and_metadata_of_clouds() {
    let proxy = TestProxy::start(Behaviour::Tunnel(server().await)).await;
    for (url, why) in [
        ("http://127.0.0.1/", "is a loopback address"),
        ("http://127.0.0.2:8080/", "is a loopback address"),
        ("http://[::1]/", "is a loopback address"),
        ("http://[::ffff:127.0.0.1]/", "is a loopback address"),
        ("http://0.0.0.0/", "is a loopback address"),
        ("http://169.254.169.254/latest/meta-data", "is link-local"),
        ("https://169.254.169.254/", "is link-local"),
        ("http://[fe80::1]/", "is link-local"),
        ("http://100.100.100.200/", "is a metadata service"),
        ("http://10.96.0.1/", "is the API server"),
        // Texts that resolve to nothing here, and that a proxy could take for its own machine.
        ("http://[::1%25lo]/", "is no address"),
        ("http://[fe80::1%25eth0]:8080/", "is no address"),
        ("http://[::ffff:169.254.169.254%250]/", "is no address"),
        ("http://:80/", "names no host"),
        ("http://./", "names no host"),
        ("http://x.localhost/", "x.localhost is this machine"),
        // Names that resolve here to such addresses.
        ("http://localhost/", "is a loopback address"),
        ("http://LOCALHOST/", "is a loopback address"),
        ("http://127.1/", "is a loopback address"),
        ("http://2852039166/", "is link-local"),
        ("https://0xa9fea9fe/", "is link-local"),
    ] {
        let guarded = Allowed {
            api_servers: Arc::new(["10.96.0.1".parse().unwrap()]),
            ..allowed(proxy.settings())
        };
        let refused = sent(guarded, url).await.unwrap_err();
        assert!(refused.contains(why), "{url}: {refused}");
    }
    assert_eq!(proxy.heads(), Vec::<String>::new());
}

#[tokio::test]
async fn proxy_on_own_machine_must_be_permitted() {
    let proxy = TestProxy::start(Behaviour::Tunnel(server().await)).await;
    let port = proxy.address.port();
    for (host, permitted) in [
        ("127.0.0.1", &[][..]),
        ("127.0.0.1", &["localhost", "proxy"]),
        ("localhost", &[]),
        ("localhost", &["127.0.0.1"]),
    ] {
        let settings = ProxySettings {
            proxy: format!("http://{host}:{port}"),
            allowed_hosts: permitted.iter().map(|&host| host.to_owned()).collect(),
            ..ProxySettings::default()
        };
        let refused = sent(allowed(settings), "http://chat.invalid/").await;
        let refused = refused.unwrap_err();
        assert!(refused.contains("is a loopback address"), "{refused}");
    }
    assert_eq!(proxy.heads(), Vec::<String>::new());
    let settings = ProxySettings {
        proxy: format!("http://LocalHost:{port}"),
        allowed_hosts: BTreeSet::from(["localhost".to_owned()]),
        ..ProxySettings::default()
    };
    let answer = sent(allowed(settings), "http://chat.invalid/").await;
    assert_eq!(answer.as_deref(), Ok(&b"here"[..]));
}
