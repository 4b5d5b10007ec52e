//! The pod of a run, its Job and its NetworkPolicy.

use std::collections::BTreeMap;

use oz_api::labels;
use oz_runs::objects::{Broker, job, network_policy};
use oz_runs::stored::StoredObject;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{containers, overlaid, rendered, resolved, restricted, run, variable};

/// Overlays that a template may have.
fn overlays() -> Vec<(&'static str, Value)> {
    let of_spec = |spec: Value| json!({"spec": spec});
    let of_agent = |mut agent: Value| {
        agent["name"] = json!("agent");
        json!({"spec": {"containers": [agent]}})
    };
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = json!("data");
        json!({"spec": {
            "volumes": [volume],
            "containers": [{"name": "agent", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        }})
    };
    vec![
        ("nothing", json!({})),
        (
            "metadata",
            json!({"metadata": {"labels": {"team": "birds"}, "annotations": {"a.example/b": "c"}}}),
        ),
        (
            "runtime class",
            of_spec(json!({"runtimeClassName": "gvisor"})),
        ),
        (
            "node selector",
            of_spec(json!({"nodeSelector": {"disk": "fast"}})),
        ),
        (
            "tolerations",
            of_spec(json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]})),
        ),
        (
            "affinity",
            of_spec(json!({"affinity": {"nodeAffinity": {}}})),
        ),
        (
            "priority class",
            of_spec(json!({"priorityClassName": "low"})),
        ),
        (
            "scheduler",
            of_spec(json!({"schedulerName": "batch", "hostname": "h"})),
        ),
        (
            "pull secrets",
            of_spec(json!({"imagePullSecrets": [{"name": "registry"}]})),
        ),
        (
            "groups",
            of_spec(
                json!({"securityContext": {"supplementalGroups": [5], "fsGroupChangePolicy": "Always"}}),
            ),
        ),
        (
            "spread",
            of_spec(json!({"topologySpreadConstraints": [{"maxSkew": 1}]})),
        ),
        (
            "agent env",
            of_agent(
                json!({"env": [{"name": "LANG", "value": "C"}], "envFrom": [{"configMapRef": {"name": "e"}}]}),
            ),
        ),
        (
            "agent user",
            of_agent(
                json!({"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "readOnlyRootFilesystem": true}}),
            ),
        ),
        (
            "agent resources",
            of_agent(
                json!({"resources": {"limits": {"memory": "1Gi"}}, "workingDir": "/src", "imagePullPolicy": "Always"}),
            ),
        ),
        ("empty volume", volume(json!({"emptyDir": {}}))),
        (
            "claim",
            volume(json!({"persistentVolumeClaim": {"claimName": "cache"}})),
        ),
        (
            "secret volume",
            volume(json!({"secret": {"secretName": "s"}})),
        ),
        (
            "projected volume",
            volume(json!({"projected": {"sources": [{"configMap": {"name": "c"}}]}})),
        ),
        (
            "sidecar",
            of_spec(
                json!({"containers": [{"name": "db", "image": "db:1", "ports": [{"containerPort": 5432}]}]}),
            ),
        ),
        (
            "native sidecar",
            of_spec(json!({"initContainers": [{
                "name": "db", "image": "db:1", "restartPolicy": "Always", "securityContext": {"runAsUser": 999},
                "startupProbe": {"exec": {"command": ["/ready"]}},
            }]})),
        ),
    ]
}

#[test]
fn pods_of_published_shapes_match_snapshots() {
    let parrot = resolved(json!({
        "harness": "parrot", "args": ["--once"], "runtime": {"image": "parrot-runtime:1"},
        "defaults": {"model": "none", "timeout": "30s"},
    }));
    let on_cage = run(
        json!({"workspaceRef": "cage", "timeout": "45s", "extraEnv": [{"name": "LANG", "value": "C"}]}),
    );
    insta::assert_yaml_snapshot!("pod-batch", rendered(&parrot, &on_cage).unwrap());

    let bare = resolved(json!({"workspace": {"required": false, "mountPath": "/src"}}));
    let secret =
        run(json!({"prompt": null, "promptFrom": {"secretKeyRef": {"name": "p", "key": "first"}}}));
    insta::assert_yaml_snapshot!("pod-bare", rendered(&bare, &secret).unwrap());

    let talking =
        resolved(json!({"interactive": {"mode": "persistent-process", "maxRecentEvents": 100}}));
    let interactive = run(json!({"workspaceRef": "cage", "mode": "Interactive"}));
    insta::assert_yaml_snapshot!("pod-interactive", rendered(&talking, &interactive).unwrap());
}

