//! Runs that require hosts or credentials, on the API server: their pods and NetworkPolicies are admitted, and their status
//! follows the policies.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_api::conditions;
use oz_api::harness::{BrokerPolicy, HarnessRun, RunPhase};
use oz_e2e::by_hand_overlay;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use serde_json::{Value, json};

use crate::support::{World, apply_as, message, reason};

const TEMPLATE: &str = "needing";
const CREDENTIALS: &str = "BrokerCredentialsReady";

fn credential(name: &str, delivery: &Value) -> Value {
    json!({"name": name, "provider": {
        "kind": "UserSuppliedSecret", "secretRef": {"name": "keys", "key": "key"}, "deliveryMode": delivery,
    }})
}

fn policy() -> Result<BrokerPolicy> {
    let injected = json!({"proxyInjected": {
        "hosts": ["api.example.com"], "header": {"name": "Authorization", "valuePrefix": "Bearer "},
    }});
    let reason = "the client signs its requests itself";
    let own = json!({"inContainer": {"accepted": true, "reason": reason}});
    Ok(serde_json::from_value(json!({
        "apiVersion": "paddock.dev/v1alpha1", "kind": "BrokerPolicy",
        "metadata": {"name": "grants"},
        "spec": {"appliesToTemplates": [TEMPLATE], "grants": {
            "credentials": [credential("API_KEY", &injected), credential("OWN_KEY", &own)],
            "egress": [{"host": "api.example.com", "ports": [443, 8443, 8444]}],
        }},
    }))?)
}

/// A namespace with a template that requires a host and two credentials, and the policy that grants them.
async fn world(prefix: &str) -> Result<World> {
    let world = World::new(prefix).await?;
    let more = json!({
        "podTemplateOverlay": by_hand_overlay(),
        "requires": {
            "credentials": [{"name": "API_KEY"}, {"name": "OWN_KEY"}],
            "egress": [{"host": "api.example.com", "ports": [443]}],
        },
    });
    world.template(TEMPLATE, more).await?;
    let policies = world.api::<BrokerPolicy>();
    policies.create(&PostParams::default(), &policy()?).await?;
    Ok(world)
}

/// Submits a run once the webhook knows the policy, and the operator its Secrets.
async fn submit(world: &World, name: &str) -> Result<()> {
    let policies = world.api::<BrokerPolicy>();
    eventually("the Secrets to be checked", CONDITION_TIMEOUT, async || {
        let status = policies.get("grants").await?.status.unwrap_or_default();
        Ok(conditions::find(&status.conditions, "SecretsReadable").map(drop))
    })
    .await?;
    let spec = json!({"templateRef": {"name": TEMPLATE}});
    eventually("the policy to be known", CONDITION_TIMEOUT, async || {
        Ok(world.submit(name, spec.clone()).await.ok().map(drop))
    })
    .await
}

async fn let_brokers_read(world: &World) -> Result<()> {
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["keys"], "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "oz-broker-keys"}, "rules": rules});
    apply_as(&world.api::<Role>(), role).await?;
    let binding = json!({
        "metadata": {"name": "oz-broker-keys"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "oz-broker-keys"},
        "subjects": [{"kind": "ServiceAccount", "name": "oz-broker", "namespace": "oz-system"}],
    });
    apply_as(&world.api::<RoleBinding>(), binding).await?;
    Ok(())
}

#[tokio::test]
async fn status_of_intercepted_run_follows_its_policy() -> Result<()> {
    let world = world("intercepted").await?;
    submit(&world, "hello").await?;
    let waits = |run: &HarnessRun| reason(run, CREDENTIALS) == Some("SecretsNotReadable");
    let run = world.until("hello", "waits for the Secret", waits).await?;
    let why = message(&run, CREDENTIALS);
    let command = format!(
        "ozctl run policy scaffold {TEMPLATE} --role -n {}",
        world.name()
    );
    ensure!(why.contains(&command), "{why}");
    let_brokers_read(&world).await?;

    let pod = world.pod("hello").await?;
    let spec = pod.spec.context("no spec")?;
    let init = spec.init_containers.unwrap_or_default();
    let names: Vec<&str> = init.iter().map(|it| it.name.as_str()).collect();
    ensure!(names == ["netinit", "proxy", "runtime"], "{names:?}");
    let policy = world.confined("hello").await?.context("no NetworkPolicy")?;
    let egress = policy.spec.and_then(|spec| spec.egress).unwrap_or_default();
    ensure!(egress.len() == 3, "{egress:?}");
    let lent = |records: Vec<oz_trail::Record>| {
        let lent = records
            .into_iter()
            .filter(|it| it.action == Action::CredentialLent);
        lent.map(|it| it.details["credential"].clone())
            .collect::<Vec<_>>()
    };
    ensure!(lent(world.records("hello").await?) == ["OWN_KEY"]);

    let pod = world.pod("hello").await?;
    world.agent_runs(&pod).await?;
    let granted = |run: &HarnessRun| reason(run, CREDENTIALS) == Some("Granted");
    let run = world.until("hello", "has its credentials", granted).await?;
    ensure!(message(&run, CREDENTIALS) == "API_KEY, OWN_KEY", "{run:?}");
    ensure!(
        reason(&run, "EgressConfigured") == Some("Granted"),
        "{run:?}"
    );
    let credentials = run.status.context("no status")?.credentials;
    ensure!(credentials.len() == 2, "{credentials:?}");

    let policies = world.api::<BrokerPolicy>();
    policies.delete("grants", &DeleteParams::default()).await?;
    let revoked = |run: &HarnessRun| {
        [CREDENTIALS, "EgressConfigured"]
            .iter()
            .all(|type_| reason(run, type_) == Some("PolicyRevoked"))
    };
    world.until("hello", "has lost them", revoked).await?;
    Ok(())
}

#[tokio::test]
async fn pod_security_that_forbids_interception_fails_the_run() -> Result<()> {
    let world = world("baseline").await?;
    let_brokers_read(&world).await?;
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    let namespaces = Api::<Namespace>::all(world.admin.clone());
    let patch = Patch::Merge(label);
    namespaces
        .patch(world.name(), &PatchParams::default(), &patch)
        .await?;
    submit(&world, "never").await?;
    let run = world.phase("never", RunPhase::Failed).await?;
    ensure!(
        reason(&run, "Completed") == Some("InterceptionUnavailable"),
        "{run:?}"
    );
    let why = message(&run, "Completed");
    ensure!(
        why.contains("pod-security.kubernetes.io/enforce=privileged"),
        "{why}"
    );
    ensure!(world.api::<Job>().get_opt("never").await?.is_none());
    Ok(())
}
