//! Tests without a cluster: reviews as the API server would send them, and a client that writes down
//! what is asked of it.
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

/// One request to the API server, to be reviewed.
#[derive(Clone, Debug)]
pub struct Request(Value, Option<IpAddr>);

impl Request {
    /// The creation of an object, given with its `apiVersion` and `kind`.
    pub fn create(object: &Value) -> Self {
        Self::new(Operation::Create, Some(object), None)
    }

    /// A change from one object to another.
    pub fn update(old: &Value, new: &Value) -> Self {
        Self::new(Operation::Update, Some(new), Some(old))
    }

    /// The removal of an object.
    pub fn delete(object: &Value) -> Self {
        Self::new(Operation::Delete, None, Some(object))
    }

    /// A connection, such as `pods/exec`, with these options. Say to what with [`named`](Self::named) and
    /// [`resource`](Self::resource).
    pub fn connect(options: &Value) -> Self {
        Self::new(Operation::Connect, Some(options), None)
    }

    fn new(operation: Operation, object: Option<&Value>, old: Option<&Value>) -> Self {
        let known = object.or(old).unwrap_or(&Value::Null);
        let api_version = known["apiVersion"].as_str().unwrap_or("v1");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = known["kind"].as_str().unwrap_or_default();
        // As the plural is for most kinds; see `resource`.
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

    /// It comes by a connection from this address, without a certificate. By default it comes by none
    /// ([`Caller::Local`](crate::Caller::Local)).
    #[must_use]
    pub fn from_address(mut self, address: impl Into<IpAddr>) -> Self {
        self.1 = Some(address.into());
        self
    }

    /// Who asks; `test` by default.
    #[must_use]
    pub fn user(mut self, name: &str) -> Self {
        self.0["userInfo"]["username"] = json!(name);
        self
    }

    /// The groups of whoever asks.
    #[must_use]
    pub fn groups(mut self, groups: &[&str]) -> Self {
        self.0["userInfo"]["groups"] = json!(groups);
        self
    }

    /// What is claimed of whoever asks besides, such as `scopes`.
    #[must_use]
    pub fn extra(mut self, key: &str, values: &[&str]) -> Self {
        self.0["userInfo"]["extra"][key] = json!(values);
        self
    }

    /// The UID of whoever asks.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        self.0["userInfo"]["uid"] = json!(uid);
        self
    }

    /// What it is about, where that is not in the object: `namespace` is `""` for what is in none.
    #[must_use]
    pub fn named(mut self, namespace: &str, name: &str) -> Self {
        (self.0["namespace"], self.0["name"]) = (json!(namespace), json!(name));
        self
    }

    /// The plural of the resource, where it is not the kind with an `s`; and a subresource, if it is one.
    #[must_use]
    pub fn resource(mut self, plural: &str, subresource: Option<&str>) -> Self {
        self.0["resource"]["resource"] = json!(plural);
        self.0["subResource"] = json!(subresource);
        self
    }

    /// Nothing would be stored.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.0["dryRun"] = json!(true);
        self
    }

    /// The `AdmissionReview`, as bytes.
    pub fn body(&self) -> Vec<u8> {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": self.0,
        });
        review.to_string().into_bytes()
    }

    /// Has it reviewed by the hook at `path`, such as `/mutate/<name>`.
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

/// What a hook answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status: 200 for whatever was reviewed.
    pub status: u16,
    /// The `response` of the `AdmissionReview`.
    pub response: Value,
}

impl Answer {
    /// Whether the request goes on.
    pub fn allowed(&self) -> bool {
        self.response["allowed"] == json!(true)
    }

    /// The reason of a refusal, for programs.
    pub fn reason(&self) -> Option<&str> {
        self.response["status"]["reason"].as_str()
    }

    /// The message of a refusal, for people.
    pub fn message(&self) -> Option<&str> {
        self.response["status"]["message"].as_str()
    }

    /// What the user is warned of.
    pub fn warnings(&self) -> Vec<&str> {
        let warnings = self.response["warnings"].as_array();
        warnings
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// `object` as it is after the hook: with its patch, if it made one. A patch that cannot be applied
    /// leaves nothing.
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

/// A call of the API server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Call {
    /// `GET`, `POST`, ….
    pub method: String,
    /// Path and query.
    pub path: String,
    /// What was sent; null if nothing was.
    pub body: Value,
}

/// What has been asked of a [`client`]. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Asked(Arc<Mutex<Vec<Call>>>);

impl Asked {
    /// Every call, in order.
    pub fn all(&self) -> Vec<Call> {
        self.0.lock().clone()
    }
}

/// What a handler gets besides what it handles, for calling one by itself: a [`Watch`](crate::Watch), a
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

/// A cache without a cluster, which has these objects. [`Cache::store`] takes changes: `wrote`, `gone`.
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

/// A client without a cluster: it finds nothing (404), and writes down what it was asked.
///
/// It needs a Tokio runtime around it, as every client does.
pub fn client() -> (kube::Client, Asked) {
    client_with(|_| None)
}

/// The same, which answers what `answer` has for a call with 200, and all else with 404.
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
) -> (kube::Client, Asked) {
    let asked = Asked::default();
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
