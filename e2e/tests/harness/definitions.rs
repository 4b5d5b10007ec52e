//! What the status of templates and policies says. Their names in the cluster begin with that of the namespace:
//! other tests have cluster templates too.

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use oz_api::conditions::find;
use oz_api::harness::{BrokerPolicy, ClusterHarnessTemplate, HarnessTemplate, Workspace};
use oz_e2e::NAMESPACE;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, TestNamespace, eventually};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::{apply_as, oz};

/// The namespace of the objects that were stored before any hook.
const STORED: &str = "stored-definitions";
const GROUP: &str = "paddock.dev";

/// Stores invalid templates and policies, as a user could while no hook was registered: a part of them is denied only
/// by hooks.
pub(crate) async fn store_what_hooks_refuse(cluster: &Cluster) -> Result<()> {
    let admin = cluster.client("admin").await?;
    let namespace = json!({"metadata": {"name": STORED}});
    apply_as(&Api::<Namespace>::all(admin.clone()), namespace).await?;
    let overlay = json!({"podTemplateOverlay": {"spec": {"hostNetwork": true}}});
    let bases = Api::<ClusterHarnessTemplate>::all(admin.clone());
    apply_as(&bases, template("stored-base", overlay.clone())).await?;

    let templates = Api::<HarnessTemplate>::namespaced(admin.clone(), STORED);
    let many = json!({
        "defaults": {"timeout": "0s"},
        "workspace": {"mountPath": "/etc"},
        "podTemplateOverlay": {"spec": {"hostPID": true}},
    });
    apply_as(&templates, template("wrong", many)).await?;
    apply_as(&templates, template("overlay", overlay)).await?;
    apply_as(&templates, inheriting("heir", "stored-base")).await?;

    let policies = Api::<BrokerPolicy>::namespaced(admin, STORED);
    let egress = json!({"appliesToTemplates": ["["], "grants": {"egress": [{"host": "10.0.0.1"}]}});
    apply_as(&policies, policy("wrong", egress)).await?;

    let repository =
        json!({"url": "https://git.test/a.git", "credentialsSecretRef": {"name": "key"}});
    let spec = json!({"storage": {"size": "1Gi"}, "seed": {"repos": [repository]}});
    let unstamped = json!({"metadata": {"name": "unstamped"}, "spec": spec});
    apply_as(&stored::<Workspace>(cluster).await?, unstamped).await?;
    Ok(())
}

/// Objects that were stored past every hook and policy.
pub(crate) async fn stored<K>(cluster: &Cluster) -> Result<Api<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Ok(Api::namespaced(cluster.client("admin").await?, STORED))
}

/// Returns a template without a base, with additional fields.
fn template(name: &str, fields: Value) -> Value {
    let mut spec =
        json!({"harness": "echo", "image": "registry.test/echo:1", "command": ["/echo"]});
    extend(&mut spec, fields);
    json!({"metadata": {"name": name}, "spec": spec})
}

fn inheriting(name: &str, base: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"baseTemplateRef": {"name": base}}})
}

fn policy(name: &str, fields: Value) -> Value {
    let mut spec = json!({"appliesToTemplates": ["echo*"]});
    extend(&mut spec, fields);
    json!({"metadata": {"name": name}, "spec": spec})
}

fn discovery(ends: Timestamp) -> Value {
    let reason = "to find out what the harness connects to";
    json!({"egressDiscovery": {"accepted": true, "reason": reason, "expiresAt": ends.to_string()}})
}

fn extend(spec: &mut Value, fields: Value) {
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
}

/// An object with conditions.
trait Conditioned:
    Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned
{
    fn conditions(&self) -> &[Condition];
    fn observed(&self) -> Option<i64>;
}

macro_rules! conditioned {
    ($($kind:ty),*) => {$(
        impl Conditioned for $kind {
            fn conditions(&self) -> &[Condition] {
                let status = self.status.as_ref();
                status.map_or(&[], |status| status.conditions.as_slice())
            }

            fn observed(&self) -> Option<i64> {
                self.status.as_ref()?.observed_generation
            }
        }
    )*};
}

conditioned!(HarnessTemplate, ClusterHarnessTemplate, BrokerPolicy);

