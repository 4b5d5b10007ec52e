//! The client of the broker, over TLS: one connection for each request, since requests are rare.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use oz_api::harness::wire::{REPORT_PATH, RUN_PATH, Refused, RunAnswer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::args::Options;
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
enum Failure {
    /// Another attempt would have the same result.
    Refused(anyhow::Error),
    /// Another attempt may succeed.
    Temporary(anyhow::Error),
}

/// The client of the broker.
pub(crate) struct Broker {
    host: String,
    port: u16,
    token: PathBuf,
    tls: TlsConnector,
}

impl Broker {
    /// Creates the client of the broker that the command line names.
    ///
    /// # Errors
    /// When the address or the certificates are not valid.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let url = &options.broker_url;
        let parsed: Uri = url
            .parse()
            .with_context(|| format!("the broker's address {url} is no URL"))?;
        ensure!(
            parsed.scheme_str() == Some("https"),
            "the broker's address {url} is not used: it has to begin with https://"
        );
        let host = parsed
            .host()
            .with_context(|| format!("{url} names no host"))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(options.broker_ca.as_bytes()) {
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
            token: options.token.clone(),
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
            let asked = self.ask(Method::GET, RUN_PATH, Bytes::new()).await;
            let failed = match asked {
                Ok(answer) => {
                    return serde_json::from_slice(&answer)
                        .context("failed to read the broker's answer about this run");
                }
                Err(Failure::Refused(error)) => {
                    return Err(error.context("failed to fetch the prompt"));
                }
                Err(Failure::Temporary(error)) => error,
            };
            complaint.about::<()>("the prompt is not there yet, asking again", Err(failed));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_BACKOFF);
        }
    }

    /// Sends a report, once.
    ///
    /// # Errors
    /// When the broker did not accept the report.
    pub(crate) async fn report(&self, body: String) -> Result<()> {
        let posted = self.ask(Method::POST, REPORT_PATH, body.into()).await;
        match posted {
            Ok(_) => Ok(()),
            Err(Failure::Refused(error) | Failure::Temporary(error)) => Err(error),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        let sent = tokio::time::timeout(REQUEST_TIMEOUT, self.send(method, path, body)).await;
        let sent = sent.unwrap_or_else(|_| Err(anyhow!("no answer in {REQUEST_TIMEOUT:?}")));
        let (status, answer) = sent
            .with_context(|| format!("failed to ask the broker at {}:{}", self.host, self.port))
            .map_err(Failure::Temporary)?;
        if status.is_success() {
            return Ok(answer);
        }
        let why = match serde_json::from_slice::<Refused>(&answer) {
            Ok(refused) => format!("{}: {}", refused.code, cut::line(&refused.message, 512)),
            Err(_) => cut::line(&String::from_utf8_lossy(&answer), 512),
        };
        let error = anyhow!("the broker answered {status}: {why}");
        let may_pass = status.is_server_error()
            || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        Err(match may_pass {
            true => Failure::Temporary(error),
            false => Failure::Refused(error),
        })
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(AUTHORIZATION, format!("Bearer {}", self.token()?))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .context("failed to make the request: is the token one line?")?;
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let name = ServerName::try_from(self.host.clone())?;
        let stream = self.tls.connect(name, stream).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let exchange = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            match body {
                Ok(body) => Ok((status, body.to_bytes())),
                Err(error) => bail!("failed to read the broker's answer: {error}"),
            }
        };
        tokio::pin!(exchange);
        tokio::select! {
            done = &mut exchange => done,
            // The broker closed the connection, possibly after a complete response: the exchange decides.
            _ = connection => exchange.await,
        }
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
