//! Admission of runs, templates, workspaces and policies, by object and author.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, HarnessRun, HarnessTemplate, Workspace,
};
use oz_api::{conditions, labels, names};
use oz_core::access::stamp;
use oz_e2e::{Scene, identity, records_in, refused};
use oz_runs::definitions::SECRETS_READABLE;
use oz_runs::policy_stamp;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use oz_trail::{Action, Decision, Record};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::oz;

/// Returns a rule with all rights on every namespaced kind.
fn everything() -> Value {
    json!({"apiGroups": ["paddock.dev"], "resources": ["*"], "verbs": ["*"]})
}

async fn stage(prefix: &str) -> Result<Scene> {
    oz().await?;
    Scene::empty(Cluster::shared().await?, prefix).await
}

/// The objects of a kind in the scene, as a user who may do anything with those of paddock.dev.
async fn by<K>(scene: &Scene, user: &str) -> Result<Api<K>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    let client = scene.cluster.client(user).await?;
    Ok(Api::namespaced(client, scene.name()))
}

async fn create<K>(api: &Api<K>, name: &str, spec: Value) -> kube::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    create_with(api, json!({"name": name}), spec).await
}

async fn create_with<K>(api: &Api<K>, metadata: Value, spec: Value) -> kube::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": metadata, "spec": spec,
    });
    let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    api.create(&PostParams::default(), &object).await
}

/// Returns the audit records of the webhook about a namespace.
async fn records(scene: &Scene) -> Result<Vec<Record>> {
    let mut all = records_in(&oz().await?.webhook.process)?;
    all.retain(|record| record.request.namespace == scene.name());
    Ok(all)
}

fn echo() -> Value {
    json!({
        "harness": "echo",
        "image": "registry.test/echo:1",
        "command": ["/usr/local/bin/echo"],
        "defaults": {"timeout": "10m"},
        "runtime": {"image": "registry.test/runtime:1"},
        "workspace": {"required": true, "mountPath": "/workspace"},
    })
}

fn seed() -> Value {
    json!({
        "storage": {"size": "1Gi", "accessMode": "ReadWriteOnce"},
        "seed": {"repos": [{
            "url": "https://git.example.com/shop.git", "branch": "main", "depth": 1,
            "credentialsSecretRef": {"name": "git"},
        }]},
    })
}

fn key() -> Value {
    let delivery = json!({"proxyInjected": {
        "hosts": ["api.example.com"],
        "header": {"name": "Authorization", "valuePrefix": "Bearer "},
    }});
    let provider = json!({
        "kind": "UserSuppliedSecret",
        "secretRef": {"name": "key", "key": "value"},
        "deliveryMode": delivery,
    });
    json!({
        "appliesToTemplates": ["echo*"],
        "grants": {
            "credentials": [{"name": "API_KEY", "provider": provider}],
            "egress": [{"host": "api.example.com", "ports": [443]}],
        },
    })
}

fn asking() -> Value {
    json!({"templateRef": {"name": "echo"}, "prompt": "say hello"})
}

/// Submits runs until one is refused, since the webhook hears of templates by a watch.
async fn until_refused(runs: &Api<HarnessRun>) -> Result<String> {
    let mut number = 0;
    eventually("a run to be refused", CONDITION_TIMEOUT, async || {
        number += 1;
        let created = create(runs, &format!("early-{number}"), asking()).await;
        created.is_err().then(|| refused(created)).transpose()
    })
    .await
}

