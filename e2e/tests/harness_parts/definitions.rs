//! What the definitions of the five kinds refuse by themselves: no hook is registered on this cluster.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource};
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, HarnessRun, HarnessTemplate, Workspace,
};
use oz_e2e::refused;
use oz_testkit::{CONDITION_TIMEOUT, TestNamespace, eventually};
use serde_json::{Value, json};

use crate::cluster;

/// A kind, and an object of it that is in order.
struct Kind {
    resource: ApiResource,
    is_everywhere: bool,
    spec: Value,
}

impl Kind {
    fn new<K: Resource<DynamicType = ()>>(spec: Value) -> Self {
        let resource = ApiResource::erase::<K>(&());
        Self {
            is_everywhere: resource.kind.starts_with("Cluster"),
            resource,
            spec,
        }
    }

    fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        match self.is_everywhere {
            true => Api::all_with(client.clone(), &self.resource),
            false => Api::namespaced_with(client.clone(), namespace, &self.resource),
        }
    }

    /// Returns an object with these fields added to its spec or replaced in it; `null` removes a field.
    fn object(&self, name: &str, fields: &Value) -> DynamicObject {
        let mut object = DynamicObject::new(name, &self.resource);
        let mut spec = self.spec.clone();
        change(&mut spec, fields);
        object.data = json!({ "spec": spec });
        object
    }
}

fn change(spec: &mut Value, fields: &Value) {
    for (name, value) in fields.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(spec.as_object_mut().map(|spec| spec.remove(name))),
            value => spec[name] = value.clone(),
        }
    }
}

fn runs() -> Kind {
    Kind::new::<HarnessRun>(json!({"templateRef": {"name": "echo"}, "prompt": "hi"}))
}

fn workspaces() -> Kind {
    let repository =
        json!({"url": "https://git.test/a.git", "credentialsSecretRef": {"name": "a"}});
    Kind::new::<Workspace>(json!({"storage": {"size": "1Gi"}, "seed": {"repos": [repository]}}))
}

fn template() -> Value {
    json!({"harness": "echo", "image": "echo:1", "command": ["/echo"]})
}

fn policies() -> Kind {
    Kind::new::<BrokerPolicy>(json!({"appliesToTemplates": ["echo"], "grants": {}}))
}

fn granting(provider: Value) -> Value {
    json!({"grants": {"credentials": [{"name": "KEY", "provider": provider}]}})
}

const REASON: &str = "as this test says, at length";

/// Invalid runs, and the field in the message.
fn of_runs() -> Vec<(Value, &'static str)> {
    let from = |sources: Value| json!({"prompt": null, "promptFrom": sources});
    let key = json!({"name": "texts", "key": "ask"});
    vec![
        (json!({"prompt": null}), "spec.prompt"),
        (json!({"prompt": ""}), "spec.prompt"),
        (json!({"promptFrom": {"secretKeyRef": key}}), "spec.prompt"),
        (from(json!({})), "spec.promptFrom"),
        (
            from(json!({"secretKeyRef": key, "configMapKeyRef": key})),
            "spec.promptFrom",
        ),
        (json!({"templateRef": {}}), "spec.templateRef.name"),
        (
            json!({"templateRef": {"name": "echo", "kind": "Pod"}}),
            "spec.templateRef.kind",
        ),
        (json!({"timeout": "-1s"}), "spec.timeout"),
        (json!({"timeout": "soon"}), "spec.timeout"),
        (json!({"retries": 11}), "spec.retries"),
        (
            json!({"ttlSecondsAfterFinished": -1}),
            "spec.ttlSecondsAfterFinished",
        ),
        (json!({"mode": "Other"}), "spec.mode"),
        (
            json!({"interactiveOverrides": {"idleTimeout": "1m"}}),
            "spec.interactiveOverrides",
        ),
        (
            json!({"mode": "Interactive", "interactiveOverrides": {"idleTimeout": "-1m"}}),
            "spec.interactiveOverrides.idleTimeout",
        ),
        (
            json!({"extraEnv": [{"name": "A", "valueFrom": {"secretKeyRef": key}}]}),
            "spec.extraEnv[0].valueFrom",
        ),
    ]
}

fn of_workspaces() -> Vec<(Value, &'static str)> {
    let both = json!({"repos": [{
        "url": "https://git.test/a.git",
        "credentialsSecretRef": {"name": "a"},
        "brokerCredentialRef": {"name": "a", "key": "b"},
    }]});
    let copies = |source: Value| json!({"seed": null, "source": source});
    vec![
        (json!({"storage": null}), "spec.storage"),
        (json!({"storage": {}}), "spec.storage.size"),
        (
            json!({"storage": {"size": "1Gi", "accessMode": "ReadOnlyMany"}}),
            "spec.storage.accessMode",
        ),
        (json!({"seed": both}), "spec.seed.repos[0]"),
        (json!({"source": {"workspaceRef": "other"}}), "spec.seed"),
        (copies(json!({})), "spec.source"),
        (
            copies(json!({"workspaceRef": "other", "volumeSnapshotName": "one"})),
            "spec.source",
        ),
    ]
}