/// Waits until a condition of an object, as it is now, says this: its status and its reason.
async fn until<K: Conditioned>(
    api: &Api<K>,
    name: &str,
    type_: &str,
    said: &str,
) -> Result<(K, String)> {
    let mut last = None;
    eventually(
        &format!("{type_} of {name} to be {said}"),
        CONDITION_TIMEOUT,
        async || {
            let object = api.get(name).await?;
            last = Some(object.conditions().to_vec());
            if object.observed() != object.meta().generation {
                return Ok(None);
            }
            let Some(found) = find(object.conditions(), type_) else {
                return Ok(None);
            };
            let is_so = format!("{} {}", found.status, found.reason) == said;
            let message = found.message.clone();
            Ok(is_so.then_some((object, message)))
        },
    )
    .await
    .with_context(|| format!("{last:?}"))
}

/// A namespace, and names in the cluster.
struct Fixture {
    cluster: &'static Cluster,
    admin: Client,
    namespace: TestNamespace,
}

impl Fixture {
    async fn set(prefix: &str) -> Result<Self> {
        oz().await?;
        let cluster = Cluster::shared().await?;
        Ok(Self {
            cluster,
            admin: cluster.client("admin").await?,
            namespace: TestNamespace::create(cluster, prefix).await?,
        })
    }

    fn base(&self) -> String {
        format!("{}-base", self.namespace.name())
    }

    fn bases(&self) -> Api<ClusterHarnessTemplate> {
        Api::all(self.admin.clone())
    }

    fn templates(&self) -> Api<HarnessTemplate> {
        Api::namespaced(self.admin.clone(), self.namespace.name())
    }

    fn policies(&self) -> Api<BrokerPolicy> {
        Api::namespaced(self.admin.clone(), self.namespace.name())
    }

    /// Waits until these are the events about an object, by their names.
    async fn events(&self, name: &str, wanted: &[&str]) -> Result<()> {
        let events = Api::<Event>::namespaced(self.admin.clone(), self.namespace.name());
        let what = format!("the events {wanted:?} about {name}");
        let mut last = Vec::new();
        eventually(&what, CONDITION_TIMEOUT, async || {
            let found = events.list(&ListParams::default()).await?.items.into_iter();
            let about = |event: &Event| {
                let regarding = event.regarding.as_ref();
                regarding.and_then(|it| it.name.as_deref()) == Some(name)
            };
            let mut reasons: Vec<String> = found
                .filter(about)
                .filter_map(|event| event.reason)
                .collect();
            reasons.sort();
            // The very same again is counted up, or one more.
            reasons.dedup();
            last.clone_from(&reasons);
            Ok((reasons == wanted).then_some(()))
        })
        .await
        .with_context(|| format!("{last:?}"))
    }
}

