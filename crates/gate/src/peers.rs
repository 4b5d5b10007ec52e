//! The other replicas of the gate: the API server reaches any of them, and a session is in one of them. This replica
//! asks the others for the sessions that it does not have, with a peer token that they accept for this one request.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use futures::future::join_all;
use http_body_util::{BodyDataStream, BodyExt as _, Limited};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client, Config};
use oz_admission::BUNDLE_KEY;
use oz_api::{Requester, names};
use oz_core::access::seal::Keys;
use oz_gating::live::Listing;
use oz_gating::peer::{HEADER, Word};
use oz_gating::recording::SessionKey;
use oz_runtime::Clock;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::answer::{Refused, over};

/// The timeout of a connection to a replica.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout until the response of a replica begins: the replica records a view before it responds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout of the listing of a replica.
const LISTING_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest listing of a replica that is read.
const MAX_LISTING: usize = 16 << 20;
/// The name of the Service's port on which the gate serves the API server.
const PORT: &str = "gate";
/// The maximum number of replicas that are asked.
const MAX_PEERS: usize = 32;

/// The client of the other replicas; see the [module](self).
pub(crate) struct Peers {
    client: Client,
    namespace: String,
    service: String,
    /// The name in the certificates of the replicas.
    server_name: String,
    /// The name of this replica, which is not asked.
    replica: String,
}

/// A request to the other replicas, and its user.
pub(crate) struct Question<'a> {
    pub(crate) user: &'a Requester,
    pub(crate) method: &'a Method,
    /// The path and query.
    pub(crate) target: &'a str,
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a dyn Clock,
}

/// Another replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Peer {
    address: SocketAddr,
    name: Option<String>,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(formatter, "replica {name} of the gate"),
            None => write!(formatter, "the gate at {}", self.address),
        }
    }
}

/// The reason for which a replica was not asked, or did not answer.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error("failed to read the addresses of the gate's other replicas: {0}")]
    Addresses(kube::Error),
    #[error(
        "failed to read the gate's authority from ConfigMap {namespace}/{}: {why}",
        names::GATE_CA
    )]
    Authority {
        namespace: String,
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("its address is not valid in a URL")]
    Address,
    #[error("it responded {0}")]
    Status(StatusCode),
    #[error("no response in time")]
    Late,
    #[error(transparent)]
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl PeerError {
    fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}