/// Shaped as what the original publishes.
#[tokio::test]
async fn objects_shaped_like_original_are_admitted() -> Result<()> {
    let scene = stage("shaped").await?;
    let cluster_wide = Api::<ClusterHarnessTemplate>::all(scene.admin.clone());
    let base = format!("{}-echo", scene.name());
    create(&cluster_wide, &base, echo()).await?;
    let heir = json!({
        "baseTemplateRef": {"name": base},
        "defaults": {"timeout": "5m"},
        "requires": {
            "credentials": [{"name": "API_KEY"}],
            "egress": [{"host": "api.example.com", "ports": [443]}],
        },
    });
    create(&scene.api::<HarnessTemplate>(), "echo", heir).await?;
    create(&scene.api::<Workspace>(), "demo", seed()).await?;

    // What is lacking is said, with the command that makes a policy of it.
    let runs = scene.api::<HarnessRun>();
    let why = until_refused(&runs).await?;
    for part in [
        "credential API_KEY".to_owned(),
        "egress to api.example.com:443".to_owned(),
        format!("ozctl run policy scaffold echo -n {}", scene.name()),
    ] {
        assert!(why.contains(&part), "{why}");
    }
    create(&scene.api::<BrokerPolicy>(), "demo", key()).await?;
    let mut on = asking();
    on["workspaceRef"] = json!("demo");
    eventually("the policy to be known", CONDITION_TIMEOUT, async || {
        Ok(create(&runs, "hello", on.clone()).await.ok())
    })
    .await?;
    let actions: Vec<(Action, Decision)> = records(&scene)
        .await?
        .into_iter()
        .map(|record| (record.action, record.decision))
        .collect();
    for expected in [
        (Action::TemplateChanged, Decision::Allow),
        (Action::PolicyChanged, Decision::Allow),
        (Action::RunSubmitted, Decision::Deny),
        (Action::RunSubmitted, Decision::Allow),
    ] {
        assert!(actions.contains(&expected), "{expected:?}: {actions:?}");
    }
    Ok(())
}

/// The API server checks these with the definitions, before it calls a hook: they are denied while no hook responds.
#[tokio::test]
async fn invalid_objects_are_refused_by_definitions_without_hook() -> Result<()> {
    let scene = stage("alone").await?;
    let runs = scene.api::<HarnessRun>();
    let mut both = asking();
    both["promptFrom"] = json!({"configMapKeyRef": {"name": "prompts", "key": "hello"}});
    let mut refusals = vec![(refused(create(&runs, "both", both).await)?, "prompt")];

    let templates = scene.api::<HarnessTemplate>();
    let mut bare = echo();
    bare.as_object_mut().context("no object")?.remove("image");
    refusals.push((refused(create(&templates, "bare", bare).await)?, "image"));
    let locked = json!({"baseTemplateRef": {"name": "base"}, "command": ["/bin/sh"]});
    refusals.push((
        refused(create(&templates, "locked", locked).await)?,
        "command",
    ));

    create(&templates, "echo", echo()).await?;
    create(&runs, "stays", asking()).await?;
    create(&scene.api::<Workspace>(), "stays", seed()).await?;
    let patch = |spec: Value| Patch::Merge(json!({ "spec": spec }));
    let parameters = PatchParams::default();
    let other = patch(json!({"prompt": "other"}));
    let changed = runs.patch("stays", &parameters, &other);
    refusals.push((refused(changed.await)?, "spec"));
    let workspaces = scene.api::<Workspace>();
    for (spec, field) in [
        (json!({"storage": {"size": "2Gi"}}), "storage"),
        (json!({"seed": null}), "seed"),
    ] {
        let changed = workspaces.patch("stays", &parameters, &patch(spec)).await;
        refusals.push((refused(changed)?, field));
    }
    for (why, field) in refusals {
        assert!(why.contains(field), "{field}: {why}");
        assert!(!why.contains("admission webhook"), "{field}: {why}");
    }
    Ok(())
}

