//! The configuration that the chart writes: the components accept it, their pods are replaced if it changes, and only
//! users who may change the components themselves may change it.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use oz_config::{Component, KEY, OzConfiguration};
use oz_e2e::{NAMESPACE, run};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, cargo_binary, eventually};
use serde_json::{Value, json};

use crate::{TURN, configuration_text, kubectl, rendered, value_files};

/// The annotation of the pods with the digest of their configuration.
const ANNOTATION: &str = "oz.wizardofoz.co/configuration";
/// The directory in which a container has its configuration.
const DIRECTORY: &str = "/etc/oz/configuration";
/// Values with which all components exist.
const ALL: &str = "--set=gate.enabled=true,harness.enabled=true";

/// Returns the Deployments among the objects of an installation, by their components.
fn deployments(objects: &[Value]) -> BTreeMap<&'static str, &Value> {
    let deployments = objects.iter().filter(|it| it["kind"] == "Deployment");
    let by_component = deployments.filter_map(|deployment| {
        let name = deployment["metadata"]["name"].as_str()?;
        let component = Component::from_name(name.rsplit_once('-')?.1)?;
        Some((component.name(), deployment))
    });
    by_component.collect()
}

/// Returns the digests in the annotations of the pods, by component.
fn digests(flags: &[&str]) -> Result<BTreeMap<&'static str, String>> {
    let objects = rendered(flags)?;
    let digest = |deployment: &Value| {
        let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
        let digest = annotations[ANNOTATION].as_str();
        digest.context("no digest").map(ToOwned::to_owned)
    };
    let deployments = deployments(&objects).into_iter();
    deployments
        .map(|(component, deployment)| Ok((component, digest(deployment)?)))
        .collect()
}

/// The maximum number of flags of all programs together, `--help` and `--version` included: everything else is a field of
/// the configuration.
const MAX_FLAGS: usize = 45;

#[test]
fn programs_have_few_flags() -> Result<()> {
    let mut flags = Vec::new();
    for component in Component::ALL {
        let program = component.program();
        let output = Command::new(cargo_binary(program)?)
            .arg("--help")
            .output()?;
        anyhow::ensure!(output.status.success(), "{program}: {output:?}");
        let help = String::from_utf8(output.stdout)?;
        let names = help.lines().filter_map(|line| {
            let line = line.trim_start();
            let long = line
                .strip_prefix("--")
                .or_else(|| Some(line.split_once(", --")?.1))?;
            let is_short = line.starts_with("--") || line.find(", --") == Some(2);
            is_short.then(|| long.split([' ', '[']).next().unwrap_or_default().to_owned())
        });
        let names: Vec<String> = names.collect();
        assert!(names.contains(&"config".to_owned()), "{program}: {names:?}");
        flags.extend(names.into_iter().map(|name| format!("{program} --{name}")));
    }
    assert!(flags.len() <= MAX_FLAGS, "{}: {flags:#?}", flags.len());
    Ok(())
}

#[test]
fn components_read_configuration_of_every_file_of_values_from_its_mounted_config_map() -> Result<()>
{
    for (name, path) in value_files()? {
        let values = format!("--values={}", path.display());
        let objects = rendered(&[&values])?;
        let text = configuration_text(&objects)?;
        OzConfiguration::read(&text).with_context(|| format!("{name}:\n{text}"))?;
        let digests = digests(&[&values])?;
        for (component, deployment) in deployments(&objects) {
            let what = format!("{component} with {name}");
            let pod = &deployment["spec"]["template"]["spec"];
            let volume = json!({"name": "configuration", "configMap": {
                "name": deployment["metadata"]["name"].as_str().unwrap_or_default()
                    .replace(&format!("-{component}"), "-configuration"),
            }});
            let container = &pod["containers"][0];
            let mount = json!({"name": "configuration", "mountPath": DIRECTORY, "readOnly": true});
            let flag = json!(format!("--config={DIRECTORY}/{KEY}"));
            for (list, expected) in [
                (&pod["volumes"], volume),
                (&container["volumeMounts"], mount),
                (&container["args"], flag),
            ] {
                let list = list.as_array().with_context(|| what.clone())?;
                assert!(list.contains(&expected), "{what}: {list:?}");
            }
            let reader = Component::from_name(component).context("no such component")?;
            // The metric of a process has the same digest.
            assert_eq!(
                digests[component],
                OzConfiguration::digest(&text, reader)?,
                "{what}"
            );
        }
    }
    Ok(())
}

#[test]
fn only_pods_whose_configuration_changed_are_replaced() -> Result<()> {
    let before = digests(&[ALL])?;
    assert_eq!(before.len(), Component::ALL.len());
    for (changed, components) in [
        ("operator.workers=7", &["operator"][..]),
        ("operator.replicas=3,operator.podLabels.a=b", &[]),
        ("webhook.replicas=3,gate.replicas=3", &[]),
        ("harness.broker.replicas=3,metrics.service.port=9443", &[]),
        ("tickets.allowedHosts={a.test}", &["operator"]),
        ("webhook.drain=6s", &["operator", "webhook"]),
        ("transient.maxBindingWindow=8h", &["operator", "webhook"]),
        ("gate.maxSessions=7", &["gate", "operator"]),
        (
            "harness.requireConfined=true",
            &["broker", "operator", "webhook"],
        ),
        ("access.namespaces={shop}", &["gate", "operator", "webhook"]),
        (
            "audit.maxEvents=7",
            &["broker", "gate", "operator", "webhook"],
        ),
        (
            "log.filter=debug",
            &["broker", "gate", "operator", "webhook"],
        ),
    ] {
        let after = digests(&[ALL, &format!("--set={changed}")])?;
        let differ = before.keys().filter(|it| before[**it] != after[**it]);
        let differ: Vec<&str> = differ.copied().collect();
        assert_eq!(differ, components, "{changed}");
    }
    Ok(())
}