#[test]
fn r1_an_overlay_is_applied() {
    let plain = overlaid(&json!({})).unwrap();
    let mut changes = BTreeMap::new();
    for (name, overlay) in overlays() {
        let pod = overlaid(&overlay).unwrap();
        let change = serde_json::to_value(json_patch::diff(&plain, &pod)).unwrap();
        assert_eq!(change == json!([]), name == "nothing", "{name}");
        assert_eq!(restricted(&pod), Vec::<String>::new(), "{name}");
        changes.insert(name, change);
    }
    assert_eq!(changes.len(), 20);
    insta::assert_yaml_snapshot!("overlays", changes);
}

#[test]
fn an_overlay_cannot_change_what_confines_a_run() {
    let of_spec =
        |field: &str, value: Value| (format!("spec.{field}"), json!({"spec": {field: value}}));
    let agent = |field: &str, value: Value| {
        let path = format!("spec.containers[0].{field}");
        (
            path,
            json!({"spec": {"containers": [{"name": "agent", field: value}]}}),
        )
    };
    let context = |field: &str, value: Value| {
        let path = format!("spec.containers[0].securityContext.{field}");
        (
            path,
            json!({"spec": {"containers": [{"name": "agent", "securityContext": {field: value}}]}}),
        )
    };
    let volume = |field: &str, path: &str, value: Value| {
        let volume = json!({"name": "data", field: value});
        (
            format!("spec.volumes[0].{path}"),
            json!({"spec": {"volumes": [volume]}}),
        )
    };
    let mut refused = vec![
        of_spec("hostNetwork", json!(true)),
        of_spec("hostPID", json!(true)),
        of_spec("hostIPC", json!(true)),
        of_spec("hostUsers", json!(true)),
        of_spec("shareProcessNamespace", json!(true)),
        of_spec("automountServiceAccountToken", json!(true)),
        of_spec("serviceAccountName", json!("admin")),
        of_spec("serviceAccount", json!("admin")),
        of_spec("restartPolicy", json!("Always")),
        of_spec("activeDeadlineSeconds", json!(99_999)),
        of_spec("terminationGracePeriodSeconds", json!(99_999)),
        of_spec("dnsConfig", json!({})),
        of_spec("hostAliases", json!([])),
        of_spec("nodeName", json!("n")),
        of_spec("ephemeralContainers", json!([])),
        // Of some later Kubernetes.
        of_spec("unconfined", json!(true)),
        agent("image", json!("evil:1")),
        agent("command", json!(["sh"])),
        agent("restartPolicy", json!("Always")),
        agent("lifecycle", json!({})),
        agent("volumeDevices", json!([])),
        context("privileged", json!(true)),
        context("allowPrivilegeEscalation", json!(true)),
        context("runAsUser", json!(0)),
        context("runAsUser", json!(1337)),
        context("runAsUser", json!(1338)),
        context("runAsUser", json!(1339)),
        context("runAsUser", json!("65532")),
        context("runAsNonRoot", json!(false)),
        context("capabilities", json!({"add": ["NET_ADMIN"]})),
        context("seccompProfile", json!({"type": "Unconfined"})),
        context("procMount", json!("Unmasked")),
        volume("hostPath", "hostPath", json!({"path": "/"})),
        volume("nfs", "nfs", json!({})),
        volume(
            "projected",
            "projected.sources[0].serviceAccountToken",
            json!({"sources": [{"serviceAccountToken": {"path": "t"}}]}),
        ),
        volume(
            "persistentVolumeClaim",
            "persistentVolumeClaim.claimName",
            json!({"claimName": "ws-other"}),
        ),
    ];
    let more = [
        (
            "metadata.labels[paddock.dev/run]",
            json!({"metadata": {"labels": {"paddock.dev/run": "other"}}}),
        ),
        (
            "metadata.labels[oz.wizardofoz.co/owner-uid]",
            json!({"metadata": {"labels": {"oz.wizardofoz.co/owner-uid": "u"}}}),
        ),
        (
            "metadata.labels[job-name]",
            json!({"metadata": {"labels": {"job-name": "x"}}}),
        ),
        (
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/agent]",
            json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/agent": "unconfined"}}}),
        ),
        (
            "metadata.finalizers",
            json!({"metadata": {"finalizers": ["a.example/b"]}}),
        ),
        (
            "spec.volumes[0].name",
            json!({"spec": {"volumes": [{"name": "oz-token", "emptyDir": {}}]}}),
        ),
        (
            "spec.volumes[0].name",
            json!({"spec": {"volumes": [{"name": "workspace", "emptyDir": {}}]}}),
        ),
        (
            "spec.containers[0].name",
            json!({"spec": {"containers": [{"name": "oz", "image": "x"}]}}),
        ),
        (
            "spec.containers[0].name",
            json!({"spec": {"containers": [{"name": "runtime", "image": "x"}]}}),
        ),
        (
            "spec.initContainers[0].name",
            json!({"spec": {"initContainers": [{"name": "agent", "image": "x", "restartPolicy": "Always"}]}}),
        ),
        (
            "spec.initContainers[0].restartPolicy",
            json!({"spec": {"initContainers": [{"name": "setup", "image": "x"}]}}),
        ),
        (
            "spec.containers[1].name",
            json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]}}),
        ),
        (
            "spec.containers[0].image",
            json!({"spec": {"containers": [{"name": "a"}]}}),
        ),
        (
            "spec.containers[0].volumeMounts[0].name",
            json!({"spec": {"containers": [
            {"name": "a", "image": "x", "volumeMounts": [{"name": "oz-token", "mountPath": "/t"}]}]}}),
        ),
        (
            "spec.containers[0].volumeMounts[0].mountPath",
            json!({"spec": {"containers": [
            {"name": "agent", "volumeMounts": [{"name": "data", "mountPath": "/paddock/prompt"}]}]}}),
        ),
        (
            "spec.containers[0].volumeMounts[0].mountPath",
            json!({"spec": {"containers": [
            {"name": "agent", "volumeMounts": [
                {"name": "data", "mountPath": "/etc//ssl/certs/paddock-proxy-ca.crt"}]}]}}),
        ),
        (
            "spec.containers[0].volumeMounts[0].name",
            json!({"spec": {"containers": [
            {"name": "agent", "volumeMounts": [{"name": "oz-authority", "mountPath": "/t"}]}]}}),
        ),
        (
            "spec.containers[0].volumeMounts[0].name",
            json!({"spec": {"containers": [
            {"name": "a", "image": "x", "volumeMounts": [{"name": "oz-proxy-token", "mountPath": "/t"}]}]}}),
        ),
        (
            "spec.initContainers[0].name",
            json!({"spec": {"initContainers": [{"name": "netinit", "image": "x", "restartPolicy": "Always"}]}}),
        ),
        (
            "spec.initContainers[0].name",
            json!({"spec": {"initContainers": [{"name": "proxy", "image": "x", "restartPolicy": "Always"}]}}),
        ),
        (
            "spec.containers[0].env[0].name",
            json!({"spec": {"containers": [
            {"name": "a", "image": "x", "env": [{"name": "SSL_CERT_FILE", "value": "x"}]}]}}),
        ),
        (
            "spec.containers[0].env[0].name",
            json!({"spec": {"containers": [
            {"name": "agent", "env": [{"name": "https_proxy", "value": "x"}]}]}}),
        ),
        (
            "spec.containers[0].ports[0].hostPort",
            json!({"spec": {"containers": [
            {"name": "a", "image": "x", "ports": [{"containerPort": 1, "hostPort": 1}]}]}}),
        ),
        (
            "spec.containers[0].livenessProbe.httpGet.host",
            json!({"spec": {"containers": [
            {"name": "a", "image": "x", "livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 80}}}]}}),
        ),
        (
            "spec.containers[0].securityContext.runAsUser",
            json!({"spec": {"containers": [
            {"name": "a", "image": "x", "securityContext": {"runAsUser": 1337}}]}}),
        ),
        ("status", json!({"status": {}})),
        ("spec", json!({"spec": []})),
    ];
    refused.extend(more.map(|(path, overlay)| (path.to_owned(), overlay)));
    for (path, overlay) in refused {
        let found = overlaid(&overlay).unwrap_err();
        let fields: Vec<&str> = found.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(
            fields,
            [format!("spec.podTemplateOverlay.{path}")],
            "{overlay}"
        );
    }
}

#[test]
fn path_of_a_mount_is_compared_and_made_as_it_was_read() {
    let overlay = |kind: &str, path: &str| {
        json!({"spec": {
            "volumes": [{"name": "data", "emptyDir": {}}],
            kind: [{"name": if kind == "containers" { "agent" } else { "side" },
                "image": if kind == "containers" { Value::Null } else { json!("x") },
                "restartPolicy": if kind == "containers" { Value::Null } else { json!("Always") },
                "volumeMounts": [{"name": "data", "mountPath": path}]}],
        }})
    };
    for kind in ["containers", "initContainers"] {
        let plain = |path: &str| {
            let mut overlay = overlay(kind, path);
            let container = &mut overlay["spec"][kind][0];
            container
                .as_object_mut()
                .unwrap()
                .retain(|_, it| !it.is_null());
            overlay
        };
        for path in [
            "//paddock",
            "/./paddock/prompt",
            "/paddock//raw",
            "/paddock/",
            "/a/../paddock",
            "//",
            "/.",
            "paddock",
            "",
        ] {
            let found = overlaid(&plain(path)).unwrap_err();
            let fields: Vec<&str> = found.iter().map(|one| one.field.as_str()).collect();
            let field = format!("spec.podTemplateOverlay.spec.{kind}[0].volumeMounts[0].mountPath");
            assert_eq!(fields, [field], "{path:?}");
        }
        let pod = overlaid(&plain("//data/./x/")).unwrap();
        let mounts =
            containers(&pod).flat_map(|it| it["volumeMounts"].as_array().into_iter().flatten());
        let made: Vec<&Value> = mounts.filter(|it| it["name"] == "data").collect();
        assert_eq!(made, [&json!({"name": "data", "mountPath": "/data/x"})]);
    }
    // A template that was stored while nobody asked.
    let template = resolved(json!({"workspace": {"mountPath": "//etc"}}));
    let found = rendered(&template, &run(json!({}))).unwrap_err();
    assert_eq!(found[0].field, "spec.workspace.mountPath");
    let template = resolved(json!({"workspace": {"mountPath": "//src/./a/"}}));
    let pod = rendered(&template, &run(json!({}))).unwrap();
    let agent = &pod["spec"]["containers"][0];
    assert_eq!(
        variable(agent, "PADDOCK_WORKSPACE").as_deref(),
        Some("/src/a")
    );
}

#[test]
fn only_our_container_has_a_token_and_only_for_the_broker() {
    for runtime in [json!({}), json!({"image": "r:1"})] {
        let template = resolved(json!({"runtime": runtime}));
        let pod = rendered(&template, &run(json!({}))).unwrap();
        assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
        let with_token: Vec<&Value> = containers(&pod)
            .filter(|one| one["volumeMounts"].to_string().contains("oz-token"))
            .collect();
        assert_eq!(with_token.len(), 1);
        assert_eq!(with_token[0]["image"], "oz-harness:1");
        let tokens: Vec<&Value> = pod["spec"]["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|volume| {
                volume["projected"]["sources"]
                    .as_array()
                    .into_iter()
                    .flatten()
            })
            .collect();
        assert_eq!(tokens.len(), 1);
        assert_eq!(tokens[0]["serviceAccountToken"]["audience"], "oz-broker");
    }
}

#[test]
fn contract_variables_override_variables_of_run_and_template() {
    let template = resolved(json!({"podTemplateOverlay": {"spec": {"containers": [
        {"name": "agent", "env": [{"name": "FIRST", "value": "template"}]},
    ]}}}));
    // Admission refuses the reserved ones; a run that was stored without it gets nothing by them.
    let env = json!([
        {"name": "PADDOCK_RESULT_PATH", "value": "/etc/passwd"}, {"name": "home", "value": "/root"},
        {"name": "https_proxy", "value": "evil"}, {"name": "FIRST", "value": "run"},
    ]);
    let pod = rendered(&template, &run(json!({"extraEnv": env}))).unwrap();
    let agent = &pod["spec"]["containers"][0];
    assert_eq!(
        variable(agent, "PADDOCK_RESULT_PATH").unwrap(),
        "/workspace/.paddock/runs/squawk/result.json"
    );
    assert_eq!(variable(agent, "HOME").unwrap(), "/workspace/.home");
    assert_eq!(variable(agent, "https_proxy"), None);
    assert_eq!(variable(agent, "FIRST").unwrap(), "run");
}

#[test]
fn only_what_a_run_says_itself_may_refer_to_other_variables() {
    let template = resolved(json!({"defaults": {"model": "$(HOME)$$x"}}));
    let env = json!([{"name": "LOGS", "value": "$(PADDOCK_WORKSPACE)/logs"}]);
    let pod = rendered(&template, &run(json!({"extraEnv": env}))).unwrap();
    let agent = &pod["spec"]["containers"][0];
    let said = |name: &str| variable(agent, name).unwrap();
    assert_eq!(said("PADDOCK_MODEL"), "$$(HOME)$$$$x");
    assert_eq!(said("LOGS"), "$(PADDOCK_WORKSPACE)/logs");
}

fn broker() -> Broker {
    Broker {
        namespace: "oz-system".to_owned(),
        labels: BTreeMap::from([(
            "app.kubernetes.io/component".to_owned(),
            "broker".to_owned(),
        )]),
        port: 8443,
    }
}

#[test]
fn r29_every_run_has_a_network_policy_that_lets_it_reach_the_broker_alone() {
    // A template that requires nothing has one as well.
    let run = run(json!({}));
    let policy = network_policy(&StoredObject::new(&run).unwrap(), &broker(), None, "sealed");
    insta::assert_yaml_snapshot!("network-policy", policy);
    let pod = rendered(&resolved(json!({})), &run).unwrap();
    let job = job(
        &StoredObject::new(&run).unwrap(),
        &resolved(json!({})),
        pod,
        "sealed",
        "voucher",
    );
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    for (key, value) in policy["spec"]["podSelector"]["matchLabels"]
        .as_object()
        .unwrap()
    {
        assert_eq!(&labels[key], value, "it selects the pods of the run");
    }
}

#[test]
fn r28_the_network_policy_has_no_owner_and_the_job_has() {
    let run = run(json!({}));
    let policy = network_policy(&StoredObject::new(&run).unwrap(), &broker(), None, "sealed");
    assert_eq!(policy["metadata"]["ownerReferences"], Value::Null);
    let pod = rendered(&resolved(json!({})), &run).unwrap();
    let job = job(
        &StoredObject::new(&run).unwrap(),
        &resolved(json!({})),
        pod,
        "sealed",
        "voucher",
    );
    assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], "u-1");
}

