//! The hooks as the API server calls them, without sockets: reviews go in as JSON and come out as
//! JSON. A fake API server and a readable sink of audit records are behind them.

mod access_policy;
mod approval;
mod audit_event;
mod binding;
mod binding_approval;
mod caller;
mod composite;
mod connect;
mod copies;
mod cost;
mod creation;
mod deletion;
mod extra;
mod harness;
mod limits;
mod lock;
mod policy;
mod record;
mod registration;
mod request_create;
mod request_update;
mod review;
mod rule_order;
mod server;
mod size;
mod stamp;
mod stamp_parent;
mod template;

use std::fmt::Debug;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, Resource};
use oz_admission::{Endpoint, Manager, RegistrationMode, Rules, testing};
use oz_api::labels;
use oz_audit::{Sink, TOO_MANY_CONNECTIONS};
use oz_config::RequestLimits;
use oz_core::access::extra::Extra;
use oz_core::access::grant::Grant;
use oz_core::access::seal::Keys;
use oz_core::controller::Failure;
use oz_core::transient::{BindableRoles, Policy};
use oz_runtime::{Runtime, RuntimeError, Selection, Store, guarded_store};
use oz_trail::{Record, is_recorded_each};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::attributed::Attributed;
use crate::connect::{Connections, Grants};
use crate::guard_copies::Copies;
use crate::hooks::{Grounds, hooks};
use crate::limits::RequestCounter;
use server::Server;

const OPERATOR: &str = "system:serviceaccount:oz-system:oz-operator";
const BROKER: &str = "system:serviceaccount:oz-system:oz-broker";
const GATE: &str = "system:serviceaccount:oz-system:oz-gate";
const WEBHOOK: &str = "system:serviceaccount:oz-system:oz-webhook";
const UID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn keys() -> Keys {
    Keys::with_every_owner([[7; 32]])
}

/// Returns a policy with `view` by name, `team-*` by pattern, for two hours.
fn policy() -> Arc<Policy> {
    let roles = ["view", "cluster-admin", "team-*", "shop/deployer"];
    Arc::new(Policy {
        roles: BindableRoles(roles.map(|role| role.parse().unwrap()).into()),
        longest: jiff::SignedDuration::from_hours(2),
        longest_in: [("prod".to_owned(), jiff::SignedDuration::from_mins(10))].into(),
        longest_lead: jiff::SignedDuration::from_hours(168),
        most_waiting: 20,
        own_namespace: "oz-system".to_owned(),
    })
}

/// A webhook under test.
struct Webhook {
    manager: Manager,
    records: Arc<Records>,
    server: Arc<Server>,
    grants: Grants,
    registry: Registry,
    _watches: AbortOnDropHandle<Result<(), RuntimeError>>,
}

/// The audit records written so far.
#[derive(Default)]
struct Records {
    written: Mutex<Vec<Record>>,
    broken: bool,
    /// True if every connection is beyond the quota of its user.
    exceeded: bool,
    /// `webhook.auditRequired: false`.
    optional: bool,
}

impl Sink for Records {
    fn record<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            if self.broken {
                return Err(Failure::transient("RecordFailed", "the disk is full"));
            }
            if self.exceeded && is_recorded_each(record) {
                return Err(Failure::transient(TOO_MANY_CONNECTIONS, "wait"));
            }
            self.written.lock().push(record.clone());
            Ok(())
        }
        .boxed()
    }
}

/// Returns no rules for parents: a test calls the path of their hook.
fn no_parents() -> Rules {
    let rules = Rules::default();
    rules.set([]);
    rules
}

/// Returns a store that a watch feeds.
fn fed<K>(client: &Client) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, _, feed) = guarded_store(client, None, Selection::default());
    tokio::spawn(feed);
    store
}

impl Webhook {
    fn new(server: Server) -> Self {
        Self::recording(server, Records::default())
    }

