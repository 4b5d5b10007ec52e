//! A cluster, as one user sees it.

use std::fmt::Debug;
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
use tower::BoxError;

use crate::failure::{Failure, Result};
use crate::{names, tls};

/// The number of objects in one page.
const PAGE: u32 = 500;

/// A cluster, as one user sees it, in one namespace.
#[derive(Clone)]
pub struct Cluster {
    /// The client.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    /// The URL of the API server.
    pub url: String,
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

impl Cluster {
    /// Creates a client from this configuration, for `namespace`. `request_timeout` limits the time for a response.
    ///
    /// # Errors
    /// The namespace is not a valid name, or no client can be created from the configuration.
    pub fn new(config: Config, namespace: &str, request_timeout: Option<Duration>) -> Result<Self> {
        names::checked(namespace)?;
        let url = config.cluster_url.to_string();
        let plugin = config.auth_info.exec.as_ref();
        let plugin = plugin.and_then(|plugin| plugin.command.clone());
        let client = tls::client(config).map_err(|error| match (error, plugin) {
            // The error does not name the command that failed.
            (kube::Error::Auth(AuthError::AuthExecStart(error)), Some(plugin)) => Failure::new(
                format!("failed to run the credential plugin {plugin}: {error}"),
            )
            .next("install it, or correct the user of your kubeconfig"),
            (error, _) => error.into(),
        })?;
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            url,
            request_timeout,
        })
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
