//! What stands between a process of oz and the API server, and keeps watches back when a test says so:
//! what the process knows through them is old then, while it reaches the API server as always.

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

/// More than any process of oz sends.
const MAX_REQUEST: usize = 16 << 20;

/// What becomes of the watches of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// They stay open, and nothing comes of them any more.
    Silent,
    /// They end, and no other is answered.
    Cut,
}

type Back = BTreeMap<String, Kept>;

/// The API server, as one process of oz reaches it: in the name of that process. It answers in the runtime that
/// it was started in, of which no thread may be held up that it needs.
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
    /// A proxy for the program of this name, which keeps nothing back yet.
    ///
    /// # Errors
    /// When there is no free port, or no kubeconfig can be written.
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
            // Ends with the task alone.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            kubeconfig: path,
            back,
            task,
        })
    }

    /// By which it is reached.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Keeps the watches of a resource back from now on, such as those of `pods`.
    pub fn keep_back(&self, resource: &str, how: Kept) {
        self.back
            .send_modify(|back| _ = back.insert(resource.to_owned(), how));
    }

    /// Keeps nothing back any more: what is silent says what it has to say.
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
        // The API server's own name, which the client knows.
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

/// The resource that a request would watch.
fn watched(request: &Request) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    let watches = query.split('&').any(|pair| pair == "watch=true");
    let resource = request.uri().path().rsplit('/').next();
    resource.filter(|_| watches).map(ToOwned::to_owned)
}

/// The answer to a watch, as far as it is let through.
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
