//! The ways to connect to a pod that the API server can review, and the meaning of the name of a connection.

use oz_api::Operation;

/// The way in which a user connects to a pod, or makes it run other code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionKind {
    /// `pods/exec`.
    Exec,
    /// `pods/attach`.
    Attach,
    /// `pods/portforward`.
    PortForward,
    /// HTTP to a port of the pod through the API server, `pods/proxy`.
    Proxy,
    /// HTTP to any pod behind a service, `services/proxy`. No grant covers that.
    ServiceProxy,
    /// A new container in the running pod, `pods/ephemeralcontainers`. It is added through the gate only.
    EphemeralContainer,
    /// Another image in a container of the running pod, which keeps its UID. No grant covers that.
    Image,
    /// Other limits for the running pod, `pods/resize`: too few of them kill it. No grant covers that.
    Resize,
}

impl ConnectionKind {
    /// Returns the way that belongs to a resource and its subresource; `None` is the resource itself.
    #[must_use]
    pub fn from_resource(resource: &str, subresource: Option<&str>) -> Option<Self> {
        match (resource, subresource) {
            ("pods", Some("exec")) => Some(Self::Exec),
            ("pods", Some("attach")) => Some(Self::Attach),
            ("pods", Some("portforward")) => Some(Self::PortForward),
            ("pods", Some("proxy")) => Some(Self::Proxy),
            ("services", Some("proxy")) => Some(Self::ServiceProxy),
            ("pods", Some("ephemeralcontainers")) => Some(Self::EphemeralContainer),
            ("pods", None) => Some(Self::Image),
            ("pods", Some("resize")) => Some(Self::Resize),
            _ => None,
        }
    }

    /// Returns the name of the way for users.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "port-forward",
            Self::Proxy => "proxy",
            Self::ServiceProxy => "service proxy",
            Self::EphemeralContainer => "ephemeral container",
            Self::Image => "image",
            Self::Resize => "resize",
        }
    }

    /// Returns the kind of object that the name of the connection identifies.
    #[must_use]
    pub fn target(self) -> &'static str {
        match self {
            Self::ServiceProxy => "service",
            _ => "pod",
        }
    }

    /// Returns the verb for the action on the target.
    #[must_use]
    pub fn verb(self) -> &'static str {
        if self.has_options() {
            "connect to"
        } else {
            "change"
        }
    }

    /// Returns the name of the pod or service: proxies are requested as `name`, `name:port` or
    /// `scheme:name:port`.
    #[must_use]
    pub fn target_name(self, name: &str) -> &str {
        let proxied = matches!(self, Self::Proxy | Self::ServiceProxy);
        let mut parts = name.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(target), Some(_), None) | (_, Some(target), Some(_)) if proxied => target,
            _ => name,
        }
    }

    /// Returns the operation of a grant that covers the way, if one does.
    #[must_use]
    pub fn operation(self) -> Option<Operation> {
        match self {
            Self::Exec => Some(Operation::Exec),
            Self::Attach => Some(Operation::Attach),
            Self::PortForward | Self::Proxy => Some(Operation::PortForward),
            Self::EphemeralContainer => Some(Operation::Debug),
            Self::ServiceProxy | Self::Image | Self::Resize => None,
        }
    }

    /// Checks whether the way leads into one container, rather than to the pod as a whole.
    pub(super) fn enters_a_container(self) -> bool {
        !matches!(
            self,
            Self::PortForward | Self::Proxy | Self::EphemeralContainer
        )
    }

    /// Returns the fields that the options of such a connection have. Further fields have a meaning that oz
    /// cannot judge.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Exec => &["stdin", "stdout", "stderr", "tty", "container", "command"],
            Self::Attach => &["stdin", "stdout", "stderr", "tty", "container"],
            Self::PortForward => &["ports"],
            Self::Proxy | Self::ServiceProxy => &["path"],
            Self::EphemeralContainer | Self::Image | Self::Resize => &[],
        }
    }

    /// Checks whether the way opens a connection, of which the options are reviewed; otherwise the pod is
    /// reviewed.
    #[must_use]
    pub fn has_options(self) -> bool {
        !self.options().is_empty()
    }

    /// Returns the first unknown option.
    #[must_use]
    pub fn unknown_option(self, options: &serde_json::Value) -> Option<&str> {
        let known =
            |name: &str| self.options().contains(&name) || ["kind", "apiVersion"].contains(&name);
        let mut fields = options.as_object().filter(|_| self.has_options())?.iter();
        fields
            .find(|(name, value)| !value.is_null() && !known(name))
            .map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_proxy_names_its_target_with_scheme_and_port() {
        for (name, pod) in [
            ("web-0", "web-0"),
            ("web-0:8080", "web-0"),
            ("https:web-0:8443", "web-0"),
            ("http:web-0:", "web-0"),
            ("https:web-0:a:b", "web-0"),
            (":web-0:", "web-0"),
        ] {
            assert_eq!(ConnectionKind::Proxy.target_name(name), pod, "{name}");
            assert_eq!(
                ConnectionKind::ServiceProxy.target_name(name),
                pod,
                "{name}"
            );
            assert_eq!(ConnectionKind::Exec.target_name(name), name, "{name}");
        }
    }

    #[test]
    fn options_that_are_not_known_are_found_and_empty_ones_are_none() {
        let exec = json!({
            "kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "stdout": true,
            "stderr": true, "tty": true, "container": "app", "command": ["sh"],
        });
        assert_eq!(ConnectionKind::Exec.unknown_option(&exec), None);
        assert_eq!(
            ConnectionKind::Attach.unknown_option(&exec),
            Some("command")
        );
        for (name, value, found) in [
            (
                "env",
                json!([{ "name": "LD_PRELOAD", "value": "/tmp/x" }]),
                Some("env"),
            ),
            ("env", json!([]), Some("env")),
            ("env", json!(null), None),
            ("user", json!("root"), Some("user")),
        ] {
            let mut options = exec.clone();
            options[name] = value;
            assert_eq!(
                ConnectionKind::Exec.unknown_option(&options),
                found,
                "{options}"
            );
        }
        let forward = json!({ "kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80] });
        assert_eq!(ConnectionKind::PortForward.unknown_option(&forward), None);
        let proxy = json!({ "kind": "PodProxyOptions", "apiVersion": "v1", "path": "/" });
        assert_eq!(ConnectionKind::Proxy.unknown_option(&proxy), None);
        assert_eq!(
            ConnectionKind::Image.unknown_option(&json!({ "spec": {} })),
            None
        );
    }
}
