//! The security of the pods: they comply with the Pod Security Standard `restricted` with every file of values, also
//! without a user, and the schema refuses values that weaken it or replace the environment of oz.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use oz_e2e::run;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::{Value, json};

use crate::values::refusal;
use crate::{kubectl, name_of, rendered, template, value_files};

/// The paths of the values of components and hooks with pods.
const PODS: [&str; 6] = [
    "operator",
    "webhook",
    "gate",
    "harness.broker",
    "uninstall",
    "test",
];
/// Values with which all pods exist.
const ALL: &str = "--set=gate.enabled=true,harness.enabled=true";
/// The namespace in which the API server enforces the profile.
const NAMESPACE: &str = "restricted-pods";

/// Returns the names of the objects with pods, and the specs of these pods.
fn pods(objects: &[Value]) -> Vec<(String, &Value)> {
    let pods = objects.iter().filter_map(|object| {
        let spec = match object["kind"].as_str() {
            Some("Deployment" | "Job") => &object["spec"]["template"]["spec"],
            Some("Pod") => &object["spec"],
            _ => return None,
        };
        Some((name_of(object), spec))
    });
    pods.collect()
}

fn containers(pod: &Value) -> Result<&Vec<Value>> {
    pod["containers"].as_array().context("no containers")
}

/// The Pod Security Standard `restricted` of Kubernetes, and a read-only root file system.
#[test]
fn every_container_is_restricted_with_every_file_of_values() -> Result<()> {
    for (name, path) in value_files()? {
        let values = format!("--values={}", path.display());
        let objects = rendered(&[&values])?;
        let pods = pods(&objects);
        assert!(pods.len() >= 3, "{name}: {} pods", pods.len());
        for (object, pod) in pods {
            let what = format!("{object} with {name}");
            let security = &pod["securityContext"];
            assert_eq!(security["runAsNonRoot"], true, "{what}");
            assert_ne!(security["runAsUser"], 0, "{what}");
            let profile = security["seccompProfile"]["type"].as_str();
            let is_confined = matches!(profile, Some("RuntimeDefault" | "Localhost"));
            assert!(is_confined, "{what}: {security}");
            for container in containers(pod)? {
                let security = &container["securityContext"];
                assert_eq!(security["allowPrivilegeEscalation"], false, "{what}");
                assert_eq!(security["readOnlyRootFilesystem"], true, "{what}");
                assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}), "{what}");
                assert_ne!(security["privileged"], true, "{what}");
                assert_ne!(security["runAsUser"], 0, "{what}");
                let memory = &container["resources"]["limits"]["memory"];
                assert!(memory.is_string(), "{what}");
            }
        }
    }
    Ok(())
}

#[test]
fn pods_without_user_leave_users_and_groups_to_the_platform() -> Result<()> {
    let (_, path) = value_files()?
        .into_iter()
        .find(|(name, _)| name == "platform_users")
        .context("no file platform_users")?;
    let objects = rendered(&[&format!("--values={}", path.display())])?;
    let pods = pods(&objects);
    assert_eq!(pods.len(), PODS.len());
    for (object, pod) in pods {
        let expected = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(pod["securityContext"], expected, "{object}");
        for container in containers(pod)? {
            assert!(container["securityContext"]["runAsUser"].is_null());
        }
    }
    Ok(())
}

/// Returns a pod with this spec that requires no other object.
fn alone(number: usize, spec: &Value) -> Result<Value> {
    let mut spec = spec.clone();
    let fields = spec.as_object_mut().context("no spec")?;
    fields.remove("serviceAccountName");
    fields.remove("priorityClassName");
    Ok(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{number}"), "namespace": NAMESPACE},
        "spec": spec,
    }))
}

#[tokio::test]
async fn api_server_admits_pods_of_every_file_of_values_as_restricted() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let label = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": label},
    });
    kubectl(cluster, &["apply"], &[namespace])?;
    eventually("the service account", CONDITION_TIMEOUT, async || {
        let mut get = cluster.kubectl("admin");
        get.args(["get", "serviceaccount", "default", "--namespace", NAMESPACE]);
        Ok(run(get).ok())
    })
    .await?;
    let create = |pods: &[Value]| kubectl(cluster, &["create", "--dry-run=server"], pods);
    let mut refused = 0;
    for (name, path) in value_files()? {
        let objects = rendered(&[&format!("--values={}", path.display())])?;
        let (on_nodes, others): (Vec<_>, Vec<_>) = pods(&objects)
            .into_iter()
            .map(|(_, spec)| spec)
            .partition(|spec| spec["hostNetwork"] == true);
        let others = others.iter().enumerate();
        let others: Result<Vec<Value>> = others.map(|(number, spec)| alone(number, spec)).collect();
        create(&others?).with_context(|| name.clone())?;
        // The profile does not permit the network of the node.
        for spec in on_nodes {
            let error = create(&[alone(0, spec)?]).err();
            let said = error.map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(said.contains("violates PodSecurity"), "{name}: {said}");
            refused += 1;
        }
    }
    assert!(refused > 0, "no file of values has hostNetwork");
    kubectl(
        cluster,
        &["delete", "--wait=false"],
        &[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})],
    )
}