    fn recording(server: Server, records: Records) -> Self {
        let (server, records) = (Arc::new(server), Arc::new(records));
        let client = server.client();
        let exec = fed(&client);
        let (pod, ..) = guarded_store(&client, None, Selection::default());
        let grants = Grants::new(keys(), exec, pod);
        let mut registry = Registry::default();
        let sink = Attributed::new(records.clone());
        sink.register(&mut registry);
        let sink: Arc<dyn Sink> = Arc::new(sink);
        let grounds = Grounds {
            words: Arc::default(),
            copies: Copies::new(grants.clone(), sink.clone()),
            connections: Connections::new(
                grants.clone(),
                sink.clone(),
                !records.optional,
                keys(),
                SignedDuration::from_hours(1),
            ),
            counter: RequestCounter::new(RequestLimits::default(), grants.clone()),
            break_glass: vec!["system:masters".into(), "sre".into()],
            keys: keys(),
            records: sink,
            namespace: "oz-system".into(),
            served: server.served.clone().into(),
            operator: OPERATOR.into(),
            extra_keys: ["example.org/acr", "example.org/amr"]
                .map(|key| key.parse().unwrap())
                .into_iter()
                .collect(),
            policy: policy(),
            serve_example_com: true,
            composite_account: Some("oz-system/oz-composites".parse().unwrap()),
            parents: vec![("compositecontroller", no_parents())],
            policy_namespaces: vec!["policies".to_owned()],
            harness: true,
            webhook: WEBHOOK.into(),
            broker: BROKER.into(),
            gate: GATE.into(),
        };
        grounds.connections.register(&mut registry);
        grounds.copies.register(&mut registry);
        let mut builder = Manager::builder(client, oz_api::names::REGISTRATION)
            .namespace("oz-system")
            .endpoint(Endpoint::Url("https://127.0.0.1:9443".to_owned()))
            .registration(RegistrationMode::Never)
            .clock(now);
        let runtime = Runtime::new("oz", server.client(), now);
        for hook in hooks(&grounds, runtime.feeds()) {
            builder = builder.hook(hook);
        }
        let watches = tokio::spawn(runtime.run(CancellationToken::new()));
        Self {
            manager: builder.build().unwrap(),
            records,
            server,
            grants,
            registry,
            _watches: AbortOnDropHandle::new(watches),
        }
    }

    /// Adds a grant to the index and to the API server.
    fn grant(&self, grant: Grant) {
        self.server.has_role(role(&grant));
        self.grants.insert(grant);
    }

    /// Returns the audit records written so far.
    fn recorded(&self) -> Vec<Record> {
        self.records.written.lock().clone()
    }

    /// Returns the response of one hook, `mutate` or `validate`.
    async fn review(&self, verb: &str, attempt: &Attempt) -> Answer {
        self.asked(verb, attempt).await.into()
    }

    async fn asked(&self, verb: &str, attempt: &Attempt) -> testing::Answer {
        let kind = attempt.kind.to_lowercase();
        let (group, version) = attempt.group();
        let path = format!("/{verb}-{}-{version}-{kind}", group.replace('.', "-"));
        let answer = attempt.review().send(&self.manager, &path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    }

    async fn validate(&self, attempt: &Attempt) -> Answer {
        self.review("validate", attempt).await
    }

    /// Returns the object after the stamp hook.
    async fn stamped(&self, attempt: &Attempt) -> Value {
        let answer = self.asked("mutate", attempt).await;
        assert!(answer.allowed(), "{answer:?}");
        answer.object(attempt.object.as_ref().unwrap())
    }

    /// Handles a new request as the API server does: calls the stamp hook, sets a name, a UID and a
    /// creation time, and calls the validating hook.
    async fn create(&self, attempt: &Attempt) -> Answer {
        let object = registered(self.stamped(attempt).await);
        self.validate(&Attempt {
            object: Some(object),
            ..attempt.clone()
        })
        .await
    }
}

/// Returns the Role that carries a grant.
fn role(grant: &Grant) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {
            "name": grant.object_name(), "namespace": grant.request.namespace,
            "labels": { labels::OWNER_UID: grant.request.uid },
            "annotations": { labels::GRANT: grant.seal(&keys()).unwrap() },
        },
    })
}

/// Returns the object with the fields that the API server adds between mutation and validation.
fn registered(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    if let Some(prefix) = metadata.get("generateName").and_then(Value::as_str) {
        let name = format!("{prefix}x7k2p");
        metadata.insert("name".to_owned(), name.into());
    }
    metadata.insert("uid".to_owned(), UID.into());
    metadata.insert(
        "creationTimestamp".to_owned(),
        "2026-01-01T12:00:00Z".into(),
    );
    object
}

/// A call of the API, about which the API server asks the webhook.
#[derive(Clone)]
struct Attempt {
    user: String,
    groups: Vec<String>,
    extra: Extra,
    operation: &'static str,
    kind: &'static str,
    subresource: &'static str,
    object: Option<Value>,
    old: Option<Value>,
    dry_run: bool,
}

