//! Tests without a cluster: reviews as the API server sends them, and a client that records its calls.
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::ResourceExt;
//! use oz_admission::{Endpoint, Hook, Manager, Notes, mutate_fn, testing};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (client, asked) = testing::client();
//! let manager = Manager::builder(client, "acme")
//!     .endpoint(Endpoint::Url("https://hooks.example.com".into()))
//!     .hook(Hook::mutating("owner", mutate_fn(|_, review, pod: &mut Pod| {
//!         pod.labels_mut().insert("owner".into(), review.user.username.clone());
//!         Ok(Notes::none())
//!     })))
//!     .build()?;
//!
//! let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
//!     "spec": {"containers": []}});
//! let answer = testing::Request::create(&pod).user("alice").send(&manager, "/mutate/owner").await;
//! assert!(answer.allowed());
//! assert_eq!(answer.object(&pod)["metadata"]["labels"]["owner"], "alice");
//! assert!(asked.all().is_empty(), "it decides without the API server");
//! # Ok(())
//! # }
//! ```

mod conversion;

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use axum::http;
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::{Resource, client::Body};
use oz_runtime::{Recorder, Store};
use parking_lot::Mutex;
use serde_json::{Value, json};

pub use conversion::{ConversionRequest, Converted};

use crate::{
    cache::Cache,
    caller::{Caller, KnownCallers},
    manager::Manager,
    review::{Cx, Operation},
    watch::Watched,
};

/// A request to the API server, for review.
#[derive(Clone, Debug)]
pub struct Request(Value, Option<IpAddr>);

impl Request {
    /// Creates a request for the creation of an object, given with its `apiVersion` and `kind`.
    pub fn create(object: &Value) -> Self {
        Self::new(Operation::Create, Some(object), None)
    }

    /// Creates a request for a change from one object to another.
    pub fn update(old: &Value, new: &Value) -> Self {
        Self::new(Operation::Update, Some(new), Some(old))
    }

    /// Creates a request for the removal of an object.
    pub fn delete(object: &Value) -> Self {
        Self::new(Operation::Delete, None, Some(object))
    }

    /// Creates a request for a connection, such as `pods/exec`, with these options. Set its target with
    /// [`with_name`](Self::with_name) and [`resource`](Self::resource).
    pub fn connect(options: &Value) -> Self {
        Self::new(Operation::Connect, Some(options), None)
    }

    fn new(operation: Operation, object: Option<&Value>, old: Option<&Value>) -> Self {
        let known = object.or(old).unwrap_or(&Value::Null);
        let api_version = known["apiVersion"].as_str().unwrap_or("v1");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = known["kind"].as_str().unwrap_or_default();
        // The plural of most kinds; see `resource`.
        let resource = format!("{}s", kind.to_lowercase());
        let text = |field: &str| known["metadata"][field].as_str().unwrap_or_default();
        Self(
            json!({
                "uid": "00000000-0000-4000-8000-000000000000",
                "kind": {"group": group, "version": version, "kind": kind},
                "resource": {"group": group, "version": version, "resource": resource},
                "name": text("name"),
                "namespace": text("namespace"),
                "operation": operation,
                "userInfo": {"username": "test", "groups": ["system:authenticated"]},
                "object": object,
                "oldObject": old,
                "dryRun": false,
            }),
            None,
        )
    }

    /// Sets the address of the connection, which has no client certificate. By default, the request does
    /// not arrive over a connection ([`Caller::Local`](crate::Caller::Local)).
    #[must_use]
    pub fn from_address(mut self, address: impl Into<IpAddr>) -> Self {
        self.1 = Some(address.into());
        self
    }

    /// Sets the requesting user; `test` by default.
    #[must_use]
    pub fn user(mut self, name: &str) -> Self {
        self.0["userInfo"]["username"] = json!(name);
        self
    }

    /// Sets the groups of the requesting user.
    #[must_use]
    pub fn groups(mut self, groups: &[&str]) -> Self {
        self.0["userInfo"]["groups"] = json!(groups);
        self
    }

    /// Adds an extra attribute of the requesting user, such as `scopes`.
    #[must_use]
    pub fn extra(mut self, key: &str, values: &[&str]) -> Self {
        self.0["userInfo"]["extra"][key] = json!(values);
        self
    }

    /// Sets the UID of the requesting user.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        self.0["userInfo"]["uid"] = json!(uid);
        self
    }

    /// Sets namespace and name of the object, if the object does not contain them: `namespace` is `""` for
    /// a cluster-scoped object.
    #[must_use]
    pub fn with_name(mut self, namespace: &str, name: &str) -> Self {
        (self.0["namespace"], self.0["name"]) = (json!(namespace), json!(name));
        self
    }

    /// Sets the plural of the resource, if it is not the kind with an `s`; and the subresource, if there is
    /// one.
    #[must_use]
    pub fn resource(mut self, plural: &str, subresource: Option<&str>) -> Self {
        self.0["resource"]["resource"] = json!(plural);
        self.0["subResource"] = json!(subresource);
        self
    }

    /// Marks the request as a dry run: nothing would be stored.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.0["dryRun"] = json!(true);
        self
    }

    /// Returns the `AdmissionReview`, as bytes.
    pub fn body(&self) -> Vec<u8> {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": self.0,
        });
        review.to_string().into_bytes()
    }

    /// Sends the request to the hook at `path`, such as `/mutate/<name>`.
    pub async fn send(&self, manager: &Manager, path: &str) -> Answer {
        let reply = match self.1 {
            Some(address) => manager.review_from(address, path, &self.body()).await,
            None => manager.review(path, &self.body()).await,
        };
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        Answer {
            status: reply.status,
            response: body["response"].clone(),
        }
    }
}

