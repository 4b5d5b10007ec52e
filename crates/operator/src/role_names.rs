//! The reserved names of Roles: their assignment to grants, and whether they may be used at all.
//! They may be used as long as the API server verifiably denies them to others, by an admission
//! policy that denies a Role with such a name and a binding to one unless the operator creates it
//! for a request.
//! See docs/adr/0026-names-that-are-reserved.md.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use oz_api::names;
use oz_core::access::kind::{Kind, RoleName};
use oz_core::access::role_names as core;
use oz_core::controller::Key;
use oz_core::kinds::AccessRequest as _;
use oz_core::policies::{Installation, Policy};
use oz_engine::Packed;
use oz_runtime::{Store, Task};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::kept::By;

/// The interval between two checks of the policy.
const INTERVAL: Duration = Duration::from_secs(60);
/// The validity of a successful check: one check may fail, or be late on a busy machine.
const COUNTS_FOR: Duration = Duration::from_secs(130);
/// The pause after a failure. At first the policy may just have been installed.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// The timeout for the response of the API server.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(10);
/// The name of the policy, after the name of the installation.
const POLICY: &str = "role-names";
/// The name that the check uses.
const CANARY: u16 = 0;

type IsOver = Box<dyn Fn(&str) -> Option<bool> + Send + Sync>;

/// The assignment of names to requests, for both kinds of access.
#[derive(Clone)]
pub(crate) struct RoleNames(Arc<Inner>);

struct Inner {
    /// The start of the measured time.
    began: Instant,
    /// The time of the last successful check of the policy.
    held: Mutex<Option<Instant>>,
    /// The names by namespace.
    names: Mutex<HashMap<String, core::RoleNames>>,
    /// Functions that return, for a UID, whether its request has ended; `None` if the request does
    /// not exist.
    requests: Mutex<Vec<IsOver>>,
}

impl Default for RoleNames {
    fn default() -> Self {
        Self(Arc::new(Inner {
            began: Instant::now(),
            held: Mutex::default(),
            names: Mutex::default(),
            requests: Mutex::default(),
        }))
    }
}

impl RoleNames {
    /// Releases names when requests of this store end or are deleted.
    pub(crate) fn watch_requests<K: Kind>(&self, requests: &Store<K::Request>) {
        let requests = requests.clone();
        let is_over = move |uid: &str| requests.is_marked(uid, By::Over.mark());
        self.0.requests.lock().push(Box::new(is_over));
    }

    /// Records the name of a request.
    pub(crate) fn note<K: Kind>(&self, request: &K::Request) {
        let Ok(request) = request.stored() else {
            return;
        };
        let told = request.status.and_then(|status| status.role_name.as_ref());
        if let Some(role) = told
            && !request.phase().is_terminal()
        {
            let Some(namespace) = request.metadata.namespace.clone() else {
                return;
            };
            let mut names = self.0.names.lock();
            names
                .entry(namespace)
                .or_default()
                .note(request.uid(), role);
        }
    }

    /// Returns a name for the Role of a request, if one is available.
    pub(crate) fn take<K: Kind>(&self, request: &K::Request, bound: &[String]) -> RoleName {
        if !self.hold() {
            return RoleName::default();
        }
        let Ok(request) = request.stored() else {
            return RoleName::default();
        };
        let Some(namespace) = request.metadata.namespace.clone() else {
            return RoleName::default();
        };
        if !bound.is_empty() {
            tracing::warn!(
                namespace,
                ?bound,
                "other bindings refer to Roles with names that are reserved for oz; these names \
                    are not used"
            );
        }
        let is_over = |uid: &str| {
            let requests = self.0.requests.lock();
            requests
                .iter()
                .find_map(|is_over| is_over(uid))
                .unwrap_or(true)
        };
        let mut names = self.0.names.lock();
        let names = names.entry(namespace).or_default();
        RoleName {
            number: names.take(request.uid(), self.0.began.elapsed(), bound, is_over),
            kept: true,
        }
    }

    /// Records that another object has the name of a Role. Returns whether another name would be
    /// tried.
    pub(crate) fn is_taken(&self, key: &Key) -> bool {
        let Some(name) = key.name.as_ref().filter(|_| key.kind == Role::kind(&())) else {
            return false;
        };
        let Some(namespace) = key.namespace.clone() else {
            return false;
        };
        let mut names = self.0.names.lock();
        let taken = names
            .entry(namespace)
            .or_default()
            .is_taken(name, self.0.began.elapsed());
        if taken {
            tracing::info!(%key, "a name that is reserved for a grant is in use; trying another");
        }
        taken
    }

    /// Checks whether the policy was recently in force.
    fn hold(&self) -> bool {
        self.0
            .held
            .lock()
            .is_some_and(|held| held.elapsed() < COUNTS_FOR)
    }

    /// Records the result of a check, and returns whether it differs from the previous one.
    fn held(&self, now: bool) -> bool {
        let before = self.hold();
        *self.0.held.lock() = now.then(Instant::now);
        before != now
    }
}