/// Invalid templates of both kinds.
fn of_templates() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"image": null}), "spec.image"),
        (json!({"image": ""}), "spec.image"),
        (json!({"command": null}), "spec.command"),
        (json!({"command": []}), "spec.command"),
        (
            json!({"defaults": {"timeout": "soon"}}),
            "spec.defaults.timeout",
        ),
        (
            json!({"interactive": {"mode": "sometimes"}}),
            "spec.interactive.mode",
        ),
        (
            json!({"interactive": {"maxRecentEvents": 501}}),
            "spec.interactive.maxRecentEvents",
        ),
    ]
}

/// Invalid templates with a base.
fn of_heirs() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"image": "echo:2"}), "spec.image"),
        (json!({"command": ["/bin/sh"]}), "spec.command"),
        (json!({"args": ["-x"]}), "spec.args"),
        (json!({"runtime": {"image": "own:1"}}), "spec.runtime"),
        (json!({"workspace": {"required": false}}), "spec.workspace"),
    ]
}

fn of_policies() -> Vec<(Value, &'static str)> {
    let secret = json!({"name": "key", "key": "value"});
    let supplied = |mode: Value| {
        granting(json!({"kind": "UserSuppliedSecret", "secretRef": secret, "deliveryMode": mode}))
    };
    let injected = |how: Value| {
        let mut mode = json!({"hosts": ["api.example.com"]});
        change(&mut mode, &how);
        supplied(json!({"proxyInjected": mode}))
    };
    let mode = "spec.grants.credentials[0].provider.deliveryMode";
    let contained = |accepted: bool, reason: &str| {
        supplied(json!({"inContainer": {"accepted": accepted, "reason": reason}}))
    };
    let cooperative = |accepted: bool, reason: &str| json!({"interception": {"cooperativeAccepted": {"accepted": accepted, "reason": reason}}});
    let discovery = |accepted: bool, reason: &str| json!({"egressDiscovery": {"accepted": accepted, "reason": reason, "expiresAt": "2099-01-01T00:00:00Z"}});
    // Twenty letters, most of which are spaces.
    let blank = "because            x";
    let spaces = "                         ";
    vec![
        (json!({"appliesToTemplates": []}), "spec.appliesToTemplates"),
        (
            granting(json!({"kind": "Other", "secretRef": secret})),
            "provider.kind",
        ),
        (
            granting(json!({"kind": "UserSuppliedSecret", "secretRef": secret})),
            mode,
        ),
        (
            granting(json!({"kind": "GitHubApp", "secretRef": secret, "appId": "1"})),
            "provider.appId",
        ),
        (
            granting(
                json!({"kind": "GitHubApp", "secretRef": secret, "appId": "0", "installationId": "1"}),
            ),
            "provider.appId",
        ),
        (
            granting(json!({"kind": "AnthropicAPI", "secretRef": secret, "rotationSeconds": 59})),
            "provider.rotationSeconds",
        ),
        (supplied(json!({})), mode),
        (injected(json!({})), "deliveryMode.proxyInjected"),
        (
            injected(json!({"queryParam": {"name": "a"}, "basicAuth": {"username": "a"}})),
            "deliveryMode.proxyInjected",
        ),
        (
            injected(json!({"hosts": [], "queryParam": {"name": "a"}})),
            "deliveryMode.proxyInjected.hosts",
        ),
        (
            contained(false, REASON),
            "deliveryMode.inContainer.accepted",
        ),
        (contained(true, "short"), "deliveryMode.inContainer.reason"),
        (contained(true, spaces), "deliveryMode.inContainer.reason"),
        (cooperative(false, REASON), "cooperativeAccepted.accepted"),
        (cooperative(true, spaces), "cooperativeAccepted.reason"),
        (
            json!({"interception": {
                "transparent": {}, "cooperativeAccepted": {"accepted": true, "reason": REASON},
            }}),
            "spec.interception",
        ),
        (discovery(false, REASON), "spec.egressDiscovery.accepted"),
        (discovery(true, "short"), "spec.egressDiscovery.reason"),
        (discovery(true, &blank[..19]), "spec.egressDiscovery.reason"),
        (discovery(true, spaces), "spec.egressDiscovery.reason"),
    ]
}