/// The response of a hook.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status: 200 for every review.
    pub status: u16,
    /// The `response` of the `AdmissionReview`.
    pub response: Value,
}

impl Answer {
    /// Checks whether the request is allowed.
    pub fn allowed(&self) -> bool {
        self.response["allowed"] == json!(true)
    }

    /// Returns the reason of a denial, for programs.
    pub fn reason(&self) -> Option<&str> {
        self.response["status"]["reason"].as_str()
    }

    /// Returns the message of a denial, for users.
    pub fn message(&self) -> Option<&str> {
        self.response["status"]["message"].as_str()
    }

    /// Returns the warnings for the user.
    pub fn warnings(&self) -> Vec<&str> {
        let warnings = self.response["warnings"].as_array();
        warnings
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// Returns `object` after the hook: with its patch, if there is one. A patch that cannot be applied
    /// results in `null`.
    pub fn object(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if self.response.get("patch").is_none() {
            return object;
        }
        let patch = serde_json::from_value::<ByteString>(self.response["patch"].clone());
        let patch = patch.and_then(|bytes| serde_json::from_slice::<json_patch::Patch>(&bytes.0));
        match patch.map(|patch| json_patch::patch(&mut object, &patch)) {
            Ok(Ok(())) => object,
            _ => Value::Null,
        }
    }
}

/// A call to the API server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Call {
    /// The method: `GET`, `POST`, ….
    pub method: String,
    /// The path and the query.
    pub path: String,
    /// The request body; `null` without a body.
    pub body: Value,
}

/// The recorded calls of a [`client`]. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RecordedCalls(Arc<Mutex<Vec<Call>>>);

impl RecordedCalls {
    /// Returns all calls, in order.
    pub fn all(&self) -> Vec<Call> {
        self.0.lock().clone()
    }
}

/// Creates the context of a handler, for direct calls of a [`Watch`](crate::Watch) or a
/// [`Task`](crate::Task).
pub fn cx(client: kube::Client) -> Cx {
    let recorder = Recorder::new(client.clone(), "testing", None);
    Cx {
        client,
        fingerprint: "testing".into(),
        now: Timestamp::now(),
        dry_run: false,
        caller: Caller::Local,
        callers: KnownCallers::default(),
        recorder,
    }
}

/// Creates a cache of these objects without a cluster. [`Cache::store`] accepts changes: `wrote`, `gone`.
///
/// ```
/// # use oz_admission::testing;
/// use k8s_openapi::api::core::v1::Namespace;
///
/// let namespaces = testing::cache([Namespace::default()]);
/// assert_eq!(namespaces.all().map(|all| all.len()), Ok(1));
/// ```
pub fn cache<K>(objects: impl IntoIterator<Item = K>) -> Cache<K>
where
    K: Watched + Resource<DynamicType = ()>,
{
    Cache::new(Store::fixed(objects))
}

/// Creates a client without a cluster: it finds no object (404), and records its calls.
///
/// Like every client, it requires a Tokio runtime.
pub fn client() -> (kube::Client, RecordedCalls) {
    client_with(|_| None)
}

/// Creates a client without a cluster that records its calls. It returns 200 with the result of `answer`
/// for a call, and 404 without a result.
///
/// ```
/// # use oz_admission::testing;
/// # use serde_json::json;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), kube::Error> {
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::Api;
///
/// let (client, asked) = testing::client_with(|call| {
///     (call.path == "/api/v1/namespaces/shop").then(|| json!({"metadata": {"name": "shop"}}))
/// });
/// assert!(Api::<Namespace>::all(client.clone()).get("shop").await.is_ok());
/// assert!(Api::<Namespace>::all(client).get_opt("other").await?.is_none());
/// assert_eq!(asked.all().len(), 2);
/// # Ok(())
/// # }
/// ```
pub fn client_with(
    answer: impl Fn(&Call) -> Option<Value> + Send + Sync + 'static,
) -> (kube::Client, RecordedCalls) {
    let asked = RecordedCalls::default();
    let (written, answer) = (asked.clone(), Arc::new(answer));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (written, answer) = (written.clone(), answer.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes());
            let call = Call {
                method: head.method.to_string(),
                path: head.uri.to_string().trim_end_matches('?').to_owned(),
                body: serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default(),
            };
            let found = answer(&call);
            let mut calls = written.0.lock();
            calls.push(call);
            drop(calls);
            let status = if found.is_some() { 200 } else { 404 };
            let body = found.unwrap_or_else(|| {
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                    "reason": "NotFound", "message": "there is no cluster behind this client"})
            });
            let mut response = http::Response::new(Body::from(body.to_string().into_bytes()));
            *response.status_mut() =
                http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::NOT_FOUND);
            Ok::<_, Infallible>(response)
        }
    });
    (kube::Client::new(service, "default"), asked)
}
