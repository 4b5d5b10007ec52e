//! Functions, as a developer writes them: an HTTP server of the test, in which the path selects the program.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use anyhow::Result;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The host that the composites of this suite name.
pub(crate) const HOST: &str = "functions.test";

/// The status of a function that accepts every call and never responds.
pub(crate) const HANGS: u16 = 1;

/// The program of one function.
pub(crate) type Program = Arc<dyn Fn(&Value) -> Value + Send + Sync>;

/// The server, and the programs of its functions.
#[derive(Clone, Default)]
pub(crate) struct Hooks(Arc<Inner>);

#[derive(Default)]
struct Inner {
    programs: Mutex<BTreeMap<String, Arc<Function>>>,
}

/// A function, with its calls and its last request.
pub(crate) struct Function {
    program: Program,
    calls: AtomicUsize,
    /// The status that the function returns instead of the result of its program, if not 0.
    status: AtomicU16,
    last: Mutex<Value>,
}

impl Function {
    /// Returns the number of calls.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns the last request.
    pub(crate) fn last(&self) -> Value {
        self.last.lock().clone()
    }

    /// Responds with this status from now on, or with 0 by its program.
    pub(crate) fn answer_with(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }
}

impl Hooks {
    /// Starts the server, in a separate runtime, since each test has a separate one. It lives as long as the process.
    pub(crate) fn start(&self) -> Result<SocketAddr> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/{*name}", post(answer))
            .with_state(self.clone());
        let runtime = tokio::runtime::Runtime::new()?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                axum::serve(listener, router).await
            })
        });
        Ok(address)
    }

    /// Adds a function under this path.
    pub(crate) fn add(
        &self,
        name: &str,
        program: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> Arc<Function> {
        let function = Arc::new(Function {
            program: Arc::new(program),
            calls: AtomicUsize::new(0),
            status: AtomicU16::new(0),
            last: Mutex::default(),
        });
        self.0
            .programs
            .lock()
            .insert(name.to_owned(), Arc::clone(&function));
        function
    }
}

async fn answer(State(hooks): State<Hooks>, Path(name): Path<String>, body: String) -> Response {
    let function = hooks.0.programs.lock().get(&name).cloned();
    let Some(function) = function else {
        return (StatusCode::NOT_FOUND, "no such function").into_response();
    };
    let request: Value = serde_json::from_str(&body).unwrap_or_default();
    function.calls.fetch_add(1, Ordering::SeqCst);
    function.last.lock().clone_from(&request);
    match function.status.load(Ordering::SeqCst) {
        0 => match (function.program)(&request) {
            // This text is not JSON.
            Value::String(text) => text.into_response(),
            answer => answer.to_string().into_response(),
        },
        HANGS => std::future::pending().await,
        429 => (
            StatusCode::TOO_MANY_REQUESTS,
            [("retry-after", "1")],
            "later",
        )
            .into_response(),
        status => (
            StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT),
            [("location", "/trap")],
            "<html>no</html>",
        )
            .into_response(),
    }
}

/// Returns a ConfigMap for each member of `spec.names`, with `spec.value`.
pub(crate) fn config_maps(request: &Value) -> Value {
    let spec = &request["parent"]["spec"];
    let names = spec["names"].as_array().cloned().unwrap_or_default();
    let children = names.iter().map(|name| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": spec["labels"]},
            "data": {"value": spec["value"]},
        })
    });
    let there = request["children"]["ConfigMap.v1"].as_object();
    json!({
        "children": children.collect::<Vec<_>>(),
        "status": {"there": there.map_or(0, serde_json::Map::len)},
    })
}
