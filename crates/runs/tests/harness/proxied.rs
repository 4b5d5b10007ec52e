//! The pod of a run with intercepted connections.

use oz_api::harness::DeliveryName;
use oz_api::harness::interception::{TRUST_FILE, TRUST_VARIABLES, placeholder};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::pods::any_overlay;
use crate::world::{
    containers, credential, intercepted, overlaid, overlaid_and_intercepted, rendered,
    rendered_with, resolved, restricted, run, variable,
};

#[test]
fn intercepted_pod_matches_snapshot() {
    let parrot = resolved(json!({
        "runtime": {"image": "parrot-runtime:1"},
        "podTemplateOverlay": {"spec": {"containers": [{"name": "db", "image": "db:1"}]}},
    }));
    let env = json!([{"name": "API_KEY", "value": "mine"}, {"name": "LANG", "value": "C"}]);
    let on_cage = run(json!({"workspaceRef": "cage", "extraEnv": env}));
    let credentials = [
        credential("API_KEY", DeliveryName::ProxyInjected),
        credential("LEGACY_KEY", DeliveryName::InContainer),
    ];
    let pod = intercepted(&parrot, &on_cage, &credentials).unwrap();
    insta::assert_yaml_snapshot!("pod-intercepted", pod);
    // Nothing of it is lost by the type, nor refused.
    let _: k8s_openapi::api::core::v1::PodTemplateSpec = serde_json::from_value(pod).unwrap();
}

#[test]
fn only_netinit_of_an_intercepted_pod_has_a_capability() {
    let pod = overlaid_and_intercepted(&json!({})).unwrap();
    let weaker = ["capabilities", "runAsNonRoot", "runAsUser"];
    let weaker = weaker.map(|rule| format!("\"netinit\" {rule}"));
    assert_eq!(restricted(&pod), weaker);
    let init = &pod["spec"]["initContainers"][0];
    let added = &init["securityContext"]["capabilities"];
    assert_eq!(*added, json!({"drop": ["ALL"], "add": ["NET_ADMIN"]}));
    // It ends before any other container starts, and neither it nor the proxy has a file of the run.
    assert_eq!(init["restartPolicy"], Value::Null);
    assert_eq!(
        (&init["env"], &init["volumeMounts"]),
        (&Value::Null, &Value::Null)
    );
    let names = ["netinit", "proxy", "runtime", "agent"];
    assert_eq!(
        containers(&pod).map(|it| &it["name"]).collect::<Vec<_>>(),
        names
    );
}

#[test]
fn agent_has_a_placeholder_of_an_injected_credential_and_a_reference_to_another() {
    let env = json!([{"name": "API_KEY", "value": "mine"}]);
    let run = run(json!({"extraEnv": env}));
    let credentials = [
        credential("API_KEY", DeliveryName::ProxyInjected),
        credential("LEGACY_KEY", DeliveryName::InContainer),
    ];
    let pod = intercepted(&resolved(json!({})), &run, &credentials).unwrap();
    let agent = &pod["spec"]["containers"][0];
    assert_eq!(
        variable(agent, "API_KEY"),
        Some(placeholder("u-1", "API_KEY"))
    );
    let named = |name: &str| {
        let all = agent["env"].as_array().unwrap();
        let named: Vec<&Value> = all.iter().filter(|it| it["name"] == name).collect();
        named
    };
    assert_eq!(named("API_KEY").len(), 1);
    let reference = json!({"secretKeyRef": {"name": "keys", "key": "key"}});
    assert_eq!(named("LEGACY_KEY")[0]["valueFrom"], reference);
    // No other container has either.
    let others = containers(&pod).filter(|it| it["name"] != "agent");
    assert!(
        others
            .map(ToString::to_string)
            .all(|it| !it.contains("_KEY"))
    );
}

#[test]
fn run_with_credentials_for_its_agent_alone_has_no_proxy() {
    let credentials = [credential("LEGACY_KEY", DeliveryName::InContainer)];
    let run = run(json!({}));
    let pod = rendered_with(&resolved(json!({})), &run, &credentials, false).unwrap();
    let plain = rendered(&resolved(json!({})), &run).unwrap();
    assert_eq!(
        pod["spec"]["initContainers"],
        plain["spec"]["initContainers"]
    );
    assert_eq!(pod["spec"]["volumes"], plain["spec"]["volumes"]);
    assert_eq!(restricted(&pod), Vec::<String>::new());
}

#[test]
fn every_container_but_ours_trusts_the_authority_of_the_proxy() {
    let overlay = json!({"spec": {"containers": [{"name": "db", "image": "db:1"}]}});
    let pod = overlaid_and_intercepted(&overlay).unwrap();
    for container in containers(&pod) {
        let name = container["name"].as_str().unwrap();
        let mounts = container["volumeMounts"].as_array().into_iter().flatten();
        let trust: Vec<&Value> = mounts.filter(|it| it["name"] == "oz-trust").collect();
        match name {
            "agent" | "db" => {
                let mount = json!({
                    "name": "oz-trust", "mountPath": TRUST_FILE, "subPath": "ca.crt", "readOnly": true,
                });
                assert_eq!(trust, [&mount], "{name}");
                for one in TRUST_VARIABLES {
                    assert_eq!(
                        variable(container, one).as_deref(),
                        Some(TRUST_FILE),
                        "{name} {one}"
                    );
                }
            }
            "proxy" => assert_eq!(trust.len(), 1),
            _ => assert!(trust.is_empty(), "{name}"),
        }
    }
}

proptest! {
    /// A container that runs as a user of the proxy or of oz, with connections that leave the pod: no overlay has one.
    #[test]
    fn r22_overlay_never_reaches_what_intercepts_connections(overlay in any_overlay()) {
        let plain = overlaid_and_intercepted(&json!({})).unwrap();
        if let Ok(pod) = overlaid_and_intercepted(&overlay) {
            prop_assert_eq!(restricted(&pod), restricted(&plain));
            for list in ["volumes", "initContainers"] {
                let ours = plain["spec"][list].as_array().unwrap();
                prop_assert_eq!(&pod["spec"][list].as_array().unwrap()[..ours.len()], &ours[..]);
            }
            let users = |user: i64| {
                let mut names = Vec::new();
                for container in containers(&pod) {
                    if container["securityContext"]["runAsUser"] == user {
                        names.push(container["name"].as_str().unwrap().to_owned());
                    }
                }
                names
            };
            prop_assert_eq!(users(0), ["netinit"]);
            prop_assert_eq!(users(1337), ["proxy"]);
            prop_assert_eq!(users(1338), ["runtime"]);
            for container in containers(&pod).filter(|it| it["name"] != "proxy") {
                let mounts = container["volumeMounts"].to_string();
                prop_assert!(!mounts.contains("oz-authority") && !mounts.contains("oz-proxy-token"), "{}", mounts);
            }
        } else {
            prop_assert!(overlaid(&overlay).is_err());
        }
    }
}
