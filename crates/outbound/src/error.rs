//! Errors of requests before they are sent.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use http::uri::InvalidUri;
use rustls::pki_types::pem;

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
    /// The text is no URL.
    #[error("it is not a URL: {0}")]
    NoUrl(InvalidUri),
    /// The URL has another scheme than `http` and `https`.
    #[error("it must begin with http:// or https://")]
    Scheme,
    /// The URL has no host.
    #[error("it names no host")]
    NoHost,
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
