//! Access to pods of enforcing namespaces without a session, and unknown options of sessions.

use oz_api::{Operation, labels};
use serde_json::json;

use super::super::Records;
use super::super::server::Server;
use super::{BREAK_GLASS, Connection, ENFORCING, OBSERVING, Webhook, exec, grant, webhook};

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
            Some("PodMismatch"),
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

/// Returns a webhook with the pod of a harness run.
async fn with_run() -> Webhook {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "claude-x7k2p", "namespace": "shop", "uid": "uid-of-run",
            "labels": { labels::OWNER_KIND: "HarnessRun", labels::OWNER_UID: "run-1" },
        },
    });
    Webhook::recording(Server::with([pod]), Records::default())
}

fn forward() -> Connection {
    Connection {
        subresource: "portforward",
        options: json!({ "kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [15001] }),
        ..exec(&[])
    }
}

fn into(subresource: &'static str, container: &str) -> Connection {
    let mut connection = Connection {
        subresource,
        ..exec(&["sh"])
    };
    connection.options["container"] = container.into();
    connection
}

/// The rule applies in every namespace, and to break-glass groups as well.
#[tokio::test]
async fn credentials_and_ports_of_run_are_closed_in_every_mode() {
    let container = Some("RunContainerClosed");
    let ports = Some("RunPortsClosed");
    let webhook = with_run().await;
    for (connection, refusal) in [
        (into("exec", "proxy"), container),
        (into("exec", "oz"), container),
        (into("exec", "netinit"), container),
        (into("attach", "proxy"), container),
        (into("attach", "oz"), container),
        (into("attach", "netinit"), container),
        (forward(), ports),
        (proxy("pods", "claude-x7k2p:15001"), ports),
    ] {
        let name = match connection.subresource {
            "proxy" => connection.pod.clone(),
            _ => "claude-x7k2p".to_owned(),
        };
        let connection = connection.with_pod_and_user(&name, "root");
        for path in [OBSERVING, ENFORCING, BREAK_GLASS] {
            let before = webhook.recorded().len();
            let answer = connection.to(&webhook, path).await;
            assert_eq!(answer.refusal(), refusal, "{path} {connection:?}");
            assert_eq!(answer.status.code, 403);
            let recorded = webhook.recorded();
            // The second try of one kubectl is not recorded again.
            if path == OBSERVING {
                assert_eq!(recorded.len(), before + 1, "{connection:?}");
            }
            let last = recorded.last().unwrap();
            assert_eq!(last.action.to_string(), "SessionRefused");
            assert_eq!(Some(last.reason.as_str()), refusal);
            assert_eq!(last.pod.as_ref().unwrap().uid, "uid-of-run");
        }
    }
}

#[tokio::test]
async fn agent_of_run_and_containers_of_other_pods_stay_open() {
    let webhook = with_run().await;
    let agent = into("exec", "agent").with_pod_and_user("claude-x7k2p", "bob");
    for path in [OBSERVING, BREAK_GLASS] {
        assert!(agent.to(&webhook, path).await.allowed, "{path}");
    }
    assert_eq!(
        agent.to(&webhook, ENFORCING).await.refusal(),
        Some("NoGrant")
    );
    let webhook = super::webhook([]).await;
    for connection in [into("exec", "proxy"), forward(), into("attach", "oz")] {
        for path in [OBSERVING, BREAK_GLASS] {
            let answer = connection.to(&webhook, path).await;
            assert!(answer.allowed, "{path} {connection:?}");
        }
    }
    // A proxy carries the request of one page each: those to other pods are not recorded.
    let before = webhook.recorded().len();
    let answer = proxy("pods", "web:8080").to(&webhook, OBSERVING).await;
    assert!(answer.allowed);
    assert_eq!(webhook.recorded().len(), before);
}
