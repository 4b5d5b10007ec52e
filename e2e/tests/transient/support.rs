//! The oz that these tests share, and a namespace with users who may request bindings.

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::PostParams;
use kube::{Api, Client};
use oz_api::{BindingStatus, Phase, TransientRoleBinding};
use oz_core::transient::Kind;
pub(crate) use oz_e2e::apply_as;
use oz_e2e::{NAMESPACE, Operator, Options, Webhook, apply, established, install};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, TestNamespace, eventually};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::composites::{
    self, EXAMPLE_POLICIES, HOST, Hooks, LENDING_POLICIES, OTHER_ACCOUNT, OTHER_POLICIES, POLICIES,
};

const GROUP: &str = "rbac.authorization.k8s.io";

/// oz with transient bindings switched on.
pub(crate) struct Oz {
    pub(crate) operator: Operator,
    pub(crate) webhook: Webhook,
    /// The functions of composites.
    pub(crate) hooks: Hooks,
    /// The address of the functions.
    pub(crate) functions: std::net::SocketAddr,
    /// The port of the program of an example.
    pub(crate) copies: u16,
}

static OZ: OnceCell<Oz> = OnceCell::const_new();

/// Returns the oz of this process, which the first test starts.
pub(crate) async fn oz() -> Result<&'static Oz> {
    let cluster = Cluster::shared().await?;
    OZ.get_or_try_init(async || {
        install(cluster).await?;
        for part in ["deploy/rbac/transient", "deploy/example-com"] {
            apply(cluster, part)?;
        }
        composites::install(cluster).await?;
        established(cluster)?;
        let hooks = Hooks::default();
        let functions = hooks.start()?;
        let copies = std::net::TcpListener::bind("127.0.0.1:0")?;
        let copies = copies.local_addr()?.port();
        people(&cluster.client("admin").await?).await?;
        let options = Options::default()
            .set(
                "transient.bindableRoles",
                r#"["view", "team-*", "*/team-*"]"#,
            )
            .set("transient.maxBindingWindow", "1h")
            .set("transient.serveExampleCom", true)
            .set("composites.enabled", true)
            .set(
                "composites.policyNamespaces",
                format!("[{POLICIES}, {OTHER_POLICIES}, {LENDING_POLICIES}, {EXAMPLE_POLICIES}]"),
            );
        let with_composites = options
            .clone()
            .set(
                "composites.accounts",
                json!([{"namespace": "oz-system", "name": OTHER_ACCOUNT}]),
            )
            .set(
                "composites.hookAddresses",
                json!({HOST: functions.to_string(), "copies.hooks": format!("127.0.0.1:{copies}")}),
            );
        let (webhook, operator) = tokio::try_join!(
            Webhook::start(cluster, &options),
            Operator::start(cluster, &with_composites)
        )?;
        Ok(Oz {
            operator,
            webhook,
            hooks,
            functions,
            copies,
        })
    })
    .await
}

/// Creates the rights of the users: leads may bind `view` and request transient bindings; interns may request them.
async fn people(admin: &Client) -> Result<()> {
    let bind = json!({
        "metadata": {"name": "leads-bind"},
        "rules": [{
            "apiGroups": [GROUP], "resources": ["clusterroles", "roles"], "verbs": ["bind"],
            "resourceNames": ["view", "cluster-admin", "team-powerful", "team-late"],
        }],
    });
    apply_as(&Api::<ClusterRole>::all(admin.clone()), bind).await?;
    let group = |name: &str| json!({"kind": "Group", "name": name, "apiGroup": GROUP});
    for (name, role, groups) in [
        ("leads-bind", "leads-bind", vec![group("leads")]),
        (
            "may-ask",
            "oz-request-bindings",
            vec![group("leads"), group("interns")],
        ),
    ] {
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": groups,
        });
        apply_as(&Api::<ClusterRoleBinding>::all(admin.clone()), binding).await?;
    }
    Ok(())
}

/// A namespace, and clients of users.
pub(crate) struct Fixture {
    pub(crate) cluster: &'static Cluster,
    pub(crate) admin: Client,
    pub(crate) lead: Client,
    pub(crate) namespace: TestNamespace,
}

impl Fixture {
    pub(crate) async fn set(prefix: &str) -> Result<Self> {
        oz().await?;
        let cluster = Cluster::shared().await?;
        cluster.issue_kubeconfig("lea", &["leads"])?;
        cluster.issue_kubeconfig("ina", &["interns"])?;
        Ok(Self {
            cluster,
            admin: cluster.client("admin").await?,
            lead: cluster.client("lea").await?,
            namespace: TestNamespace::create(cluster, prefix).await?,
        })
    }

    pub(crate) fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Returns the API of transient bindings for a lead.
    pub(crate) fn bindings(&self) -> Api<TransientRoleBinding> {
        Api::namespaced(self.lead.clone(), self.name())
    }

    /// Returns the API of the bindings that oz makes, for the administrator.
    pub(crate) fn made(&self) -> Api<RoleBinding> {
        Api::namespaced(self.admin.clone(), self.name())
    }

    /// Creates a transient binding as a lead.
    pub(crate) async fn create(&self, object: &Value) -> Result<TransientRoleBinding> {
        let object = serde_json::from_value(object.clone())?;
        Ok(self
            .bindings()
            .create(&PostParams::default(), &object)
            .await?)
    }

    /// Returns the message of the denial when a user creates it.
    pub(crate) async fn refused(&self, user: &str, object: &Value) -> Result<String> {
        let api =
            Api::<TransientRoleBinding>::namespaced(self.cluster.client(user).await?, self.name());
        let object = serde_json::from_value(object.clone())?;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => anyhow::bail!("{object:?} was let in"),
            Err(kube::Error::Api(status)) => Ok(status.message.clone()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn phase(&self, name: &str, phase: Phase) -> Result<BindingStatus> {
        phase_of(&self.bindings(), name, phase).await
    }

    /// Checks whether alison may list ConfigMaps here.
    pub(crate) fn alice_may(&self) -> Result<bool> {
        let output = self
            .cluster
            .kubectl("admin")
            .args([
                "auth",
                "can-i",
                "list",
                "configmaps",
                "--as=alison",
                "-n",
                self.name(),
            ])
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim() == "yes")
    }
}

/// Waits until an object is in this phase.
pub(crate) async fn phase_of<K>(api: &Api<K>, name: &str, phase: Phase) -> Result<BindingStatus>
where
    K: Kind,
{
    let mut last = None;
    eventually(
        &format!("{name} to be {phase}"),
        CONDITION_TIMEOUT,
        async || {
            let status = api.get(name).await?.status().cloned().unwrap_or_default();
            let found = (status.phase == phase).then(|| status.clone());
            last = Some(status);
            Ok(found)
        },
    )
    .await
    .with_context(|| format!("{last:?}"))
}

pub(crate) fn condition(status: &BindingStatus, type_: &str) -> String {
    let found = status.conditions.iter().find(|known| known.type_ == type_);
    found.map_or_else(String::new, |found| {
        format!("{} ({})", found.status, found.reason)
    })
}

/// Returns the instant this many seconds from now.
pub(crate) fn from_now(seconds: i64) -> String {
    (Timestamp::now() + SignedDuration::from_secs(seconds)).to_string()
}

/// Returns a binding of alison to `view` with this window.
pub(crate) fn binding(name: &str, window: &Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alison"}],
        },
    });
    for (field, value) in window.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object
}

/// Returns the operator's user name.
pub(crate) fn operator() -> String {
    format!("system:serviceaccount:{NAMESPACE}:oz-operator")
}