/// A user with all rights on paddock.dev in a namespace, and no other rights there, obtains no pods and no Secrets.
#[tokio::test]
async fn r31_author_of_harness_objects_gains_no_rights_through_oz() -> Result<()> {
    let scene = stage("authors").await?;
    let mallory = format!("mallory-{}", scene.name());
    scene.cluster.issue_kubeconfig(&mallory, &[])?;
    scene.allow("writes", &mallory, &[everything()]).await?;
    let templates = by::<HarnessTemplate>(&scene, &mallory).await?;
    let workspaces = by::<Workspace>(&scene, &mallory).await?;
    let policies = by::<BrokerPolicy>(&scene, &mallory).await?;
    let runs = by::<HarnessRun>(&scene, &mallory).await?;
    create(&scene.api::<HarnessTemplate>(), "echo", echo()).await?;
    let from = |kind: &str| json!({"templateRef": {"name": "echo"}, "promptFrom": {kind: {"name": "key", "key": "value"}}});
    for (answer, lacks) in [
        (
            refused(create(&templates, "mine", echo()).await)?,
            "create pods",
        ),
        (
            refused(create(&workspaces, "mine", seed()).await)?,
            "get Secret git",
        ),
        (
            refused(create(&policies, "mine", key()).await)?,
            "get Secret key",
        ),
        (
            refused(create(&runs, "one", from("secretKeyRef")).await)?,
            "get Secret key",
        ),
        (
            refused(create(&runs, "two", from("configMapKeyRef")).await)?,
            "get ConfigMap key",
        ),
    ] {
        assert!(
            answer.contains(&format!("{mallory} may not {lacks}")),
            "{answer}"
        );
    }
    // Others wrote them: labels are nobody's business, what is new is.
    create(&scene.api::<BrokerPolicy>(), "theirs", key()).await?;
    let parameters = PatchParams::default();
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "shop"}}}));
    templates.patch("echo", &parameters, &label).await?;
    policies.patch("theirs", &parameters, &label).await?;
    let image = Patch::Merge(json!({"spec": {"image": "registry.test/other:1"}}));
    let why = refused(templates.patch("echo", &parameters, &image).await)?;
    assert!(why.contains("create pods"), "{why}");
    let wider = Patch::Merge(json!({"spec": {"appliesToTemplates": ["*"]}}));
    let why = refused(policies.patch("theirs", &parameters, &wider).await)?;
    assert!(why.contains("get Secret key"), "{why}");
    // In this namespace they may now; everywhere they still may not.
    let rights = [
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}),
        json!({"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get"]}),
    ];
    scene.allow("does", &mallory, &rights).await?;
    create(&templates, "mine", echo()).await?;
    create(&workspaces, "mine", seed()).await?;
    create(&policies, "mine", key()).await?;
    create(&runs, "one", from("secretKeyRef")).await?;
    create(&runs, "two", from("configMapKeyRef")).await?;
    everywhere(&scene, &mallory).await?;
    let client = scene.cluster.client(&mallory).await?;
    let cluster_wide = Api::<ClusterHarnessTemplate>::all(client);
    let name = format!("{}-mine", scene.name());
    let why = refused(create(&cluster_wide, &name, echo()).await)?;
    assert!(why.contains("create pods in every namespace"), "{why}");
    Ok(())
}

/// Lets a user write cluster templates.
async fn everywhere(scene: &Scene, user: &str) -> Result<()> {
    let name = format!("{}-templates", scene.name());
    let rule = json!({
        "apiGroups": ["paddock.dev"], "resources": ["clusterharnesstemplates"], "verbs": ["create"],
    });
    let role: ClusterRole =
        serde_json::from_value(json!({"metadata": {"name": name}, "rules": [rule]}))?;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }))?;
    let parameters = PostParams::default();
    let roles = Api::<ClusterRole>::all(scene.admin.clone());
    roles.create(&parameters, &role).await?;
    let bindings = Api::<ClusterRoleBinding>::all(scene.admin.clone());
    bindings.create(&parameters, &binding).await?;
    scene.wait_for_rules(user, &[rule]).await
}

