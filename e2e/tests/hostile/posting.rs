//! Calls of the webhook's port that bypass the API server.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::client::Body;
use kube::{Api, Client, Config, Resource};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Stage;

/// A hook from which the address of all hooks is read.
const SOME_HOOK: &str = "/guard-rolebinding";
/// The address of the API server, and the default address of a client.
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// An address that no API server has.
pub(crate) const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The data that the API server and every reader of the registration know about the webhook.
pub(crate) struct Registered {
    /// The prefix of each hook's path.
    pub(crate) key: String,
    authority: Vec<u8>,
}

impl Registered {
    pub(crate) async fn read(admin: &Client) -> Result<Self> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
        let webhooks = api.get("oz").await?.webhooks.unwrap_or_default();
        let told = webhooks.into_iter().find_map(|webhook| {
            let url: http::Uri = webhook.client_config.url?.parse().ok()?;
            let key = url.path().strip_suffix(SOME_HOOK)?.to_owned();
            let authority = webhook.client_config.ca_bundle?.0;
            Some(Self { key, authority })
        });
        told.context("the hook is not registered")
    }

    /// Returns a connection to the webhook with the protocol `protocol`, without data.
    pub(crate) async fn connect(
        &self,
        stage: &Stage,
        protocol: &[u8],
    ) -> Result<TlsStream<TcpStream>> {
        self.connect_from(stage, protocol, HERE).await
    }

    /// Posts to a hook with the key, from an address that no API server has; returns the code, and the review in the
    /// response if it has one.
    pub(crate) async fn post_from_elsewhere(
        &self,
        stage: &Stage,
        path: &str,
        body: &str,
    ) -> Result<(u16, Value)> {
        let mut stream = self.connect_from(stage, b"http/1.1", ELSEWHERE).await?;
        let head = format!(
            "POST {}{path} HTTP/1.1\r\nhost: oz\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            self.key,
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        let mut answer = Vec::new();
        // The connection may end without a TLS close message.
        drop(stream.read_to_end(&mut answer).await);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let code = answer.split(' ').nth(1).context("no answer")?.parse()?;
        let (_, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
        Ok((code, serde_json::from_str(body).unwrap_or_default()))
    }

    async fn connect_from(
        &self,
        stage: &Stage,
        protocol: &[u8],
        from: Ipv4Addr,
    ) -> Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.authority) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let address = stage.oz()?.webhook.serving;
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(address).await?;
        let name = ServerName::try_from(address.ip().to_string())?;
        Ok(TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?)
    }
}

/// Returns the review of alice's creation of an object of oz in a namespace, as the API server sends it.
pub(crate) fn creation<K>(namespace: &str, object: &K) -> Result<Value>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let (group, version) = (K::group(&()), K::version(&()));
    let mut created = serde_json::to_value(object)?;
    created["metadata"]["namespace"] = json!(namespace);
    Ok(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "review",
            "kind": {"group": group, "version": version, "kind": K::kind(&())},
            "resource": {"group": group, "version": version, "resource": K::plural(&())},
            "name": object.meta().name, "namespace": namespace, "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["devs"]}, "object": created,
        },
    }))
}

/// A client that reaches the webhook's port.
#[derive(Clone)]
pub(crate) struct Poster {
    client: Client,
    key: String,
}

impl Poster {
    /// Returns a client without the key.
    pub(crate) fn stranger(stage: &Stage) -> Result<Self> {
        Self::saying(stage, "")
    }

    /// Returns a client with the key that the API server has.
    pub(crate) async fn knowing(stage: &Stage) -> Result<Self> {
        Self::saying(stage, &Registered::read(&stage.admin).await?.key)
    }

    /// Returns a client that puts `key` before each path.
    pub(crate) fn saying(stage: &Stage, key: &str) -> Result<Self> {
        let address = stage.oz()?.webhook.serving;
        let mut config = Config::new(format!("https://{address}").parse()?);
        config.accept_invalid_certs = true;
        Ok(Self {
            client: Client::try_from(config)?,
            key: key.to_owned(),
        })
    }

    /// Posts to a hook; returns the code, and the review in the response if it has one.
    pub(crate) async fn posts(&self, path: &str, body: impl Into<Vec<u8>>) -> Result<(u16, Value)> {
        self.sends("POST", path, Body::from(body.into())).await
    }

    pub(crate) async fn sends(&self, method: &str, path: &str, body: Body) -> Result<(u16, Value)> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.key))
            .header("content-type", "application/json")
            .body(body)?;
        let answer = self.client.send(request).await?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect_bytes().await?;
        Ok((code, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// Returns the first line of a response; an empty text if the connection ended without one.
pub(crate) async fn first_line(stream: &mut TlsStream<TcpStream>) -> String {
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&answer[..length]).into_owned();
    text.lines().next().unwrap_or_default().to_owned()
}
