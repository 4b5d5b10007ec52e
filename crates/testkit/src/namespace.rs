//! A namespace for each test, so that tests can share a cluster, and a dump of its objects when the
//! test fails.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, Client, Discovery, discovery::verbs};
use serde_json::json;

use crate::Cluster;
use crate::wait::eventually;

/// The kinds that a dump contains in addition to custom resources.
const DUMPED: [(&str, &str); 8] = [
    ("", "Pod"),
    ("", "Event"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("networking.k8s.io", "NetworkPolicy"),
];

/// A namespace with a name that no other test has. It is deleted on drop, in the background; if the
/// test is panicking, its objects are written to standard error first.
///
/// The drop cannot distinguish a test that ends with an error from a success: [`with_namespace`]
/// detects both errors and panics.
#[derive(Debug)]
pub struct TestNamespace {
    name: String,
    admin: PathBuf,
    dumped: bool,
}

impl TestNamespace {
    /// Creates the namespace `<prefix>-<unique>` and waits for its default service account, which
    /// is required to create pods.
    ///
    /// # Errors
    ///
    /// Fails when the server refuses it.
    pub async fn create(cluster: &Cluster, prefix: &str) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{}-{number}", std::process::id());
        let client = cluster.client("admin").await?;
        let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("failed to create Namespace {name}"))?;
        let this = Self {
            name,
            admin: cluster.kubeconfig("admin"),
            dumped: false,
        };
        let accounts = Api::<ServiceAccount>::namespaced(client, &this.name);
        let what = format!("the default service account of {}", this.name);
        eventually(&what, std::time::Duration::from_secs(60), async || {
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        Ok(this)
    }

    /// Returns the namespace's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        let dump = std::thread::panicking() && !self.dumped;
        let (name, admin) = (self.name.clone(), self.admin.clone());
        // This drop may block the test's runtime: it uses a separate thread and runtime.
        let end = std::thread::spawn(move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let client = crate::access::client(&admin).await?;
                if dump {
                    write_dump(&client, &name).await;
                }
                Api::<Namespace>::all(client)
                    .delete(&name, &DeleteParams::default())
                    .await?;
                Ok(())
            })
        });
        // A failed deletion changes no test's result.
        let _ = end.join();
    }
}

/// Runs `test` in a separate [`TestNamespace`]. If it panics or returns an error, the objects of
/// the namespace are written to standard error.
///
/// # Errors
///
/// Fails when the namespace cannot be created, and as `test` does.
pub async fn with_namespace<T>(
    cluster: &Cluster,
    prefix: &str,
    test: impl AsyncFnOnce(&TestNamespace) -> Result<T>,
) -> Result<T> {
    let mut namespace = TestNamespace::create(cluster, prefix).await?;
    let outcome = AssertUnwindSafe(test(&namespace)).catch_unwind().await;
    if !matches!(outcome, Ok(Ok(_))) {
        namespace.dumped = true;
        if let Ok(client) = cluster.client("admin").await {
            write_dump(&client, namespace.name()).await;
        }
    }
    match outcome {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

async fn write_dump(client: &Client, namespace: &str) {
    let dump = dump_objects(client, namespace).await;
    let text = dump.map_or_else(|error| format!("{error:#}"), |lines| lines.join("\n"));
    crate::compile::say(&format!("objects in namespace {namespace}:\n{text}"));
}

/// Returns one line of JSON for each pod, workload, role, role binding, network policy, event and
/// custom resource in `namespace`, and each cluster-scoped custom resource.
///
/// # Errors
///
/// Fails when the kinds of the server cannot be read.
pub async fn dump_objects(client: &Client, namespace: &str) -> Result<Vec<String>> {
    let discovery = Discovery::new(client.clone())
        .run_aggregated()
        .await
        .context("failed to ask the server for its kinds")?;
    let mut lines = Vec::new();
    for group in discovery.groups() {
        // Kubernetes' own groups have no dot or end in k8s.io.
        let custom = group.name().contains('.') && !group.name().ends_with(".k8s.io");
        for (resource, capabilities) in group.recommended_resources() {
            let kind = (resource.group.as_str(), resource.kind.as_str());
            let wanted = custom || DUMPED.contains(&kind);
            if wanted && capabilities.supports_operation(verbs::LIST) {
                let namespaced = capabilities.scope == kube::discovery::Scope::Namespaced;
                lines.extend(dump_kind(client, namespaced.then_some(namespace), &resource).await);
            }
        }
    }
    Ok(lines)
}

async fn dump_kind(
    client: &Client,
    namespace: Option<&str>,
    resource: &ApiResource,
) -> Vec<String> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    let objects = match api.list(&ListParams::default()).await {
        Ok(objects) => objects.items,
        Err(error) => return vec![format!("failed to list {}: {error}", resource.plural)],
    };
    let line = |mut object: DynamicObject| {
        object.metadata.managed_fields = None;
        let json = serde_json::to_string(&object).unwrap_or_default();
        format!("{} {json}", resource.kind)
    };
    objects.into_iter().map(line).collect()
}
