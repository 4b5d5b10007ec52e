//! Access to pods of enforcing namespaces without a session, and unknown options of sessions.

use oz_api::Operation;
use serde_json::json;

use super::{BREAK_GLASS, Connection, ENFORCING, OBSERVING, exec, grant, webhook};

fn proxy(resource: &'static str, name: &str) -> Connection {
    Connection {
        resource,
        subresource: "proxy",
        options: json!({ "kind": "PodProxyOptions", "apiVersion": "v1", "path": "/" }),
        pod: name.to_owned(),
        ..exec(&[])
    }
}

#[tokio::test]
async fn a_proxy_to_the_pod_is_what_port_forward_covers_and_one_to_a_service_is_not() {
    let mut forwards = grant();
    forwards.operations = vec![Operation::PortForward];
    for (grant, connection, refusal) in [
        (grant(), proxy("pods", "web"), Some("OperationNotGranted")),
        (forwards.clone(), proxy("pods", "web"), None),
        (forwards.clone(), proxy("pods", "https:web:8443"), None),
        (
            forwards.clone(),
            proxy("pods", "https:db:8443"),
            Some("OtherPod"),
        ),
        (
            forwards,
            proxy("services", "web"),
            Some("ServiceProxyNotGranted"),
        ),
    ] {
        let webhook = webhook([grant]).await;
        let answer = connection.to(&webhook, ENFORCING).await;
        assert_eq!(answer.refusal(), refusal, "{}", connection.pod);
        assert!(connection.to(&webhook, BREAK_GLASS).await.allowed);
        let services = connection.resource == "services";
        for record in webhook.recorded() {
            assert_eq!(record.pod.is_none(), services);
            assert_eq!(record.details.contains_key("service"), services);
        }
    }
}

#[tokio::test]
async fn a_running_pod_is_not_changed_around_a_grant() {
    let pod = |image: &str| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
            "spec": { "containers": [{ "name": "app", "image": image }] } })
    };
    let update = |subresource, image| Connection {
        subresource,
        options: pod(image),
        old: pod("web:1"),
        ..exec(&[])
    };
    let webhook = webhook([grant()]).await;
    let image = update("", "around:1");
    let answer = image.to(&webhook, ENFORCING).await;
    assert_eq!(answer.refusal(), Some("ImageNotGranted"));
    let resize = update("resize", "web:1").to(&webhook, ENFORCING).await;
    assert_eq!(resize.refusal(), Some("ResizeNotGranted"));
    // Other changes of a pod are not checked.
    assert!(update("", "web:1").to(&webhook, ENFORCING).await.allowed);
    assert!(image.to(&webhook, BREAK_GLASS).await.allowed);
    let recorded = webhook.recorded();
    assert_eq!(recorded.len(), 3);
    assert!(
        recorded.iter().any(|record| record.reason == "BreakGlass"
            && record.details["images"] == "app: web:1 -> around:1"),
        "{recorded:?}"
    );
}

#[tokio::test]
async fn unknown_options_are_refused_in_enforcing_namespace() {
    for (name, value) in [
        (
            "env",
            json!([{ "name": "LD_PRELOAD", "value": "/tmp/around.so" }]),
        ),
        ("user", json!("root")),
    ] {
        let webhook = webhook([grant()]).await;
        let mut connection = exec(&["ls"]);
        connection.options[name] = value;
        let answer = connection.to(&webhook, ENFORCING).await;
        assert_eq!(answer.refusal(), Some("OptionUnknown"));
        assert!(answer.status.message.contains(name), "{answer:?}");
        assert!(connection.to(&webhook, OBSERVING).await.allowed);
        assert!(connection.to(&webhook, BREAK_GLASS).await.allowed);
    }
}
