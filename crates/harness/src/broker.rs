//! The client of the broker, over TLS, for the `oz` container and for the proxy: one connection for each request, since
//! requests are rare; the proxy keeps the connection on which it waits for grants.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use oz_api::harness::wire::{REPORT_PATH, RUN_PATH, Refused, RunAnswer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::cut;
use crate::log::Complaint;

/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The backoff after the first failure; it doubles after each further failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
/// The maximum backoff.
const LAST_BACKOFF: Duration = Duration::from_secs(10);
/// The maximum size of a response in bytes: a prompt of 256 KiB of characters that take six bytes each in JSON.
const MAX_ANSWER: usize = 2 * 1024 * 1024;
/// The maximum size of a token in bytes.
const MAX_TOKEN: u64 = 64 * 1024;

/// The reason for which a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another attempt would have the same result.
    Refused(anyhow::Error),
    /// Another attempt may succeed.
    Temporary(anyhow::Error),
}

impl Failure {
    /// Returns the error.
    pub(crate) fn into_error(self) -> anyhow::Error {
        match self {
            Self::Refused(error) | Self::Temporary(error) => error,
        }
    }
}

/// A request to the broker.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    pub(crate) timeout: Duration,
    /// The maximum size of the response in bytes.
    pub(crate) most: usize,
}

impl Call {
    /// Creates a request with the usual limits.
    pub(crate) fn new(method: Method, path: &str, body: impl Into<Bytes>) -> Self {
        Self {
            method,
            path: path.to_owned(),
            body: body.into(),
            timeout: REQUEST_TIMEOUT,
            most: MAX_ANSWER,
        }
    }
}

/// A connection to the broker. It closes when it is dropped.
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

/// The client of the broker.
pub(crate) struct Broker {
    host: String,
    port: u16,
    token: PathBuf,
    tls: TlsConnector,
}

impl Broker {
    /// Creates the client of the broker at `url`, with the certificate authorities in `authorities` (PEM) and the token
    /// in the file `token`.
    ///
    /// # Errors
    /// When the address or the certificates are not valid.
    pub(crate) fn new(url: &str, authorities: &str, token: &Path) -> Result<Self> {
        let parsed: Uri = url
            .parse()
            .with_context(|| format!("the broker's address {url} is not a URL"))?;
        ensure!(
            parsed.scheme_str() == Some("https"),
            "the broker's address {url} is not used: it has to begin with https://"
        );
        let host = parsed
            .host()
            .with_context(|| format!("{url} names no host"))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
            let certificate = certificate.context("OZ_BROKER_CA is not PEM")?;
            roots
                .add(certificate)
                .context("a certificate in OZ_BROKER_CA is not usable")?;
        }
        ensure!(!roots.is_empty(), "OZ_BROKER_CA has no certificate");
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: parsed.port_u16().unwrap_or(443),
            token: token.to_owned(),
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Returns the run of this pod. Retries until the broker responds.
    ///
    /// # Errors
    /// When the broker refuses the request permanently.
    pub(crate) async fn run(&self) -> Result<RunAnswer> {
        let mut complaint = Complaint::silent();
        let mut pause = FIRST_BACKOFF;
        loop {
            let asked = self
                .ask(Call::new(Method::GET, RUN_PATH, Bytes::new()))
                .await;
            let failed = match asked {
                Ok(answer) => {
                    return serde_json::from_slice(&answer)
                        .context("failed to read the broker's response about this run");
                }
                Err(Failure::Refused(error)) => {
                    return Err(error.context("failed to fetch the prompt"));
                }
                Err(Failure::Temporary(error)) => error,
            };
            complaint.about::<()>("the prompt is not available yet, retrying", Err(failed));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_BACKOFF);
        }
    }

    /// Sends a report, once.
    ///
    /// # Errors
    /// When the broker did not accept the report.
    pub(crate) async fn report(&self, body: String) -> Result<()> {
        let posted = self.ask(Call::new(Method::POST, REPORT_PATH, body)).await;
        posted.map(drop).map_err(Failure::into_error)
    }

    /// Sends a request on a new connection. Returns the body of the response.
    ///
    /// # Errors
    /// When the broker does not respond, or refuses the request.
    pub(crate) async fn ask(&self, call: Call) -> Result<Bytes, Failure> {
        self.ask_on(&mut None, call).await
    }

    /// Sends a request on this connection, or on a new one if there is none, and keeps the connection for the next
    /// request. Returns the body of the response.
    ///
    /// # Errors
    /// When the broker does not respond, or refuses the request.
    pub(crate) async fn ask_on(
        &self,
        kept: &mut Option<Line>,
        call: Call,
    ) -> Result<Bytes, Failure> {
        let timeout = call.timeout;
        let sent = tokio::time::timeout(timeout, self.send(kept, call)).await;
        let sent = sent.unwrap_or_else(|_| Err(anyhow!("no response in {timeout:?}")));
        let (status, answer) = sent
            .with_context(|| {
                format!(
                    "failed to send a request to the broker at {}:{}",
                    self.host, self.port
                )
            })
            .map_err(Failure::Temporary)?;
        if status.is_success() {
            return Ok(answer);
        }
        let why = match serde_json::from_slice::<Refused>(&answer) {
            Ok(refused) => format!("{}: {}", refused.code, cut::line(&refused.message, 512)),
            Err(_) => cut::line(&String::from_utf8_lossy(&answer), 512),
        };
        let error = anyhow!("the broker responded {status}: {why}");
        let may_pass = status.is_server_error()
            || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        Err(match may_pass {
            true => Failure::Temporary(error),
            false => Failure::Refused(error),
        })
    }

    async fn send(&self, kept: &mut Option<Line>, call: Call) -> Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(AUTHORIZATION, format!("Bearer {}", self.token()?))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(call.body))
            .context("failed to create the request: check that the token is one line")?;
        let mut line = match Self::kept(kept).await {
            Some(line) => line,
            None => self.connect().await?,
        };
        let answer = line.sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), call.most).collect().await;
        match body {
            Ok(body) => {
                *kept = Some(line);
                Ok((status, body.to_bytes()))
            }
            Err(error) => bail!("failed to read the broker's response: {error}"),
        }
    }

    /// Takes the kept connection if the broker has not closed it.
    async fn kept(kept: &mut Option<Line>) -> Option<Line> {
        let mut line = kept.take()?;
        line.sender.ready().await.is_ok().then_some(line)
    }

    async fn connect(&self) -> Result<Line> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let name = ServerName::try_from(self.host.clone())?;
        let stream = self.tls.connect(name, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async {
            // A failure is one of the request, too.
            let _ = connection.await;
        });
        Ok(Line {
            sender,
            _driver: AbortOnDropHandle::new(driver),
        })
    }

    /// Returns the current token: the kubelet renews it.
    fn token(&self) -> Result<String> {
        let mut token = String::new();
        std::fs::File::open(&self.token)
            .and_then(|file| file.take(MAX_TOKEN).read_to_string(&mut token))
            .with_context(|| format!("failed to read the token in {}", self.token.display()))?;
        Ok(token.trim().to_owned())
    }
}