impl Attempt {
    fn create(user: &str, groups: &[&str], object: Value) -> Self {
        let kinds = [
            "ExecAccessRequest",
            "PodAccessRequest",
            "ExecAccessTemplate",
            "PodAccessTemplate",
            "TransientRoleBinding",
            "TransientClusterRoleBinding",
            "AccessRequestApproval",
            "AccessLock",
            "AccessPolicy",
            "AccessReview",
            "AuditEvent",
            "HarnessRun",
            "Workspace",
            "BrokerPolicy",
            "HarnessTemplate",
            "ClusterHarnessTemplate",
        ];
        Self {
            user: user.to_owned(),
            groups: groups.iter().map(ToString::to_string).collect(),
            extra: Extra::new(),
            operation: "CREATE",
            kind: kinds
                .into_iter()
                .find(|kind| object["kind"] == **kind)
                .unwrap(),
            subresource: "",
            object: Some(object),
            old: None,
            dry_run: false,
        }
    }

    fn update(user: &str, old: &Value, object: Value) -> Self {
        let create = Self::create(user, &["system:authenticated"], object);
        Self {
            operation: "UPDATE",
            old: Some(old.clone()),
            ..create
        }
    }

    /// Adds an extra attribute of the user.
    fn with_extra(mut self, key: &str, values: &[&str]) -> Self {
        let values = values.iter().map(ToString::to_string).collect();
        self.extra.insert(key.to_owned(), values);
        self
    }

    fn status(self) -> Self {
        Self {
            subresource: "status",
            ..self
        }
    }

    fn dry(self) -> Self {
        Self {
            dry_run: true,
            ..self
        }
    }

    /// Returns the group and version of the object.
    fn group(&self) -> (String, String) {
        let object = self.object.as_ref().or(self.old.as_ref()).unwrap();
        let (group, version) = object["apiVersion"]
            .as_str()
            .unwrap()
            .split_once('/')
            .unwrap();
        (group.to_owned(), version.to_owned())
    }

    fn review(&self) -> testing::Request {
        let request = match (self.operation, &self.old, &self.object) {
            ("DELETE", Some(old), _) => testing::Request::delete(old),
            ("UPDATE", Some(old), Some(object)) => testing::Request::update(old, object),
            (_, _, object) => testing::Request::create(object.as_ref().unwrap()),
        };
        let groups: Vec<_> = self.groups.iter().map(String::as_str).collect();
        let request = request
            .user(&self.user)
            .groups(&groups)
            .resource(&plural(self.kind), Some(self.subresource));
        let request = self.extra.iter().fold(request, |request, (key, values)| {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            request.extra(key, &values)
        });
        if self.dry_run {
            request.dry_run()
        } else {
            request
        }
    }
}

/// Returns the resource of a kind.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    }
}

/// The response to the API server.
#[derive(Debug, Deserialize)]
struct Answer {
    allowed: bool,
    #[serde(default)]
    status: Status,
    #[serde(default)]
    warnings: Vec<String>,
    patch: Option<k8s_openapi::ByteString>,
}

impl From<testing::Answer> for Answer {
    fn from(answer: testing::Answer) -> Self {
        serde_json::from_value(answer.response).unwrap()
    }
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    code: u16,
    reason: String,
    message: String,
    #[serde(default)]
    details: Value,
}

impl Answer {
    /// Returns the reason of a denial; `None` if the request was admitted.
    fn refusal(&self) -> Option<&str> {
        (!self.allowed).then_some(self.status.reason.as_str())
    }

    /// Returns the fields that caused the denial.
    fn fields(&self) -> Vec<&str> {
        let causes = self.status.details["causes"].as_array();
        causes
            .into_iter()
            .flatten()
            .filter_map(|cause| cause["field"].as_str())
            .collect()
    }
}

/// Returns an exec template in namespace `shop` for the group devs, at most two hours.
fn exec_template(name: &str) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "ExecAccessTemplate",
        "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-of-{name}") },
        "spec": {
            "accessConfig": {
                "allowedGroups": ["devs"], "defaultDuration": "30m", "maxDuration": "2h",
            },
            "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        },
    })
}

/// Returns a pod template with the same terms.
fn pod_template(name: &str) -> Value {
    let mut template = exec_template(name);
    template["kind"] = "PodAccessTemplate".into();
    template
}

/// Returns a request by a template, in namespace `shop`.
fn request(kind: &str, template: &str) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": kind,
        "metadata": { "name": "mine", "namespace": "shop" },
        "spec": { "templateName": template },
    })
}

/// Returns owner references to an object that other users can delete.
fn owners() -> Value {
    json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "soon-gone", "uid": "c-1" }])
}

/// Returns `value` with the field at `pointer` replaced, or created if it does not exist.
fn with(mut value: Value, pointer: &str, new: impl Into<Value>) -> Value {
    let mut place = &mut value;
    for key in pointer.trim_start_matches('/').split('/') {
        place = &mut place[key.replace("~1", "/")];
    }
    *place = new.into();
    value
}