/// Asserts that invalid objects are denied, and a valid one is accepted.
async fn holds(
    client: &Client,
    namespace: &str,
    kind: &Kind,
    wrong: Vec<(Value, &'static str)>,
) -> Result<()> {
    let (api, dry) = (
        kind.api(client, namespace),
        PostParams {
            dry_run: true,
            ..PostParams::default()
        },
    );
    let name = format!("{namespace}-any");
    let right = kind.object(&name, &json!({}));
    eventually("the kind to be served", CONDITION_TIMEOUT, async || {
        api.create(&dry, &right).await?;
        Ok(Some(()))
    })
    .await?;
    for (fields, field) in wrong {
        let object = kind.object(&name, &fields);
        let tried = format!("{} {fields}", kind.resource.kind);
        let why = refused(api.create(&dry, &object).await).context(tried.clone())?;
        ensure!(why.contains(field), "{tried}: {field} is not in {why}");
    }
    let mut bare = DynamicObject::new(&name, &kind.resource);
    bare.data = json!({});
    let why = refused(api.create(&dry, &bare).await)?;
    ensure!(why.contains("spec"), "{}: {why}", kind.resource.kind);
    Ok(())
}

#[tokio::test]
async fn the_definitions_alone_refuse_what_cannot_be() -> Result<()> {
    let cluster = cluster().await?;
    let client = cluster.client("admin").await?;
    let all = ListParams::default();
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    ensure!(
        mutating.list(&all).await?.items.is_empty(),
        "a hook is registered"
    );
    ensure!(
        validating.list(&all).await?.items.is_empty(),
        "a hook is registered"
    );

    let namespace = TestNamespace::create(cluster, "alone").await?;
    let heir = json!({"baseTemplateRef": {"name": "base"}});
    let mut everywhere = of_templates();
    everywhere.push((
        json!({"image": null, "command": null, "baseTemplateRef": {"name": "base"}}),
        "spec",
    ));
    for (kind, wrong) in [
        (runs(), of_runs()),
        (workspaces(), of_workspaces()),
        (Kind::new::<HarnessTemplate>(template()), of_templates()),
        (Kind::new::<HarnessTemplate>(heir), of_heirs()),
        (Kind::new::<ClusterHarnessTemplate>(template()), everywhere),
        (policies(), of_policies()),
    ] {
        holds(&client, namespace.name(), &kind, wrong).await?;
    }
    Ok(())
}

#[tokio::test]
async fn definitions_keep_immutable_fields_without_webhook() -> Result<()> {
    let cluster = cluster().await?;
    let client = cluster.client("admin").await?;
    let namespace = TestNamespace::create(cluster, "kept").await?;
    let copy = Kind::new::<Workspace>(json!({
        "storage": {"size": "1Gi"}, "source": {"workspaceRef": "other"},
    }));
    for (name, kind, changes, stays) in [
        (
            "run",
            runs(),
            vec![
                json!({"prompt": "other"}),
                json!({"timeout": "1h"}),
                json!({"templateRef": {"name": "other"}}),
                json!({"ttlSecondsAfterFinished": 1}),
                json!({"workspaceRef": "other"}),
            ],
            None,
        ),
        (
            "filled",
            workspaces(),
            vec![
                json!({"storage": {"size": "2Gi"}}),
                json!({"seed": null}),
                json!({"seed": {"repos": [{"url": "https://other.test/a.git"}]}}),
                json!({"seed": null, "source": {"workspaceRef": "other"}}),
            ],
            Some(json!({"templates": ["echo"]})),
        ),
        (
            "copied",
            copy,
            vec![
                json!({"source": null}),
                json!({"source": {"workspaceRef": "another"}}),
                json!({"source": null, "seed": {"repos": []}}),
            ],
            Some(json!({"ephemeral": true})),
        ),
    ] {
        let api = kind.api(&client, namespace.name());
        let object = kind.object(name, &json!({}));
        eventually("the kind to be served", CONDITION_TIMEOUT, async || {
            api.create(&PostParams::default(), &object).await?;
            Ok(Some(()))
        })
        .await?;
        let patch = |fields: &Value| Patch::Merge(json!({ "spec": fields }));
        let parameters = PatchParams::default();
        for fields in changes.into_iter().chain([json!(null)]) {
            let changed = api.patch(name, &parameters, &patch(&fields)).await;
            let why = refused(changed).context(format!("{name}: {fields}"))?;
            ensure!(
                why.contains("immutable") || why.contains("spec must be set"),
                "{name}: {fields}: {why}"
            );
        }
        if let Some(fields) = stays {
            api.patch(name, &parameters, &patch(&fields)).await?;
        }
    }
    Ok(())
}