/// The original writes an event for each of these.
#[tokio::test]
async fn r32_nothing_is_written_on_a_dry_run_and_for_metadata() -> Result<()> {
    let scene = stage("quiet").await?;
    let templates = scene.api::<HarnessTemplate>();
    let (runs, policies) = (scene.api::<HarnessRun>(), scene.api::<BrokerPolicy>());
    let mut needing = echo();
    needing["requires"] = json!({"credentials": [{"name": "API_KEY"}]});
    create(&templates, "echo", echo()).await?;
    create(&templates, "needing", needing).await?;
    create(&policies, "key", key()).await?;
    create(&runs, "hello", asking()).await?;
    let before = records(&scene).await?.len();
    assert_eq!(before, 4);

    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "shop"}}}));
    let parameters = PatchParams::default();
    templates.patch("echo", &parameters, &label).await?;
    policies.patch("key", &parameters, &label).await?;
    runs.patch("hello", &parameters, &label).await?;
    let dry = PatchParams::default().dry_run();
    let image = Patch::Merge(json!({"spec": {"image": "registry.test/other:1"}}));
    templates.patch("echo", &dry, &image).await?;
    let wider = Patch::Merge(json!({"spec": {"appliesToTemplates": ["*"]}}));
    policies.patch("key", &dry, &wider).await?;
    let tried = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut run = HarnessRun::new("tried", serde_json::from_value(asking())?);
    runs.create(&tried, &run).await?;
    run.spec.template_ref.name = "needing".to_owned();
    run.spec.workspace_ref = Some("none".to_owned());
    drop(runs.create(&tried, &run).await);
    assert_eq!(records(&scene).await?.len(), before);
    Ok(())
}

#[tokio::test]
async fn a_stamp_is_written_over_what_the_submitter_says_and_stays() -> Result<()> {
    let scene = stage("stamps").await?;
    create(&scene.api::<HarnessTemplate>(), "echo", echo()).await?;
    let builder = format!("system:serviceaccount:{}:builder", scene.name());
    scene
        .cluster
        .issue_kubeconfig(&builder, &["system:serviceaccounts"])?;
    scene.allow("submits", &builder, &[everything()]).await?;
    let runs = by::<HarnessRun>(&scene, &builder).await?;
    let annotations = json!({labels::REQUESTED_BY: "root", labels::REQUESTER: "{}"});
    let metadata = json!({"name": "forged", "annotations": annotations});
    let run = create_with(&runs, metadata, asking()).await?;
    assert_eq!(run.annotations()[labels::REQUESTED_BY], builder);
    let sealed: Value = serde_json::from_str(&run.annotations()[labels::REQUESTER])?;
    assert_eq!(sealed["user"], builder.as_str());
    for key in [labels::REQUESTED_BY, labels::REQUESTER] {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: "root"}}}));
        let changed = runs.patch("forged", &PatchParams::default(), &patch).await;
        let why = refused(changed)?;
        // By the policy, once the API server has heard of it, and by the webhook until then.
        let by_policy = why.contains("the stamp is immutable");
        assert!(by_policy || why.contains(key), "{why}");
    }
    let status = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let written = runs
        .patch_status("forged", &PatchParams::default(), &status)
        .await;
    let why = refused(written)?;
    assert!(why.contains("oz's operator"), "{why}");
    Ok(())
}

/// Nothing that a run, a workspace or a policy names needs to be there, or right, for it to go.
#[tokio::test]
async fn broken_objects_can_be_deleted() -> Result<()> {
    let scene = stage("broken").await?;
    create(&scene.api::<HarnessTemplate>(), "echo", echo()).await?;
    create(&scene.api::<BrokerPolicy>(), "key", key()).await?;
    create(&scene.api::<Workspace>(), "data", seed()).await?;
    let held = json!({"name": "held", "finalizers": ["example.com/held"]});
    let runs = scene.api::<HarnessRun>();
    create_with(&runs, held, asking()).await?;
    let now = DeleteParams::default();
    scene.api::<HarnessTemplate>().delete("echo", &now).await?;
    scene.api::<BrokerPolicy>().delete("key", &now).await?;
    scene.api::<Workspace>().delete("data", &now).await?;
    runs.delete("held", &now).await?;
    assert!(scene.api::<Secret>().get_opt("git").await?.is_none());
    let freed = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    runs.patch("held", &PatchParams::default(), &freed).await?;
    Ok(())
}

/// Returns the stamp of a policy, if the webhook made one.
fn stamp_of(policy: &BrokerPolicy) -> Option<String> {
    let stamp = stamp::read(&policy.metadata)?;
    (stamp != FORGED).then(|| stamp.to_owned())
}