/// Returns the stored form of RoleBindings of other creators than oz: for those that bind to no
/// Role of a grant, only the role reference.
pub(crate) fn kept_of_others(binding: Packed) -> Packed {
    binding.changed(|binding| {
        let role = &binding.data["roleRef"];
        if !role["name"].as_str().is_some_and(names::is_grant_role) {
            binding.data = json!({ "roleRef": role });
            binding.metadata.labels = None;
            binding.metadata.annotations = None;
            binding.metadata.owner_references = None;
        }
    })
}

/// The task that checks every minute whether the policy is in force.
pub(crate) struct RoleNamesLock {
    pub(crate) client: Client,
    pub(crate) names: RoleNames,
    /// The namespace of the check: one in which the operator may write Roles.
    pub(crate) namespace: String,
    pub(crate) policy: Policy,
    /// 1 while the reserved names are used.
    pub(crate) used: Gauge,
}

impl RoleNamesLock {
    pub(crate) fn new(
        client: &Client,
        names: &RoleNames,
        namespace: &str,
        installation: &Installation,
    ) -> anyhow::Result<Self> {
        let policies =
            Policy::all(installation).context("failed to read the admission policies")?;
        let name = format!("{}-{POLICY}", installation.name);
        let policy = policies.into_iter().find(|policy| policy.name == name);
        Ok(Self {
            client: client.clone(),
            names: names.clone(),
            namespace: namespace.to_owned(),
            policy: policy.with_context(|| format!("there is no admission policy {name}"))?,
            used: Gauge::default(),
        })
    }

    /// Checks whether only the operator can write a Role with a reserved name, or a binding to one:
    /// the policy is unchanged since its installation, and denies such a write by the operator
    /// itself without a request.
    async fn look(&self) -> Result<(), NotInForce> {
        let name = &self.policy.name;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        let (policy, binding) =
            futures::future::try_join(policies.get_opt(name), bindings.get_opt(name))
                .await
                .map_err(NotInForce::Unread)?;
        let policy = policy.and_then(|one| one.spec);
        let binding = binding.and_then(|one| one.spec);
        if let Some(fault) = self.policy.fault(policy.as_ref(), binding.as_ref()) {
            return Err(NotInForce::Changed(fault));
        }
        let role = names::grant_role(CANARY);
        let group = Role::group(&());
        self.is_refused::<Role>(&json!({"metadata": {"name": role}, "rules": []}))
            .await?;
        self.is_refused::<RoleBinding>(&json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": role},
            "subjects": [],
        }))
        .await
    }

    /// Tries to create an object without a request, in a dry run.
    async fn is_refused<K>(&self, object: &serde_json::Value) -> Result<(), NotInForce>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let kind = K::kind(&()).into_owned();
        let object: K = match serde_json::from_value(object.clone()) {
            Ok(object) => object,
            Err(source) => return Err(NotInForce::Malformed { kind, source }),
        };
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let answer = tokio::time::timeout(DRY_RUN_TIMEOUT, api.create(&dry_run, &object)).await;
        let Ok(answer) = answer else {
            return Err(NotInForce::Late { kind });
        };
        let sign = format!("ValidatingAdmissionPolicy '{}'", self.policy.name);
        match answer {
            Ok(_) => Err(NotInForce::LetThrough { kind }),
            Err(error) if error.to_string().contains(&sign) => Ok(()),
            Err(source) => Err(NotInForce::Other { kind, source }),
        }
    }
}

/// The reason why the policy for reserved names is not in force.
#[derive(Debug, thiserror::Error)]
enum NotInForce {
    #[error("failed to read it: {0}")]
    Unread(kube::Error),
    /// It, or its binding, was changed after the installation.
    #[error("it {0}")]
    Changed(&'static str),
    #[error("failed to create a {kind}: {source}")]
    Malformed {
        kind: String,
        source: serde_json::Error,
    },
    #[error("no response to the creation of a {kind} in time")]
    Late { kind: String },
    #[error("a {kind} that is for no request is admitted")]
    LetThrough { kind: String },
    #[error("a {kind} is denied for another reason: {source}")]
    Other { kind: String, source: kube::Error },
}

impl Task for RoleNamesLock {
    async fn run(&self) {
        loop {
            let seen = self.look().await;
            let changed = self.names.held(seen.is_ok());
            self.used.set(i64::from(seen.is_ok()));
            match &seen {
                Ok(()) if changed => tracing::info!(
                    policy = self.policy.name,
                    "the admission policy is in force: Roles of grants get reserved names"
                ),
                Err(why) if changed => tracing::warn!(
                    policy = self.policy.name,
                    %why,
                    "the admission policy is not in force: Roles of grants get generated names"
                ),
                Err(why) => tracing::info!(policy = self.policy.name, %why, "not in force yet"),
                Ok(()) => {}
            }
            let pause = if seen.is_ok() { INTERVAL } else { RETRY_PAUSE };
            tokio::time::sleep(pause).await;
        }
    }
}
