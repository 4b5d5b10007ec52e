//! A fake API server for the calls of the hooks: lists of templates and SubjectAccessReviews.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The kinds that are read by name, in addition to pods and Roles.
const KINDS: [(&str, &str); 4] = [
    ("/execaccessrequests/", "ExecAccessRequest"),
    ("/podaccessrequests/", "PodAccessRequest"),
    ("/transientrolebindings/", "TransientRoleBinding"),
    (
        "/transientclusterrolebindings/",
        "TransientClusterRoleBinding",
    ),
];

/// The existing objects, and the denied rights.
#[derive(Default)]
pub(super) struct Server {
    /// The templates of both kinds.
    pub(super) templates: Vec<Value>,
    /// The cluster roles: their names and rules.
    pub(super) roles: Vec<(&'static str, Value)>,
    /// The Roles by path, and the number of reads of pods or Roles.
    pub(super) granted: Mutex<BTreeMap<String, Value>>,
    pub(super) reads: AtomicUsize,
    /// True if reads of pods and Roles fail.
    pub(super) unreadable: std::sync::atomic::AtomicBool,
    /// The rights that no user has, as in `create pods/exec`.
    pub(super) forbids: Vec<&'static str>,
    /// The namespaces that the operator serves; empty for all.
    pub(super) served: Vec<String>,
    /// True if it never responds.
    pub(super) silent: bool,
    /// True if it never responds to a SubjectAccessReview.
    pub(super) undecided: bool,
    /// The number of published events.
    pub(super) events: AtomicUsize,
    /// The specs of the received SubjectAccessReviews.
    pub(super) asked: Mutex<Vec<Value>>,
}

/// Returns an object with a UID, as the API server stores it.
fn stored(mut object: Value) -> Value {
    if object["metadata"]["uid"].is_null() {
        object["metadata"]["uid"] = format!("uid-of-{}", object["metadata"]["name"]).into();
    }
    object
}

impl Server {
    pub(super) fn with(templates: impl IntoIterator<Item = Value>) -> Self {
        Self {
            templates: templates.into_iter().collect(),
            ..Self::default()
        }
    }

    pub(super) fn client(self: &Arc<Self>) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (path, query) = (
            request.uri().path(),
            request.uri().query().unwrap_or_default(),
        );
        if self.silent || query.contains("watch=true") {
            return std::future::pending().await;
        }
        let list = |kind: &str| {
            let items: Vec<Value> = self
                .templates
                .iter()
                .filter(|template| template["kind"] == kind)
                .cloned()
                .map(stored)
                .collect();
            json!({ "metadata": { "resourceVersion": "1" }, "items": items })
        };
        let body = match path {
            "/apis/crds.wizardofoz.co/v1alpha1/execaccesstemplates" => list("ExecAccessTemplate"),
            "/apis/crds.wizardofoz.co/v1alpha1/podaccesstemplates" => list("PodAccessTemplate"),
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" if self.undecided => {
                return std::future::pending().await;
            }
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let body = request.into_body().collect_bytes().await.unwrap();
                self.judge(serde_json::from_slice(&body).unwrap())
            }
            "/apis/crds.wizardofoz.co/v1alpha1/execaccessrequests" => list("ExecAccessRequest"),
            "/apis/crds.wizardofoz.co/v1alpha1/podaccessrequests" => list("PodAccessRequest"),
            "/apis/crds.wizardofoz.co/v1alpha1/namespaces/shop/accessrequestapprovals"
            | "/apis/crds.wizardofoz.co/v1alpha1/namespaces/oz-system/accessrequestapprovals" => {
                list("AccessRequestApproval")
            }
            "/apis/crds.wizardofoz.co/v1alpha1/transientrolebindings" => {
                list("TransientRoleBinding")
            }
            "/apis/crds.wizardofoz.co/v1alpha1/transientclusterrolebindings" => {
                list("TransientClusterRoleBinding")
            }
            "/apis/example.com/v1/transientrolebindings"
            | "/apis/example.com/v1/transientclusterrolebindings" => list("none"),
            "/apis/crds.wizardofoz.co/v1alpha1/accesslocks" => list("AccessLock"),
            "/apis/crds.wizardofoz.co/v1alpha1/accesspolicies" => list("AccessPolicy"),
            "/api/v1/namespaces/shop" => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                json!({ "metadata": { "name": "shop", "labels": { "env": "prod" } } })
            }
            "/apis/crds.wizardofoz.co/v1alpha1/accessreviews" => list("AccessReview"),
            "/apis/paddock.dev/v1alpha1/harnesstemplates" => list("HarnessTemplate"),
            "/apis/paddock.dev/v1alpha1/clusterharnesstemplates" => list("ClusterHarnessTemplate"),
            "/apis/paddock.dev/v1alpha1/brokerpolicies" => list("BrokerPolicy"),
            "/apis/paddock.dev/v1alpha1/workspaces" => list("Workspace"),
            path if path.contains("/events") => {
                self.events.fetch_add(1, Ordering::Relaxed);
                json!({})
            }
            path if path.starts_with("/api/v1/namespaces/")
                || path.contains("/roles/")
                || KINDS.iter().any(|(plural, _)| path.contains(plural)) =>
            {
                return self.read(path);
            }
            path => match path.strip_prefix("/apis/rbac.authorization.k8s.io/v1/clusterroles/") {
                Some(name) => return self.role(name),
                None => panic!("nobody should ask for {path}"),
            },
        };
        Response::new(Body::from(serde_json::to_vec(&body).unwrap()))
    }

    pub(super) fn has_role(&self, role: Value) {
        let name = role["metadata"]["name"].as_str().unwrap().to_owned();
        self.granted.lock().insert(name, role);
    }

    /// Returns a pod, a Role or a request by name.
    fn read(&self, path: &str) -> Response<Body> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.unreadable.load(Ordering::Relaxed) {
            return answer(500, &failure(500, "InternalError"));
        }
        let name = path.rsplit('/').next().unwrap();
        let granted = self.granted.lock();
        let mut kinds = KINDS.iter();
        let kind = kinds.find(|(plural, _)| path.contains(plural));
        let kind = kind.map_or("Pod", |(_, kind)| kind);
        let named = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        let found = if path.contains("/roles/") {
            granted.get(name)
        } else {
            self.templates.iter().find(named)
        };
        match found {
            Some(object) => answer(200, object),
            None => answer(404, &failure(404, "NotFound")),
        }
    }

    fn role(&self, name: &str) -> Response<Body> {
        let found = self.roles.iter().find(|(known, _)| *known == name);
        match found {
            Some((_, rules)) => answer(
                200,
                &json!({ "metadata": { "name": name }, "rules": rules }),
            ),
            None => answer(404, &failure(404, "NotFound")),
        }
    }

    fn judge(&self, mut review: Value) -> Value {
        self.asked.lock().push(review["spec"].clone());
        let right = right(&review["spec"]);
        review["status"] = json!({ "allowed": !self.forbids.contains(&right.as_str()) });
        review
    }
}

fn failure(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "status": "Failure", "reason": reason, "code": code })
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    let body = Body::from(serde_json::to_vec(body).unwrap());
    Response::builder().status(code).body(body).unwrap()
}

/// Returns the right in the form `create pods/exec`.
pub(super) fn right(spec: &Value) -> String {
    let attributes = &spec["resourceAttributes"];
    let text = |key: &str| attributes[key].as_str().unwrap_or_default().to_owned();
    let resource = match text("subresource") {
        none if none.is_empty() => text("resource"),
        subresource => format!("{}/{subresource}", text("resource")),
    };
    format!("{} {resource}", text("verb"))
}
