//! A run with everything that its pod is made of.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use oz_api::harness::{DeliveryName, HarnessRun, KeyRef, ProviderKind, SecretKey};
use oz_core::controller::Live;
use oz_core::validate::Violation;
use oz_runs::authority::Endpoint;
use oz_runs::pod::{Parts, Prompt, Settings, pod_template};
use oz_runs::run::DecidedCredential;
use oz_runs::template::{Resolved, resolve};
use serde_json::{Value, json};

pub(crate) fn resolved(fields: Value) -> Resolved {
    resolve(&crate::template(fields), None).unwrap()
}

pub(crate) fn run(fields: Value) -> HarnessRun {
    let mut spec = json!({"templateRef": {"name": "parrot"}, "prompt": "hi"});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec.as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    let metadata = json!({
        "name": "squawk", "namespace": "birds", "uid": "u-1", "creationTimestamp": crate::now(),
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

pub(crate) fn settings() -> Settings {
    Settings {
        image: "oz-harness:1".to_owned(),
        pull_policy: "IfNotPresent".to_owned(),
        denied: Vec::new(),
    }
}

pub(crate) fn broker() -> Endpoint {
    Endpoint {
        host: "oz-broker.oz-system.svc".to_owned(),
        port: 8443,
        addresses: vec!["10.96.0.9".to_owned()],
        certificates: "PEM".to_owned(),
    }
}

/// An object of the cluster.
pub(crate) fn live(object: Value) -> Live {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let (group, version) = types
        .api_version
        .split_once('/')
        .unwrap_or(("", &types.api_version));
    let kind = GroupVersionKind::gvk(group, version, &types.kind);
    let resource = ApiResource::from_gvk(&kind);
    Live { resource, object }
}

/// The pod template of a run of a template that requires nothing of policies.
pub(crate) fn rendered(template: &Resolved, run: &HarnessRun) -> Result<Value, Vec<Violation>> {
    rendered_with(template, run, &[], false)
}

/// The pod template of a run with these credentials and intercepted connections.
pub(crate) fn intercepted(
    template: &Resolved,
    run: &HarnessRun,
    credentials: &[DecidedCredential],
) -> Result<Value, Vec<Violation>> {
    rendered_with(template, run, credentials, true)
}

pub(crate) fn rendered_with(
    template: &Resolved,
    run: &HarnessRun,
    credentials: &[DecidedCredential],
    intercepted: bool,
) -> Result<Value, Vec<Violation>> {
    let mut settings = settings();
    settings.denied = vec!["10.96.0.0/12".parse().unwrap(), "fd00::/8".parse().unwrap()];
    let source = run.spec.prompt_from.as_ref();
    let config = source.and_then(|source| source.config_map_key_ref.as_ref());
    let secret = source.and_then(|source| source.secret_key_ref.as_ref());
    let template = template.for_run(&run.spec).unwrap();
    pod_template(&Parts {
        namespace: "birds",
        run: run.metadata.name.as_deref().unwrap(),
        uid: "u-1",
        template_name: &run.spec.template_ref.name,
        template: &template,
        workspace: run.spec.workspace_ref.as_deref(),
        mode: run.spec.mode,
        prompt: prompt(config, secret),
        extra_env: &run.spec.extra_env,
        credentials,
        intercepted,
        settings: &settings,
        broker: &broker(),
    })
}

/// A credential of a run, in key `key` of Secret `keys`.
pub(crate) fn credential(name: &str, delivery: DeliveryName) -> DecidedCredential {
    DecidedCredential {
        name: name.to_owned(),
        policy: "grants".to_owned(),
        provider: ProviderKind::UserSuppliedSecret,
        delivery,
        secret: SecretKey {
            name: "keys".to_owned(),
            key: "key".to_owned(),
        },
        hosts: vec!["api.example.com".to_owned()],
        in_container_reason: None,
    }
}

fn prompt<'a>(config: Option<&'a KeyRef>, secret: Option<&'a KeyRef>) -> Prompt<'a> {
    match (config, secret) {
        (Some(reference), _) => Prompt::ConfigMap(reference),
        (_, Some(reference)) => Prompt::Secret(reference),
        _ => Prompt::Inline,
    }
}

/// The pod of the run `squawk` on the workspace `cage`, of a template with this overlay, with a proxy.
pub(crate) fn overlaid_and_intercepted(overlay: &Value) -> Result<Value, Vec<Violation>> {
    let template = resolved(json!({"podTemplateOverlay": overlay}));
    let credentials = [credential("API_KEY", DeliveryName::ProxyInjected)];
    intercepted(
        &template,
        &run(json!({"workspaceRef": "cage"})),
        &credentials,
    )
}

/// The pod of the run `squawk` on the workspace `cage`, of a template with this overlay.
pub(crate) fn overlaid(overlay: &Value) -> Result<Value, Vec<Violation>> {
    let template = resolved(json!({"podTemplateOverlay": overlay}));
    rendered(&template, &run(json!({"workspaceRef": "cage"})))
}

pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let list = |name: &str| pod["spec"][name].as_array().into_iter().flatten();
    list("initContainers").chain(list("containers"))
}

/// Returns the violations of a pod template against the Pod Security Standard `restricted`
/// (<https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>).
pub(crate) fn restricted(pod: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let spec = &pod["spec"];
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec[field] == true {
            found.push(field.to_owned());
        }
    }
    let kinds = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let mut fields = volume.as_object().unwrap().keys();
        if !fields.all(|name| name == "name" || kinds.contains(&name.as_str())) {
            found.push(format!("volume {volume}"));
        }
    }
    let of_pod = &spec["securityContext"];
    for sysctl in of_pod["sysctls"].as_array().into_iter().flatten() {
        found.push(format!("sysctl {sysctl}"));
    }
    for container in containers(pod) {
        let own = &container["securityContext"];
        let either = |field: &str| {
            if own[field].is_null() {
                &of_pod[field]
            } else {
                &own[field]
            }
        };
        let is_dropped =
            own["capabilities"]["drop"] == json!(["ALL"]) && own["capabilities"]["add"].is_null();
        for (rule, holds) in [
            (
                "allowPrivilegeEscalation",
                own["allowPrivilegeEscalation"] == false,
            ),
            ("capabilities", is_dropped),
            ("runAsNonRoot", *either("runAsNonRoot") == true),
            (
                "runAsUser",
                either("runAsUser").as_i64().is_some_and(|user| user > 0),
            ),
            (
                "seccompProfile",
                either("seccompProfile")["type"] == "RuntimeDefault",
            ),
            ("privileged", own["privileged"].is_null()),
            ("procMount", own["procMount"].is_null()),
            ("seLinuxOptions", own["seLinuxOptions"].is_null()),
            ("appArmorProfile", own["appArmorProfile"].is_null()),
        ] {
            if !holds {
                found.push(format!("{} {rule}", container["name"]));
            }
        }
        for port in container["ports"].as_array().into_iter().flatten() {
            if port["hostPort"].as_i64().unwrap_or_default() != 0 {
                found.push(format!("{} hostPort", container["name"]));
            }
        }
    }
    found
}

/// The variables of a container, as Kubernetes sees them: of two with one name the last.
pub(crate) fn variable(container: &Value, name: &str) -> Option<String> {
    let mut env = container["env"].as_array().into_iter().flatten();
    let last = env.rfind(|one| one["name"] == name)?;
    Some(last["value"].as_str()?.to_owned())
}
