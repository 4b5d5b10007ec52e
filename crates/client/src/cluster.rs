//! A cluster, as one user sees it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::client::{AuthError, Body};
use kube::core::DynamicObject;
use kube::{Api, Client, Config, Resource};
use oz_core::gate;
use oz_core::kinds::{Entry, Kind};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};
use tower::BoxError;

use crate::failure::{Failure, Result};
use crate::request::Retry;
use crate::{names, tls};

/// The number of objects in one page.
const PAGE: u32 = 500;

/// The time for which [`Cluster::persist`] repeats a request.
const GRACE: Duration = Duration::from_secs(9);
/// The time for a response after which [`Cluster::persist`] opens another connection.
const ATTEMPT: Duration = Duration::from_secs(3);

/// A cluster, as one user sees it, in one namespace.
#[derive(Clone)]
pub struct Cluster {
    /// The client.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    /// The URL of the API server.
    pub url: String,
    config: Arc<Config>,
    request_timeout: Option<Duration>,
}

/// The API server's clock, if the response has the time, and the local clock.
pub struct Clocks {
    /// The local time before the request.
    pub before: Timestamp,
    /// The local time after the response.
    pub after: Timestamp,
    /// The API server's time.
    pub server: Option<Timestamp>,
}

/// Returns the request with this prefix before its path.
fn behind(prefix: &str, asked: http::Request<Body>) -> Result<http::Request<Body>, BoxError> {
    let (mut parts, body) = asked.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = format!("{prefix}{path}").parse()?;
    Ok(http::Request::from_parts(parts, body))
}

/// Creates a client; an error names the credential plugin that failed.
fn client(config: Config) -> Result<Client> {
    let plugin = config.auth_info.exec.as_ref();
    let plugin = plugin.and_then(|plugin| plugin.command.clone());
    tls::client(config).map_err(|error| match (error, plugin) {
        (kube::Error::Auth(AuthError::AuthExecStart(error)), Some(plugin)) => Failure::new(
            format!("failed to run the credential plugin {plugin}: {error}"),
        )
        .next("install it, or correct the user of your kubeconfig"),
        (error, _) => error.into(),
    })
}

impl Cluster {
    /// Creates a client from this configuration, for `namespace`. `request_timeout` limits the time for a response.
    ///
    /// # Errors
    /// The namespace is not a valid name, or no client can be created from the configuration.
    pub fn new(config: Config, namespace: &str, request_timeout: Option<Duration>) -> Result<Self> {
        names::checked(namespace)?;
        Ok(Self {
            client: client(config.clone())?,
            namespace: namespace.to_owned(),
            url: config.cluster_url.to_string(),
            config: Arc::new(config),
            request_timeout,
        })
    }

    /// Sends a request that must not be lost, such as the one that ends access. Repeats it for some seconds while it
    /// fails transiently, each time on a new connection: the pool's may lead to a server that is gone.
    ///
    /// # Errors
    /// The last failure.
    pub async fn persist<T>(&self, request: impl AsyncFnMut(&Self) -> Result<T>) -> Result<T> {
        self.persist_with(ATTEMPT, request).await
    }