#[test]
fn a_job_ends_on_time_and_has_the_labels_that_kueue_reads() {
    let template = resolved(json!({"defaults": {"timeout": "1m0.5s"}}));
    let mut batch = run(json!({"retries": 3}));
    batch.metadata.labels = Some(BTreeMap::from([
        ("kueue.x-k8s.io/queue-name".to_owned(), "q".to_owned()),
        ("team".to_owned(), "birds".to_owned()),
    ]));
    let made = job(
        &StoredObject::new(&batch).unwrap(),
        &template,
        rendered(&template, &batch).unwrap(),
        "sealed",
        "voucher",
    );
    assert_eq!(made["spec"]["activeDeadlineSeconds"], 61);
    assert_eq!(
        made["spec"]["template"]["spec"]["activeDeadlineSeconds"],
        61
    );
    assert_eq!(made["spec"]["backoffLimit"], 3);
    assert_eq!(made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "q");
    assert_eq!(made["metadata"]["labels"]["team"], Value::Null);
    for metadata in [&made["metadata"], &made["spec"]["template"]["metadata"]] {
        assert_eq!(metadata["labels"]["oz.wizardofoz.co/owner-uid"], "u-1");
        assert_eq!(
            metadata["labels"]["oz.wizardofoz.co/owner-kind"],
            "HarnessRun"
        );
        assert_eq!(
            metadata["annotations"]["oz.wizardofoz.co/owner-name"],
            "squawk"
        );
    }
    // Nothing of it is lost by the type, nor refused.
    let _: k8s_openapi::api::batch::v1::Job = serde_json::from_value(made).unwrap();
    let long = run(json!({"mode": "Interactive"}));
    let made = job(
        &StoredObject::new(&long).unwrap(),
        &template,
        rendered(&template, &long).unwrap(),
        "sealed",
        "voucher",
    );
    assert_eq!(made["spec"]["activeDeadlineSeconds"], Value::Null);
}