#[test]
fn values_that_weaken_the_security_of_pods_are_refused() -> Result<()> {
    for path in PODS {
        let weak = [
            "podSecurityContext.runAsUser=0",
            "podSecurityContext.runAsGroup=0",
            "podSecurityContext.runAsNonRoot=false",
            "podSecurityContext.seccompProfile.type=Unconfined",
            "podSecurityContext.seLinuxOptions.user=system_u",
            "podSecurityContext.appArmorProfile.type=Unconfined",
            "securityContext.privileged=true",
            "securityContext.allowPrivilegeEscalation=true",
            "securityContext.readOnlyRootFilesystem=false",
            "securityContext.capabilities.add={SYS_ADMIN}",
            "securityContext.runAsUser=0",
        ];
        let set: Vec<String> = weak.iter().map(|value| format!("{path}.{value}")).collect();
        let said = refusal(&format!("--set={}", set.join(",")))?;
        for value in weak {
            // Some messages name the object, and the field behind it.
            let field = value.split('=').next().unwrap_or_default();
            let (object, field) = field.rsplit_once('.').context("no object")?;
            let object = format!("/{path}.{object}").replace('.', "/");
            let named = |line: &str| line.contains(&object) && line.contains(field);
            assert!(said.lines().any(named), "{path}.{value}: {said}");
        }
    }
    for flag in [
        "operator.podSecurityContext.runAsNonRoot=null",
        "webhook.podSecurityContext.seccompProfile=null",
        "gate.securityContext.capabilities=null",
        "test.securityContext.allowPrivilegeEscalation=null",
        "uninstall.securityContext.capabilities.drop={KILL}",
        "operator.podSecurityContext.sysctls[0].name=kernel.msgmax",
    ] {
        refusal(&format!("--set={flag}"))?;
    }
    // The API server makes the profile in this annotation that of the container.
    let annotation = r"container\.apparmor\.security\.beta\.kubernetes\.io/oz";
    for path in ["operator", "webhook", "gate", "harness.broker"] {
        let flag = format!("--set={path}.podAnnotations.{annotation}=unconfined");
        let said = refusal(&flag)?;
        assert!(said.contains("podAnnotations"), "{path}: {said}");
    }
    Ok(())
}

/// Returns the names of the environment variables of all containers.
fn variables(flags: &[&str]) -> Result<BTreeSet<String>> {
    let objects = rendered(flags)?;
    let mut names = BTreeSet::new();
    for (_, pod) in pods(&objects) {
        for container in containers(pod)? {
            let variables = container["env"].as_array().into_iter().flatten();
            names.extend(variables.filter_map(|one| one["name"].as_str().map(ToOwned::to_owned)));
        }
    }
    Ok(names)
}

#[test]
fn environment_variables_of_oz_and_its_platform_are_refused() -> Result<()> {
    let mut names: Vec<String> = variables(&[ALL])?.into_iter().collect();
    assert!(names.len() >= 3, "{names:?}");
    for name in [
        "OZ_LOG",
        "KUBERNETES_SERVICE_HOST",
        "SSL_CERT_FILE",
        "LD_PRELOAD",
        "KUBECONFIG",
        "A-B",
    ] {
        names.push(name.to_owned());
    }
    let entries: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "value": "a"}))
        .collect();
    let entries = serde_json::to_string(&entries)?;
    for path in PODS {
        let said = refusal(&format!("--set-json={path}.extraEnv={entries}"))?;
        let at = path.replace('.', "/");
        for (number, name) in names.iter().enumerate() {
            let at = format!("/{at}/extraEnv/{number}/name'");
            assert!(said.contains(&at), "{name}: {said}");
        }
    }
    Ok(())
}

#[test]
fn extra_environment_variables_follow_those_of_oz() -> Result<()> {
    let own = variables(&[ALL])?;
    for path in PODS {
        let entry = r#"[{"name":"OZONE","value":"1"},{"name":"FROM","valueFrom":{"secretKeyRef":{"name":"a","key":"b"}}}]"#;
        let names = variables(&[ALL, &format!("--set-json={path}.extraEnv={entry}")])?;
        let added: Vec<&String> = names.difference(&own).collect();
        assert_eq!(added, ["FROM", "OZONE"], "{path}");
        let twice = r#"[{"name":"A","value":"1"},{"name":"A","value":"2"}]"#;
        let output = template(&[ALL, &format!("--set-json={path}.extraEnv={twice}")])?;
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = format!("{path}.extraEnv: A occurs twice");
        assert!(said.contains(&expected), "{said}");
    }
    Ok(())
}