    async fn persist_with<T>(
        &self,
        attempt: Duration,
        mut request: impl AsyncFnMut(&Self) -> Result<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + GRACE;
        let mut cluster = self.clone();
        let mut retry = Retry::default();
        loop {
            let response = timeout(attempt, request(&cluster)).await;
            let failure = match response {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    let message = format!("the API server did not respond within {attempt:?}");
                    Failure::new(message).passing()
                }
            };
            if Instant::now() >= deadline {
                return Err(failure);
            }
            retry.with(failure).await?;
            cluster.client = client((*self.config).clone())?;
        }
    }

    /// Returns the same cluster through the gate of a request: it reaches the pod of the request, and no other object.
    #[must_use]
    pub fn through_gate(&self, request: &str) -> Self {
        let prefix = gate::prefix(&self.namespace, request);
        let inner = self.client.clone();
        let service = tower::service_fn(move |asked: http::Request<Body>| {
            let (inner, asked) = (inner.clone(), behind(&prefix, asked));
            async move { Ok::<_, BoxError>(inner.send(asked?).await?) }
        });
        Self {
            client: Client::new(service, self.namespace.clone()),
            ..self.clone()
        }
    }

    /// Returns the API for objects of a kind in the chosen namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Returns the API for objects of a kind in the chosen namespace, or in every namespace.
    pub fn api_in<K>(&self, everywhere: bool) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match everywhere {
            true => Api::all(self.client.clone()),
            false => self.api(),
        }
    }

    /// Returns the API for objects of a kind of oz, in the chosen namespace if the kind is namespaced.
    pub fn objects<K: Kind>(&self) -> Api<DynamicObject> {
        let (kind, client) = (Entry::from_type::<K>(), self.client.clone());
        match kind.namespaced {
            true => Api::namespaced_with(client, &self.namespace, &kind.resource),
            false => Api::all_with(client, &kind.resource),
        }
    }

    /// Finds the object of a kind of oz with this name, in the chosen namespace if the kind is namespaced.
    pub async fn find_kind<K: Kind>(&self, name: &str) -> Result<Option<K>> {
        let found = self.find(&self.objects::<K>(), name).await?;
        let parsed = found.map(DynamicObject::try_parse).transpose();
        parsed.map_err(|error| Failure::new(format!("{} {name}: {error}", K::title())))
    }

    /// Finds the object with this name.
    pub async fn find<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        match self.answer(api.get(name)).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads the API server's clock. It is in whole seconds, and was written between two instants of the local clock.
    pub async fn clocks(&self) -> Result<Clocks> {
        let request = http::Request::get("/version").body(Body::empty());
        let request = request.map_err(|error| Failure::new(error.to_string()))?;
        let before = Timestamp::now();
        let answer = self.answer(self.client.send(request)).await?;
        let after = Timestamp::now();
        let date = answer.headers().get(http::header::DATE);
        let server = date.and_then(|date| {
            let parser = jiff::fmt::rfc2822::DateTimeParser::new();
            parser.parse_timestamp(date.to_str().ok()?).ok()
        });
        Ok(Clocks {
            before,
            after,
            server,
        })
    }

    /// Lists the objects of a kind, page by page, up to a maximum; and returns whether there are more.
    ///
    /// # Errors
    /// A page cannot be read.
    pub async fn pages<K>(
        &self,
        api: &Api<K>,
        selected: ListParams,
        most: usize,
    ) -> Result<(Vec<K>, bool)>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let mut page = selected.limit(PAGE);
        let mut found = Vec::new();
        loop {
            let list = self.answer(api.list(&page)).await?;
            found.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                None => return Ok((found, false)),
                Some(_) if found.len() >= most => return Ok((found, true)),
                Some(token) => page = page.continue_token(&token),
            }
        }
    }

    /// Waits for a response of the API server, as long as `--request-timeout` allows.
    pub async fn answer<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T> {
        let Some(limit) = self.request_timeout else {
            return Ok(request.await?);
        };
        match tokio::time::timeout(limit, request).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(
                Failure::new(format!("the API server did not respond within {limit:?}"))
                    .next("try again, or give a longer --request-timeout")
                    .passing(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oz_api::ExecAccessRequest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::request;

    const NO_RESPONSE: Duration = Duration::from_millis(300);

    /// Serves this response on all connections but the first, which gets none.
    async fn server(response: &'static str) -> Cluster {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut silent = None;
            while let Ok((mut stream, _)) = listener.accept().await {
                if silent.is_none() {
                    silent = Some(stream);
                    continue;
                }
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 4096]).await;
                    let _ = stream.write_all(response.as_bytes()).await;
                });
            }
        });
        Cluster::new(Config::new(url.parse().unwrap()), "shop", None).unwrap()
    }

    #[tokio::test]
    async fn release_after_silent_connection_uses_another_connection() {
        for status in ["200 OK", "404 Not Found"] {
            let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"code":CODE}"#;
            let body = body.replace("CODE", &status[..3]);
            let length = body.len();
            let response = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            let cluster = server(response.leak()).await;
            let released = cluster.persist_with(NO_RESPONSE, async |cluster: &Cluster| {
                request::delete::<ExecAccessRequest>(cluster, "alice-1").await
            });
            released.await.unwrap();
        }
    }

    #[tokio::test]
    async fn refused_release_is_not_repeated() {
        let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"code":403,"status":"Failure","message":"no","reason":"Forbidden"}"#;
        let length = body.len();
        let response = format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let cluster = server(response.leak()).await;
        let mut attempts = 0;
        let released = cluster.persist_with(NO_RESPONSE, async |cluster: &Cluster| {
            attempts += 1;
            request::delete::<ExecAccessRequest>(cluster, "alice-1").await
        });
        let failure = released.await.unwrap_err();
        assert!(failure.is_forbidden(), "{failure:?}");
        assert!(attempts >= 2, "{attempts}");
    }
}
