//! A proxy between an oz process and the API server that holds back watches when a test requests it: the data
//! that the process has from its watches is then old, while it reaches the API server as always.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use kube::Client;
use oz_testkit::Cluster;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::system::identity;

/// The maximum size of a request: more than any oz process sends.
const MAX_REQUEST: usize = 16 << 20;

/// The effect of the proxy on the watches of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The watches stay open, and transfer no more events.
    Silent,
    /// The watches end, and no further watch is answered.
    Cut,
}

type Back = BTreeMap<String, Kept>;

/// The API server, as one oz process reaches it, under the account of that process. The proxy runs in the
/// runtime in which it was started; no thread of this runtime that the proxy needs may be blocked.
#[derive(Debug)]
pub struct ApiProxy {
    kubeconfig: PathBuf,
    back: watch::Sender<Back>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
struct Passing {
    client: Client,
    back: watch::Receiver<Back>,
}

impl ApiProxy {
    /// Starts a proxy for the program of this name, which does not hold back any watch yet.
    ///
    /// # Errors
    /// When no port is free, or the kubeconfig cannot be written.
    pub async fn start(cluster: &Cluster, program: &str) -> Result<Self> {
        let (user, _) = identity(cluster, program)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "proxy", "cluster": {"server": format!("http://{}", listener.local_addr()?)},
            }],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
            "current-context": "proxy",
        });
        let path = cluster.state_dir().join(format!("{program}-proxy.json"));
        std::fs::write(&path, kubeconfig.to_string())
            .with_context(|| format!("failed to write {}", path.display()))?;
        let (back, kept) = watch::channel(Back::new());
        let passing = Passing {
            client: cluster.client(&user).await?,
            back: kept,
        };
        let router = Router::new().fallback(pass).with_state(Arc::new(passing));
        let task = tokio::spawn(async move {
            // The loop ends only with the task.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            kubeconfig: path,
            back,
            task,
        })
    }

    /// Returns the path of the kubeconfig with which a process reaches the proxy.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Holds back the watches of a resource from now on, such as those of `pods`.
    pub fn keep_back(&self, resource: &str, how: Kept) {
        self.back
            .send_modify(|back| _ = back.insert(resource.to_owned(), how));
    }

    /// Releases all watches: silent watches transfer their events.
    pub fn release(&self) {
        self.back.send_modify(Back::clear);
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(State(passing): State<Arc<Passing>>, request: Request) -> Response {
    let answer = passing.pass(request).await;
    answer.unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response())
}

impl Passing {
    async fn pass(&self, request: Request) -> Result<Response> {
        let watched = watched(&request);
        let mut back = self.back.clone();
        if let Some(resource) = &watched {
            back.wait_for(|back| !back.contains_key(resource)).await?;
        }
        let (mut head, body) = request.into_parts();
        // The client has the API server's own name.
        head.headers.remove(header::HOST);
        let body = to_bytes(body, MAX_REQUEST).await?;
        let request = http::Request::from_parts(head, kube::client::Body::from(body));
        let answer = self.client.send(request).await?.map(Body::new);
        let Some(resource) = watched else {
            return Ok(answer);
        };
        Ok(answer.map(|body| kept_back(body, back, resource)))
    }
}

/// Returns the resource that a request would watch.
fn watched(request: &Request) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    let watches = query.split('&').any(|pair| pair == "watch=true");
    let resource = request.uri().path().rsplit('/').next();
    resource.filter(|_| watches).map(ToOwned::to_owned)
}

/// Returns the response to a watch, as far as the proxy lets it pass.
fn kept_back(body: Body, back: watch::Receiver<Back>, resource: String) -> Body {
    let open = (body.into_data_stream(), back, resource);
    Body::from_stream(futures::stream::unfold(open, async |mut open| {
        let (body, back, resource) = &mut open;
        let cut = |back: &Back| back.get(resource.as_str()) == Some(&Kept::Cut);
        let next = tokio::select! {
            _ = back.wait_for(cut) => return None,
            next = body.next() => next?,
        };
        let goes_on = |back: &Back| back.get(resource.as_str()) != Some(&Kept::Silent);
        let cut = back
            .wait_for(goes_on)
            .await
            .ok()?
            .contains_key(resource.as_str());
        (!cut).then_some((next, open))
    }))
}