/// Returns the Role with these rules in oz's namespace, and its binding to a user of the same name.
fn rights(user: &str, rules: &Value) -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({"name": user, "namespace": NAMESPACE});
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": rules,
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    });
    [role, binding]
}

/// Upgrades a value of the operator: the configuration and the digest of the operator's pods change, and no other digest.
fn upgrade_changes_only_pods_that_read_it(
    cluster: &Cluster,
    helm: &dyn Fn(&[&str]) -> Result<String>,
) -> Result<()> {
    let namespace = format!("--namespace={NAMESPACE}");
    let get = |what: &str, path: &str| {
        let mut kubectl = cluster.kubectl("admin");
        let path = format!("-ojsonpath={path}");
        kubectl.args(["get", what, &namespace, &path]);
        run(kubectl)
    };
    let path = format!(
        "{{.spec.template.metadata.annotations.{}}}",
        ANNOTATION.replace('.', "\\.")
    );
    let digests = || -> Result<[String; 2]> {
        let of = |name: &str| get(&format!("deployment/{name}"), &path);
        Ok([of("oz-operator")?, of("oz-webhook")?])
    };
    let [operator, webhook] = digests()?;
    helm(&[
        "upgrade",
        "oz",
        &oz_e2e::chart(),
        "--set=operator.workers=7",
    ])?;
    let text = get("configmap/oz-configuration", "{.data.config\\.yaml}")?;
    assert_eq!(OzConfiguration::read(&text)?.operator.workers.get(), 7);
    let after = digests()?;
    assert_ne!(after[0], operator);
    assert_eq!(after[1], webhook);
    Ok(())
}

#[tokio::test]
async fn configuration_is_changed_only_by_users_who_may_update_operators_deployment() -> Result<()>
{
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    let helm = |arguments: &[&str]| {
        let mut helm = oz_e2e::helm(cluster)?;
        helm.args(arguments);
        run(helm)
    };
    oz_e2e::unregister(cluster)?;
    let chart = oz_e2e::chart();
    let install = ["install", "oz", &chart, "--take-ownership"];
    helm(&[&install[..], &["--create-namespace"]].concat())?;

    let config_maps = json!({
        "apiGroups": [""], "resources": ["configmaps"],
        "verbs": ["get", "list", "create", "update", "patch", "delete", "deletecollection"],
    });
    let deployment = |verb: &str| {
        json!({
            "apiGroups": ["apps"], "resources": ["deployments"], "verbs": [verb],
            "resourceNames": ["oz-operator"],
        })
    };
    let given = [
        rights("conny", &json!([config_maps, deployment("get")])),
        rights("updating-una", &json!([config_maps, deployment("update")])),
        rights("patching-pia", &json!([config_maps, deployment("patch")])),
    ];
    let given = given.concat();
    kubectl(cluster, &["apply"], &given)?;
    for user in ["conny", "updating-una", "patching-pia"] {
        cluster.issue_kubeconfig(user, &["mortals"])?;
    }
    let namespace = format!("--namespace={NAMESPACE}");
    let as_user = |user: &str, arguments: &[&str]| {
        let mut kubectl = cluster.kubectl(user);
        kubectl
            .args(arguments)
            .args([&namespace, "--dry-run=server"]);
        run(kubectl)
    };
    let patch = r#"--patch={"data": {"config.yaml": "{}"}}"#;
    let attempts: [&[&str]; 4] = [
        &["patch", "configmap", "oz-configuration", patch],
        &["delete", "configmap", "oz-configuration"],
        &["label", "configmap", "oz-configuration", "a=b"],
        &["create", "configmap", "oz-configuration"],
    ];
    let sign = "ValidatingAdmissionPolicy 'oz-configuration'";
    for attempt in attempts {
        eventually("the policy to refuse", CONDITION_TIMEOUT, async || {
            let refused = as_user("conny", attempt);
            let said = refused.err().map(|error| format!("{error:#}"));
            let said = said.context("a user without rights changed the configuration")?;
            anyhow::ensure!(said.contains(sign), "{said}");
            Ok(Some(()))
        })
        .await?;
    }
    // A deletion of several objects names none.
    let theirs: Api<ConfigMap> = Api::namespaced(cluster.client("conny").await?, NAMESPACE);
    let this = ListParams::default().fields("metadata.name=oz-configuration");
    let trying = DeleteParams::default().dry_run();
    let said = oz_e2e::refused(theirs.delete_collection(&trying, &this).await)?;
    assert!(said.contains(sign), "{said}");

    as_user("conny", &["create", "configmap", "other-configuration"])?;
    for user in ["updating-una", "patching-pia"] {
        for attempt in &attempts[..2] {
            as_user(user, attempt).with_context(|| user.to_owned())?;
        }
    }

    upgrade_changes_only_pods_that_read_it(cluster, &helm)?;

    helm(&["uninstall", "oz", "--wait", "--timeout=120s"])?;
    kubectl(cluster, &["delete", "--ignore-not-found"], &given)
}
