//! The connections to the pod of a harness run that no user opens: those to the containers that hold its credentials,
//! and those to its ports. The proxy holds values that the agent never receives, and the key of the authority that the
//! agent trusts; a connection to a port would use the proxy from outside the run. The rule applies in every namespace,
//! and to break-glass groups as well: the repair of a cluster requires none of these values.

use std::collections::BTreeSet;

use crate::kinds::Kind as _;
use k8s_openapi::api::core::v1::Pod;
use oz_api::harness::HarnessRun;
use oz_api::harness::interception::{PROXY_USER, REPORTER_USER};

use super::{Attempt, ConnectionKind, Refusal};

/// The containers of a run's pod that no user enters: the proxy, the reporter of events, and the container that sets
/// up the interception.
const CLOSED_CONTAINERS: [&str; 3] = ["proxy", "oz", "netinit"];
/// The container that is the reporter of events if the template names no runtime.
const RUNTIME: &str = "runtime";

/// Returns the containers of a run's pod that no user enters: those with the fixed names, and those with the users that
/// have connections which leave the pod without the proxy. `None` stands for a pod that could not be read.
#[must_use]
pub fn closed(pod: Option<&Pod>) -> BTreeSet<String> {
    let mut closed: BTreeSet<String> = CLOSED_CONTAINERS.map(ToOwned::to_owned).into();
    let Some(spec) = pod.and_then(|pod| pod.spec.as_ref()) else {
        closed.insert(RUNTIME.to_owned());
        return closed;
    };
    let all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let leaves = all.filter(|container| {
        let context = container.security_context.as_ref();
        let user = context.and_then(|context| context.run_as_user);
        user.is_some_and(|user| [PROXY_USER, REPORTER_USER].map(i64::from).contains(&user))
    });
    closed.extend(leaves.map(|container| container.name.clone()));
    closed
}

/// Checks whether a label value of a pod, the kind of its owner, is that of the pod of a harness run. Only the Job
/// controller creates such pods, and the label is never removed.
#[must_use]
pub fn is_of_run(owner_kind: Option<&str>) -> bool {
    owner_kind == Some(HarnessRun::title())
}

/// Refuses a connection to the pod of a harness run that would lead to its credentials.
///
/// # Errors
/// The refusal, with the alternative.
pub fn permitted(attempt: &Attempt<'_>, closed: &BTreeSet<String>) -> Result<(), Box<Refusal>> {
    let (pod, namespace) = (attempt.pod, attempt.namespace);
    match attempt.way {
        ConnectionKind::Exec | ConnectionKind::Attach => {
            let container = attempt.container.filter(|name| closed.contains(*name));
            let Some(container) = container else {
                return Ok(());
            };
            Err(Box::new(Refusal::new(
                "RunContainerClosed",
                format!(
                    "no user enters container {container} of pod {pod} in namespace {namespace}, which is the pod of \
                     a harness run and holds credentials there; use container agent, or ozctl run explain"
                ),
            )))
        }
        ConnectionKind::PortForward | ConnectionKind::Proxy => Err(Box::new(Refusal::new(
            "RunPortsClosed",
            format!(
                "no user connects to the ports of pod {pod} in namespace {namespace}, which is the pod of a harness \
                 run; read its output with ozctl run events or kubectl logs"
            ),
        ))),
        // A service may lead to any pod, and the name of one is no pod's. Other hooks and policies decide about changes.
        ConnectionKind::ServiceProxy
        | ConnectionKind::EphemeralContainer
        | ConnectionKind::Image
        | ConnectionKind::Resize => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{timestamp, user};
    use super::*;

    fn refused(way: ConnectionKind, container: Option<&str>) -> Option<&'static str> {
        let user = user("root", &["system:masters"]);
        let attempt = Attempt {
            now: timestamp(0),
            user: &user,
            namespace: "shop",
            pod: "claude-x7k2p",
            way,
            container,
            argv: &[],
            tty: false,
            stdin: false,
            ticket: None,
        };
        permitted(&attempt, &closed(Some(&pod())))
            .err()
            .map(|refusal| refusal.reason)
    }

    /// A pod of a run without a runtime image.
    fn pod() -> Pod {
        let container = |name: &str, user: u32| serde_json::json!({"name": name, "securityContext": {"runAsUser": user}});
        let spec = serde_json::json!({
            "initContainers": [container("runtime", 1338), container("proxy", 1337)],
            "containers": [container("agent", 65532)],
        });
        serde_json::from_value(serde_json::json!({"spec": spec})).unwrap()
    }

    #[test]
    fn runtime_is_closed_if_it_is_the_reporter_or_the_pod_is_unknown() {
        assert!(closed(Some(&pod())).contains("runtime"));
        assert!(closed(None).contains("runtime"));
        let mut other = pod();
        let spec = other.spec.as_mut().unwrap();
        spec.init_containers.as_mut().unwrap()[0].security_context = None;
        assert!(!closed(Some(&other)).contains("runtime"));
        assert!(closed(Some(&other)).contains("oz"));
    }

    #[test]
    fn containers_with_credentials_and_all_ports_are_closed() {
        let container = Some("RunContainerClosed");
        let ports = Some("RunPortsClosed");
        for (way, name, reason) in [
            (ConnectionKind::Exec, Some("proxy"), container),
            (ConnectionKind::Exec, Some("oz"), container),
            (ConnectionKind::Exec, Some("netinit"), container),
            (ConnectionKind::Attach, Some("proxy"), container),
            (ConnectionKind::Attach, Some("oz"), container),
            (ConnectionKind::Exec, Some("agent"), None),
            (ConnectionKind::Exec, Some("runtime"), container),
            (ConnectionKind::Exec, Some("proxy2"), None),
            // The API server takes the only container, which is the agent's.
            (ConnectionKind::Exec, None, None),
            (ConnectionKind::Attach, Some("agent"), None),
            (ConnectionKind::PortForward, None, ports),
            (ConnectionKind::Proxy, None, ports),
            (ConnectionKind::ServiceProxy, None, None),
            (ConnectionKind::Image, None, None),
            (ConnectionKind::Resize, None, None),
            (ConnectionKind::EphemeralContainer, Some("debug"), None),
        ] {
            assert_eq!(refused(way, name), reason, "{way:?} {name:?}");
        }
    }

    #[test]
    fn only_pods_of_runs_are_concerned() {
        assert!(is_of_run(Some("HarnessRun")));
        for other in [None, Some(""), Some("Workspace"), Some("harnessrun")] {
            assert!(!is_of_run(other), "{other:?}");
        }
    }
}
