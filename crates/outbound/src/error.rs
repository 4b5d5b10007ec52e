//! Errors of requests before they are sent.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::InvalidUri;
use rustls::pki_types::pem;

use crate::NoProxyUrl;

/// The reason why a request is not sent. No message contains a URL or a token.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The address must not receive requests.
    #[error("{address} {why}, and must not receive requests")]
    Refused {
        /// Address of the server.
        address: IpAddr,
        /// The range of the address, such as `is link-local`.
        why: &'static str,
    },
    /// The address is that of the API server.
    #[error("{address} is the API server")]
    ApiServer {
        /// Address of the server.
        address: IpAddr,
    },
    /// The host is this machine, by its name.
    #[error("{host} is this machine, and must not receive requests")]
    Localhost {
        /// Name of the host.
        host: String,
    },
    /// The text is no URL.
    #[error("it is not a URL: {0}")]
    NoUrl(InvalidUri),
    /// The URL has another scheme than `http` and `https`.
    #[error("it must begin with http:// or https://")]
    Scheme,
    /// The URL has no host.
    #[error("it names no host")]
    NoHost,
    /// The host of the URL has brackets, and is no address.
    #[error("the host with brackets is no address; a zone is not supported")]
    NoAddress,
    /// The URL has a user.
    #[error("it must have no user and password")]
    UserInfo,
    /// The PEM has a block that is no certificate.
    #[error("no certificate: {0}")]
    NoCertificate(pem::Error),
    /// A certificate is not that of an authority.
    #[error("no certificate authority: {0}")]
    NoAuthority(rustls::Error),
    /// The PEM contains no certificate.
    #[error("it has no certificate")]
    Empty,
    /// The file has a text that cannot be the value of a header.
    #[error(
        "{} has no value of a header: it must be one line of at most 8 KiB",
        file.display()
    )]
    NoHeaderValue {
        /// Path of the file.
        file: PathBuf,
    },
    /// The text is not the name of a header.
    #[error("{name:?} is not the name of a header")]
    NoHeaderName {
        /// The text.
        name: String,
    },
    /// The file cannot be read.
    #[error("failed to read {}: {error}", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

/// The reason why a proxy cannot be used. No message contains a password, or the path of a server's URL.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The text is no URL.
    #[error(transparent)]
    Url(#[from] NoProxyUrl),
    /// The URL has another scheme than `http`.
    #[error("{name} must begin with http://: proxies of other schemes are not supported")]
    Scheme {
        /// The text with the URL.
        name: &'static str,
    },
    /// The URL has no host.
    #[error("{name} names no host")]
    NoHost {
        /// The text with the URL.
        name: &'static str,
    },
    /// The URL of the configuration has a user.
    #[error("must have no user and password: outbound.secret names a Secret with them")]
    UserInfo,
    /// The files with the user and the password cannot be used.
    #[error("failed to read the user and password of the proxy: {0}")]
    Secret(OutboundError),
    /// The proxy has an address that must not receive requests.
    #[error("the proxy {proxy}: {error}; outbound.allowedHosts lists the permitted hosts")]
    Refused {
        /// Host and port of the proxy.
        proxy: String,
        /// The reason.
        error: OutboundError,
    },
    /// There is no connection to the proxy.
    #[error("failed to connect to the proxy {proxy}: {why}")]
    Unreachable {
        /// Host and port of the proxy.
        proxy: String,
        /// The reason.
        why: String,
    },
    /// The proxy did not respond in time.
    #[error("the proxy {proxy} opened no tunnel within {timeout:?}")]
    Late {
        /// Host and port of the proxy.
        proxy: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The proxy requires other credentials.
    #[error("the proxy {proxy} {given} (407); outbound.secret names a Secret with them")]
    Unauthorized {
        /// Host and port of the proxy.
        proxy: String,
        /// What the proxy requires.
        given: &'static str,
    },
    /// The proxy denies the tunnel.
    #[error("the proxy {proxy} responded {code} to CONNECT")]
    NoTunnel {
        /// Host and port of the proxy.
        proxy: String,
        /// The code of the response.
        code: String,
    },
}