/// The annotation that a user writes.
const FORGED: &str = "forged";

/// Creates a policy until one is stamped: some seconds after its start, the webhook identifies the API server.
async fn stamped_policy(policies: &Api<BrokerPolicy>) -> Result<BrokerPolicy> {
    let mut number = 0;
    eventually("a policy to be stamped", CONDITION_TIMEOUT, async || {
        number += 1;
        let metadata = json!({
            "name": format!("key-{number}"),
            "annotations": {labels::REQUESTER: FORGED},
        });
        let created = create_with(policies, metadata, key()).await?;
        Ok(stamp_of(&created).map(|_| created))
    })
    .await
}

/// Waits until the status reports the spec and the author of the stamp.
async fn until_verified(policies: &Api<BrokerPolicy>, policy: &BrokerPolicy) -> Result<()> {
    let digest = policy_stamp::digest(policy);
    let stamped = stamp::parse_unverified(&policy.metadata).context("no stamp")?;
    let author = stamped.also.last().unwrap_or(&stamped.requester);
    let verified = eventually("status.verified", CONDITION_TIMEOUT, async || {
        let policy = policies.get(&policy.name_any()).await?;
        let verified = policy.status.and_then(|status| status.verified);
        Ok(verified.filter(|verified| verified.digest == digest))
    });
    assert_eq!(verified.await?.author, author.user);
    Ok(())
}

/// A broker lends by a spec that the webhook stamped: no user writes the stamp, and the status follows it.
#[tokio::test]
async fn policy_is_stamped_at_each_change_of_its_spec() -> Result<()> {
    let scene = stage("stamped").await?;
    let policies = scene.api::<BrokerPolicy>();
    let created = stamped_policy(&policies).await?;
    until_verified(&policies, &created).await?;
    let (name, parameters) = (created.name_any(), PatchParams::default());
    let stamp = stamp_of(&created);
    for metadata in [
        json!({"labels": {"team": "shop"}}),
        json!({"annotations": {labels::REQUESTER: FORGED}}),
        json!({"annotations": {labels::REQUESTER: null}}),
    ] {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let after = policies.patch(&name, &parameters, &patch).await?;
        assert_eq!(stamp_of(&after), stamp, "{metadata}");
    }
    let wider = Patch::Merge(json!({"spec": {"appliesToTemplates": ["echo*", "parrot"]}}));
    let changed = policies.patch(&name, &parameters, &wider).await?;
    assert!(stamp_of(&changed).is_some_and(|after| Some(after) != stamp));
    until_verified(&policies, &changed).await
}

/// The broker has no right to a Secret that no Role of the namespace gives it.
#[tokio::test]
async fn policy_reports_secrets_that_brokers_may_not_read() -> Result<()> {
    let scene = stage("readable").await?;
    let policies = scene.api::<BrokerPolicy>();
    create(&policies, "key", key()).await?;
    let condition = async |status: &str| {
        let what = format!("SecretsReadable={status}");
        // The permissions are checked again after half a minute.
        eventually(&what, CONDITION_TIMEOUT, async || {
            let policy = policies.get("key").await?;
            let conditions = policy.status.unwrap_or_default().conditions;
            let found = conditions::find(&conditions, SECRETS_READABLE);
            Ok(found.filter(|one| one.status == status).cloned())
        })
        .await
    };
    let lacking = condition("False").await?;
    for part in [
        "may not get Secret key".to_owned(),
        format!(
            "ozctl run policy scaffold TEMPLATE --role -n {}",
            scene.name()
        ),
    ] {
        assert!(lacking.message.contains(&part), "{}", lacking.message);
    }
    // The test has its own kubeconfig of the broker, of which no process runs.
    let (broker, _) = identity(scene.cluster, names::BROKER)?;
    let gets = json!({
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["key"], "verbs": ["get"],
    });
    scene.allow("reads", &broker, &[gets]).await?;
    condition("True").await?;
    Ok(())
}