impl Peers {
    /// Creates a client of the replicas behind a Service.
    pub(crate) fn new(client: Client, namespace: &str, service: &str, replica: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            server_name: format!("{service}.{namespace}.svc"),
            replica: replica.to_owned(),
        }
    }

    /// Adds the sessions of the other replicas to a listing, and the replicas that did not answer.
    pub(crate) async fn add_to(&self, listing: &mut Listing, question: &Question<'_>) {
        let (peers, authorities) = match self.all().await {
            Ok(found) => found,
            Err(why) => {
                listing.incomplete.push(why.to_string());
                return;
            }
        };
        let authorities = &authorities;
        let asked = peers.iter().map(|peer| async move {
            let listed = self.listing(peer, authorities, question);
            let listed = match tokio::time::timeout(LISTING_TIMEOUT, listed).await {
                Ok(listed) => listed,
                Err(_elapsed) => Err(PeerError::Late),
            };
            (peer, listed)
        });
        for (peer, listed) in join_all(asked).await {
            match listed {
                Ok(other) => listing.merge(other),
                Err(why) => listing.incomplete.push(format!("{peer}: {why}")),
            }
        }
    }

    /// Returns the response of the replica that has a session.
    pub(crate) async fn find(
        &self,
        key: &SessionKey,
        question: &Question<'_>,
    ) -> Result<Response<Body>, Refused> {
        let unavailable = |why: String| Refused::unavailable("Peers", why);
        let found = self.all().await;
        let (peers, authorities) = found.map_err(|why| unavailable(why.to_string()))?;
        let authorities = &authorities;
        let answers = peers.iter().map(|peer| async move {
            let answer = self.ask(peer, authorities, question).await;
            (peer, answer)
        });
        let mut failed = Vec::new();
        for (peer, answer) in join_all(answers).await {
            match answer {
                Ok(answer) if answer.status() == StatusCode::NOT_FOUND => {}
                Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED => {
                    failed.push(format!(
                        "{peer}: it does not accept the peer token of this replica"
                    ));
                }
                Ok(answer) => {
                    let (parts, body) = answer.into_parts();
                    let body = Body::from_stream(BodyDataStream::new(body));
                    let mut response = Response::new(body);
                    *response.status_mut() = parts.status;
                    if let Some(kind) = parts.headers.get(CONTENT_TYPE) {
                        response.headers_mut().insert(CONTENT_TYPE, kind.clone());
                    }
                    return Ok(response);
                }
                Err(why) => failed.push(format!("{peer}: {why}")),
            }
        }
        if failed.is_empty() {
            return Err(over(key));
        }
        Err(unavailable(format!(
            "the session may be open in a replica that did not respond ({}); try again",
            failed.join("; ")
        )))
    }

    async fn listing(
        &self,
        peer: &Peer,
        authorities: &[Vec<u8>],
        question: &Question<'_>,
    ) -> Result<Listing, PeerError> {
        let answer = self.ask(peer, authorities, question).await?;
        let status = answer.status();
        if !status.is_success() {
            return Err(PeerError::Status(status));
        }
        let body = Limited::new(answer.into_body(), MAX_LISTING);
        let bytes = body.collect().await.map_err(PeerError::Failed)?;
        serde_json::from_slice(&bytes.to_bytes()).map_err(PeerError::failed)
    }

    async fn ask(
        &self,
        peer: &Peer,
        authorities: &[Vec<u8>],
        question: &Question<'_>,
    ) -> Result<Response<kube::client::Body>, PeerError> {
        let Question {
            user,
            method,
            target,
            keys,
            clock,
        } = *question;
        let url = format!("https://{}", peer.address).parse();
        let mut config = Config::new(url.map_err(|_| PeerError::Address)?);
        config.root_cert = Some(authorities.to_vec());
        config.tls_server_name = Some(self.server_name.clone());
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = None;
        config.write_timeout = None;
        config.proxy_url = None;
        let client = oz_runtime::connect(config).map_err(PeerError::failed)?;
        let word = Word::new(user, method.as_str(), target, clock.now()).seal(keys);
        let word = HeaderValue::try_from(word.map_err(PeerError::failed)?);
        let request = Request::builder()
            .method(method.clone())
            .uri(target)
            .header(HEADER, word.map_err(PeerError::failed)?)
            .body(kube::client::Body::empty())
            .map_err(PeerError::failed)?;
        match tokio::time::timeout(ANSWER_TIMEOUT, client.send(request)).await {
            Ok(answer) => answer.map_err(PeerError::failed),
            Err(_elapsed) => Err(PeerError::Late),
        }
    }

    /// Returns all other replicas, and the certificate authorities that verify them.
    async fn all(&self) -> Result<(Vec<Peer>, Vec<Vec<u8>>), PeerError> {
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        let of_ours = format!("kubernetes.io/service-name={}", self.service);
        let slices = slices.list(&ListParams::default().labels(&of_ours)).await;
        let slices = slices.map_err(PeerError::Addresses)?;
        let peers = peers(&slices.items, &self.replica);
        if peers.is_empty() {
            return Ok((peers, Vec::new()));
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let failed = |why| PeerError::Authority {
            namespace: self.namespace.clone(),
            why,
        };
        let map = maps
            .get(names::GATE_CA)
            .await
            .map_err(|error| failed(error.into()))?;
        let bundle = map.data.and_then(|mut data| data.remove(BUNDLE_KEY));
        let bundle = bundle.iter().map(String::as_bytes);
        let certificates = bundle.flat_map(CertificateDer::pem_slice_iter);
        let certificates: Result<Vec<_>, _> = certificates
            .map(|one| one.map(|one| one.to_vec()))
            .collect();
        Ok((peers, certificates.map_err(|error| failed(error.into()))?))
    }
}

/// Returns the endpoints of the gate without this replica. A replica that is about to stop still has sessions, and is
/// included.
fn peers(slices: &[EndpointSlice], replica: &str) -> Vec<Peer> {
    let mut found = Vec::new();
    for slice in slices {
        let mut ports = slice.ports.iter().flatten();
        let port = ports.find(|port| port.name.as_deref() == Some(PORT));
        let Some(port) = port.and_then(|port| u16::try_from(port.port?).ok()) else {
            continue;
        };
        for endpoint in &slice.endpoints {
            let name = endpoint
                .target_ref
                .as_ref()
                .and_then(|target| target.name.clone());
            let address = endpoint.addresses.first().and_then(|one| one.parse().ok());
            if let Some(address) = address.filter(|_| name.as_deref() != Some(replica)) {
                let address = SocketAddr::new(address, port);
                found.push(Peer { address, name });
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_PEERS);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_other_endpoint_is_a_peer_ready_or_not() {
        let slice = |addresses: &[(&str, Option<&str>)], port: Option<i32>| -> EndpointSlice {
            let endpoints: Vec<_> = addresses
                .iter()
                .map(|(address, name)| {
                    let target = name.map(|name| json!({"kind": "Pod", "name": name}));
                    json!({"addresses": [address], "targetRef": target, "conditions": {"ready": false}})
                })
                .collect();
            let ports: Vec<_> = port
                .iter()
                .map(|port| json!({"name": "gate", "port": port}))
                .collect();
            serde_json::from_value(json!({
                "metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
            }))
            .unwrap()
        };
        let slices = [
            slice(
                &[("10.0.0.1", Some("me")), ("10.0.0.2", Some("other"))],
                Some(8443),
            ),
            slice(
                &[("10.0.0.2", Some("other")), ("10.0.0.3", None)],
                Some(8443),
            ),
            slice(&[("nowhere", None)], Some(8443)),
            slice(&[("10.0.0.4", None)], None),
        ];
        let found: Vec<_> = peers(&slices, "me")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            ["replica other of the gate", "the gate at 10.0.0.3:8443"]
        );
    }
}