#[test]
fn a_long_name_is_a_label_all_the_same_and_another_one_another() {
    assert_eq!(labels::value("squawk"), "squawk");
    let long = "a".repeat(200);
    let value = labels::value(&long);
    assert!(value.len() <= 63 && value.starts_with("aaaa"), "{value}");
    assert!(
        value
            .chars()
            .all(|next| next.is_ascii_alphanumeric() || next == '-'),
        "{value}"
    );
    assert_ne!(value, labels::value(&format!("{long}b")));
}

/// Overlays of which some may be and some may not.
pub(crate) fn any_overlay() -> impl Strategy<Value = Value> {
    let user = prop_oneof![
        Just(Value::Null),
        (0..2000_i64).prop_map(|user| json!(user)),
        (1337..1340_i64).prop_map(|user| json!(user))
    ];
    let name = prop_oneof![
        Just("agent"),
        Just("db"),
        Just("oz"),
        Just("runtime"),
        Just("proxy"),
        Just("netinit"),
        Just("")
    ];
    let flag = prop_oneof![Just(Value::Null), Just(json!(true)), Just(json!(false))];
    let container = (name, user, flag).prop_map(|(name, user, flag)| {
        let mut container = json!({"name": name, "securityContext": {}});
        if name != "agent" {
            container["image"] = json!("x");
            container["restartPolicy"] = json!("Always");
        }
        if !user.is_null() {
            container["securityContext"]["runAsUser"] = user;
        }
        if flag == true {
            container["securityContext"]["privileged"] = flag;
        }
        container
    });
    let mount = prop_oneof![
        Just(None),
        Just(Some("data")),
        Just(Some("oz-authority")),
        Just(Some("oz-proxy-token")),
        Just(Some("oz-trust"))
    ];
    let container = (container, mount).prop_map(|(mut container, mount)| {
        if let Some(volume) = mount {
            container["volumeMounts"] = json!([{"name": volume, "mountPath": "/data"}]);
        }
        container
    });
    let containers = proptest::collection::vec(container, 0..3);
    let field = prop_oneof![
        Just("nodeSelector"),
        Just("hostNetwork"),
        Just("serviceAccountName"),
        Just("runtimeClassName")
    ];
    let volume = prop_oneof![
        Just("data"),
        Just("workspace"),
        Just("oz-token"),
        Just("paddock")
    ];
    (containers.clone(), containers, field, volume).prop_map(|(one, two, field, volume)| {
        json!({"spec": {
            "containers": one, "initContainers": two, field: "x",
            "volumes": [{"name": volume, "emptyDir": {}}],
        }})
    })
}

proptest! {
    #[test]
    fn overlay_never_lifts_pod_restrictions(overlay in any_overlay()) {
        let plain = overlaid(&json!({})).unwrap();
        if let Ok(pod) = overlaid(&overlay) {
            prop_assert_eq!(restricted(&pod), Vec::<String>::new());
            for list in ["volumes", "initContainers"] {
                let ours = plain["spec"][list].as_array().unwrap();
                prop_assert_eq!(&pod["spec"][list].as_array().unwrap()[..ours.len()], &ours[..]);
            }
            prop_assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 1);
            let taken = |one: &&Value| [1337, 1338, 1339].contains(&one["securityContext"]["runAsUser"].as_i64().unwrap());
            prop_assert_eq!(containers(&pod).filter(taken).count(), 1);
        }
    }
}