#[tokio::test]
async fn faults_of_stored_templates_and_policies_are_reported_in_status() -> Result<()> {
    oz().await?;
    let admin = Cluster::shared().await?.client("admin").await?;
    let bases = Api::<ClusterHarnessTemplate>::all(admin.clone());
    let (_, said) = until(&bases, "stored-base", "Ready", "False OverlayInvalid").await?;
    let overlay = "spec.podTemplateOverlay.spec.hostNetwork: cannot be set by a template";
    assert_eq!(said, overlay);

    let templates = Api::<HarnessTemplate>::namespaced(admin.clone(), STORED);
    let (_, said) = until(&templates, "wrong", "Ready", "False Invalid").await?;
    for field in [
        "spec.defaults.timeout: ",
        "spec.workspace.mountPath: ",
        "spec.podTemplateOverlay.spec.hostPID: ",
    ] {
        assert!(said.contains(field), "{field} is not in {said}");
    }
    let (_, said) = until(&templates, "overlay", "Ready", "False OverlayInvalid").await?;
    assert_eq!(said, overlay);
    let (_, said) = until(&templates, "heir", "Ready", "False BaseInvalid").await?;
    assert!(
        said.contains("stored-base") && said.contains(overlay),
        "{said}"
    );

    let policies = Api::<BrokerPolicy>::namespaced(admin, STORED);
    let (_, said) = until(&policies, "wrong", "Ready", "False Invalid").await?;
    for field in [
        "spec.appliesToTemplates[0]: ",
        "spec.grants.egress[0].host: ",
    ] {
        assert!(said.contains(field), "{field} is not in {said}");
    }
    until(
        &policies,
        "wrong",
        "DiscoveryModeActive",
        "False NoDiscovery",
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn template_is_reconciled_when_its_base_changes() -> Result<()> {
    let fixture = Fixture::set("heirs").await?;
    let (bases, templates, base) = (fixture.bases(), fixture.templates(), fixture.base());
    apply_as(&templates, template("alone", json!({}))).await?;
    until(&templates, "alone", "Ready", "True Success").await?;
    fixture.events("alone", &["TemplateReady"]).await?;

    let mut heir = inheriting("heir", &base);
    heir["spec"]["interactive"] = json!({"idleTimeout": "2h"});
    apply_as(&templates, heir).await?;
    let (_, said) = until(&templates, "heir", "Ready", "False BaseNotFound").await?;
    assert!(said.contains(&format!("{base} does not exist")), "{said}");

    apply_as(&bases, template(&base, json!({}))).await?;
    until(&bases, &base, "Ready", "True Success").await?;
    until(&templates, "heir", "Ready", "True Success").await?;

    // Each of the two is right by itself.
    let shorter = json!({"interactive": {"maxLifetime": "1h"}});
    apply_as(&bases, template(&base, shorter)).await?;
    let (_, said) = until(&templates, "heir", "Ready", "False Invalid").await?;
    assert!(said.contains("spec.interactive.idleTimeout"), "{said}");
    until(&bases, &base, "Ready", "True Success").await?;

    bases.delete(&base, &DeleteParams::default()).await?;
    until(&templates, "heir", "Ready", "False BaseNotFound").await?;
    until(&templates, "alone", "Ready", "True Success").await?;
    Ok(())
}

#[tokio::test]
async fn discovery_is_reported_until_exact_second_of_its_end() -> Result<()> {
    let fixture = Fixture::set("discovery").await?;
    let policies = fixture.policies();
    let grants = json!({"grants": {"egress": [{"host": "api.example.com", "ports": [443]}]}});
    apply_as(&policies, policy("found", grants.clone())).await?;
    let (_, said) = until(&policies, "found", "Ready", "True Success").await?;
    assert_eq!(said, "runs are admitted by its grants");
    until(
        &policies,
        "found",
        "DiscoveryModeActive",
        "False NoDiscovery",
    )
    .await?;
    until(&policies, "found", "DiscoveryExpired", "False NoDiscovery").await?;

    let until_then = async |ends: Timestamp| {
        let mut fields = discovery(ends);
        extend(&mut fields, grants.clone());
        apply_as(&policies, policy("found", fields)).await
    };
    let far = Timestamp::from_second(Timestamp::now().as_second() + 3600)?;
    until_then(far).await?;
    let (_, said) = until(&policies, "found", "DiscoveryModeActive", "True Active").await?;
    assert!(said.ends_with(&format!("until {far}")), "{said}");
    until(&policies, "found", "DiscoveryExpired", "False Active").await?;
    until(&policies, "found", "Ready", "True Success").await?;
    fixture
        .events("found", &["DiscoveryActive", "PolicyReady"])
        .await?;

    let ends = Timestamp::from_second(Timestamp::now().as_second() + 3)?;
    until_then(ends).await?;
    let (over, said) = until(&policies, "found", "DiscoveryExpired", "True Expired").await?;
    assert!(said.contains("remove spec.egressDiscovery"), "{said}");
    for type_ in ["DiscoveryModeActive", "DiscoveryExpired", "Ready"] {
        let found = find(over.conditions(), type_).context("no condition")?;
        assert_eq!(found.reason, "Expired", "{type_}");
        let changed = found.last_transition_time.0;
        assert!(
            changed >= ends,
            "{type_} changed at {changed}, before {ends}"
        );
    }
    let lag =
        r#"oz_transition_lag_seconds_count{controller="brokerpolicy",reason="DiscoveryExpired""#;
    // The operator counts what it has written.
    eventually("the lag to be counted", CONDITION_TIMEOUT, async || {
        let metrics = oz().await?.operator.metrics().await?;
        anyhow::ensure!(metrics.contains(lag), "no {lag} in:\n{metrics}");
        Ok(Some(()))
    })
    .await?;

    apply_as(&policies, policy("found", grants)).await?;
    until(&policies, "found", "Ready", "True Success").await?;
    until(&policies, "found", "DiscoveryExpired", "False NoDiscovery").await?;
    let wanted = [
        "DiscoveryActive",
        "DiscoveryExpired",
        "DiscoveryRemoved",
        "PolicyReady",
    ];
    fixture.events("found", &wanted).await
}

#[tokio::test]
async fn nothing_is_written_where_nothing_changes() -> Result<()> {
    let fixture = Fixture::set("quiet").await?;
    let (bases, templates, policies) = (fixture.bases(), fixture.templates(), fixture.policies());
    let base = fixture.base();
    let mark = fixture.cluster.audit().mark()?;
    let far = discovery(Timestamp::now() + SignedDuration::from_hours(24));
    apply_as(&bases, template(&base, json!({}))).await?;
    apply_as(&templates, inheriting("heir", &base)).await?;
    apply_as(&templates, inheriting("orphan", "nobody")).await?;
    apply_as(&policies, policy("open", far)).await?;
    until(&bases, &base, "Ready", "True Success").await?;
    until(&templates, "heir", "Ready", "True Success").await?;
    until(&templates, "orphan", "Ready", "False BaseNotFound").await?;
    until(&policies, "open", "DiscoveryModeActive", "True Active").await?;

    // Looked at again, each by itself, and the heir by its base as well; then a change of the spec, after whose
    // status nothing of before is under way.
    touch(&bases, &base).await?;
    touch(&templates, "heir").await?;
    touch(&templates, "orphan").await?;
    touch(&policies, "open").await?;
    let slower = json!({"spec": {"defaults": {"timeout": "2m"}}});
    let versions = [
        change(&bases, &base, &slower).await?,
        change(&templates, "heir", &slower).await?,
        change(&templates, "orphan", &slower).await?,
        change(
            &policies,
            "open",
            &json!({"spec": {"limits": {"concurrentRuns": 3}}}),
        )
        .await?,
    ];
    // Whoever wrote for the sake of writing would do so while others are told of.
    apply_as(&templates, template("last", json!({}))).await?;
    until(&templates, "last", "Ready", "True Success").await?;
    apply_as(&policies, policy("last", json!({}))).await?;
    until(&policies, "last", "Ready", "True Success").await?;
    let now = [
        bases.get(&base).await?.resource_version(),
        templates.get("heir").await?.resource_version(),
        templates.get("orphan").await?.resource_version(),
        policies.get("open").await?.resource_version(),
    ];
    assert_eq!(versions, now);

    let operator = format!("system:serviceaccount:{NAMESPACE}:oz-operator");
    let writes = fixture
        .cluster
        .audit()
        .since(mark)?
        .by_user(&operator)
        .writes();
    let writes = writes.filter(|entry| entry.api_group == GROUP && entry.succeeded());
    let namespace = fixture.namespace.name();
    let count = |namespace: &str, name: &str| {
        let of_one = writes.iter();
        of_one
            .filter(|entry| entry.namespace == namespace && entry.name == name)
            .count()
    };
    assert_eq!(count("", &base), 2, "{:?}", writes.counts());
    for name in ["heir", "orphan", "open"] {
        assert_eq!(count(namespace, name), 2, "{name}: {:?}", writes.counts());
    }
    Ok(())
}

/// Sets an annotation, which makes oz look at an object again and changes nothing for it.
async fn touch<K: Conditioned>(api: &Api<K>, name: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
    api.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Changes an object, waits until its status is about that, and gives its version then.
async fn change<K: Conditioned>(api: &Api<K>, name: &str, patch: &Value) -> Result<Option<String>> {
    let patch = Patch::Merge(patch);
    api.patch(name, &PatchParams::default(), &patch).await?;
    let what = format!("the status of {name} to be about its change");
    eventually(&what, CONDITION_TIMEOUT, async || {
        let object = api.get(name).await?;
        let is_so = object.observed() == object.meta().generation;
        Ok(is_so.then(|| object.resource_version()))
    })
    .await
}
