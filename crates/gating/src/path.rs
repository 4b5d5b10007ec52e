//! The paths of requests to the gate: exactly one form of a path for each subject. The API server decodes a path before
//! it forwards the path, and it authorizes the path as a whole. The gate therefore rejects every path that a second
//! reader could read differently: escapes, empty segments, dots. [`super::query`] reads the options.

use oz_api::Operation;
use oz_core::connect::Refusal;
use oz_core::gate::{GROUP, RESOURCE, VERSION, of_request, prefix};
use oz_core::validate::dns_subdomain;

use super::query::{Kind, Options};
use crate::recording::PartName;

/// Returns the path of the recordings of a request's sessions, below the address of the API server.
#[must_use]
pub fn recordings(namespace: &str, request: &str) -> String {
    of_request(namespace, request, RECORDINGS)
}

/// Returns the namespace and the name of the request in a path, and the segments from the subresource on. Returns
/// `None` if the path names no request, or names a request in a form that a second reader could read differently.
pub(crate) fn read_request(path: &str) -> Option<(&str, &str, Vec<&str>)> {
    let start = format!("/apis/{GROUP}/{VERSION}/namespaces/");
    let mut segments = path.strip_prefix(&start)?.split('/');
    let (namespace, resource, request) = (segments.next()?, segments.next()?, segments.next()?);
    let is_one =
        resource == RESOURCE && dns_subdomain(namespace).is_ok() && dns_subdomain(request).is_ok();
    is_one.then(|| (namespace, request, segments.collect()))
}

/// The subresource with the recordings of a request's sessions. It requires a separate permission.
pub const RECORDINGS: &str = "recordings";

/// A request for recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recordings {
    /// The namespace of the request.
    pub namespace: String,
    /// The name of the request.
    pub request: String,
    /// One part of a session; `None` for the names of all parts.
    pub part: Option<PartName>,
}

/// Reads the path of a request for recordings. Returns `None` if the path has another subject.
#[must_use]
pub fn read_recordings(path: &str) -> Option<Recordings> {
    let (namespace, request, segments) = read_request(path)?;
    let [RECORDINGS, rest @ ..] = segments.as_slice() else {
        return None;
    };
    let part = match rest {
        [] => None,
        [session, part] => {
            let name = format!("{namespace}/{request}/{session}/{part}");
            Some(PartName::read(&name)?)
        }
        _ => return None,
    };
    Some(Recordings {
        namespace: (*namespace).to_owned(),
        request: (*request).to_owned(),
        part,
    })
}

/// The options of an exec; an attach has the same without the command.
const EXEC: &[(&str, Kind)] = &[
    ("container", Kind::Container),
    ("stdin", Kind::Flag),
    ("stdout", Kind::Flag),
    ("stderr", Kind::Flag),
    ("tty", Kind::Flag),
    ("command", Kind::Word),
];
const ATTACH: &[(&str, Kind)] = EXEC.split_at(EXEC.len() - 1).0;
const LOG: &[(&str, Kind)] = &[
    ("container", Kind::Container),
    ("follow", Kind::Flag),
    ("previous", Kind::Flag),
    ("sinceSeconds", Kind::Number),
    ("sinceTime", Kind::Text),
    ("timestamps", Kind::Flag),
    ("tailLines", Kind::Number),
    ("limitBytes", Kind::Number),
    ("stream", Kind::Text),
    ("pretty", Kind::Text),
];
const LIST: &[(&str, Kind)] = &[
    ("fieldSelector", Kind::Text),
    ("watch", Kind::Flag),
    ("resourceVersion", Kind::Text),
    ("resourceVersionMatch", Kind::Text),
    ("sendInitialEvents", Kind::Flag),
    ("allowWatchBookmarks", Kind::Flag),
    ("timeoutSeconds", Kind::Number),
    ("timeout", Kind::Text),
    ("limit", Kind::Number),
];

/// The content of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The namespace of the request.
    pub namespace: String,
    /// The name of the request.
    pub request: String,
    /// The subject of the path, below the prefix.
    pub rest: Rest,
    /// The options that the gate sends to the API server.
    pub options: Options,
}

impl Path {
    /// Returns the path and query for the API server; `None` for a request that the gate answers without the API
    /// server.
    #[must_use]
    pub fn target(&self) -> Option<String> {
        let path = self.rest.upstream()?;
        let query = self.options.to_query();
        Some(if query.is_empty() {
            path
        } else {
            format!("{path}?{query}")
        })
    }
}

/// The path after the prefix, in the form of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// `/api`: the versions of the core group.
    Versions,
    /// `/apis`: the other groups.
    Groups,
    /// `/api/v1`: the resources of the core group.
    Resources,
    /// A pod, or an operation on it.
    Pod {
        /// The namespace of the pod.
        namespace: String,
        /// The name of the pod.
        pod: String,
        /// The operation on the pod; `None` for a read.
        operation: Option<Operation>,
        /// The container that the options name.
        container: Option<String>,
    },
    /// A list that contains one pod only; with `watch`, the response continues.
    Listed {
        /// The namespace of the pod.
        namespace: String,
        /// The name of the pod.
        pod: String,
        /// True if the request asks for changes.
        watch: bool,
    },
}

impl Rest {
    /// Returns the name in metrics.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match self {
            Self::Versions | Self::Groups | Self::Resources => "discovery",
            Self::Pod {
                operation: None, ..
            } => "pod",
            Self::Pod {
                operation: Some(operation),
                ..
            } => title(*operation),
            Self::Listed { watch: false, .. } => "list",
            Self::Listed { watch: true, .. } => "watch",
        }
    }

    /// Checks whether the response continues for as long as the client reads it.
    #[must_use]
    pub fn lasts(&self) -> bool {
        let is_log = matches!(
            self,
            Self::Pod {
                operation: Some(Operation::Log),
                ..
            }
        );
        is_log || self.is_session() || matches!(self, Self::Listed { watch: true, .. })
    }

    /// Checks whether the request adds a container.
    #[must_use]
    pub fn adds(&self) -> bool {
        matches!(
            self,
            Self::Pod {
                operation: Some(Operation::Debug),
                ..
            }
        )
    }

    /// Checks whether the request opens a connection with streams in both directions.
    #[must_use]
    pub fn is_session(&self) -> bool {
        matches!(
            self,
            Self::Pod {
                operation: Some(Operation::Exec | Operation::Attach | Operation::PortForward),
                ..
            }
        )
    }

    /// Returns the path of the API server for a pod; `None` for a request that the gate answers without the API server.
    #[must_use]
    pub fn upstream(&self) -> Option<String> {
        let (namespace, pod, operation) = match self {
            Self::Pod {
                namespace,
                pod,
                operation,
                ..
            } => (namespace, pod, operation),
            Self::Listed { namespace, .. } => {
                return Some(format!("/api/v1/namespaces/{namespace}/pods"));
            }
            Self::Versions | Self::Groups | Self::Resources => return None,
        };
        let mut path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
        if let Some(operation) = operation {
            path.push('/');
            path.push_str(title(*operation));
        }
        Some(path)
    }
}

/// Returns the subresource of a pod for an operation.
fn title(operation: Operation) -> &'static str {
    match operation {
        Operation::Exec => "exec",
        Operation::Attach => "attach",
        Operation::PortForward => "portforward",
        Operation::Log => "log",
        Operation::Debug => "ephemeralcontainers",
    }
}

/// Reads a request line; `method`, `path` and `query` are as received.
///
/// # Errors
/// If the gate does not know the form. The error names an alternative.
pub fn read(method: &str, path: &str, query: Option<&str>) -> Result<Path, Refusal> {
    let (namespace, request, segments) = read_request(path).ok_or_else(|| malformed(path))?;
    let ["proxy", rest @ ..] = segments.as_slice() else {
        return Err(malformed(path));
    };
    let (rest, options) = read_rest(path, rest, query.unwrap_or_default())?;
    let good = match method {
        "GET" => !rest.adds(),
        "POST" => rest.is_session(),
        "PATCH" => rest.adds(),
        _ => false,
    };
    if !good {
        return Err(Refusal::new(
            "MethodNotAllowed",
            format!(
                "the gate forwards GET, POST for exec, attach and port-forward, and PATCH for \
                 kubectl debug; not {method} for this path"
            ),
        ));
    }
    Ok(Path {
        namespace: (*namespace).to_owned(),
        request: (*request).to_owned(),
        rest,
        options,
    })
}

fn read_rest(path: &str, segments: &[&str], query: &str) -> Result<(Rest, Options), Refusal> {
    // The gate answers these in the same way for all options.
    let discovery = |rest| Ok((rest, Options::default()));
    let (namespace, pod, subresource) = match segments {
        ["api"] => return discovery(Rest::Versions),
        ["apis"] => return discovery(Rest::Groups),
        ["api", "v1"] => return discovery(Rest::Resources),
        ["api", "v1", "namespaces", namespace, "pods"] => return listed(path, namespace, query),
        ["api", "v1", "namespaces", namespace, "pods", pod] => (*namespace, *pod, None),
        [
            "api",
            "v1",
            "namespaces",
            namespace,
            "pods",
            pod,
            subresource,
        ] => (*namespace, *pod, Some(*subresource)),
        _ => return Err(elsewhere(path)),
    };
    if dns_subdomain(namespace).is_err() || dns_subdomain(pod).is_err() {
        return Err(elsewhere(path));
    }
    let operation = match subresource {
        None => None,
        Some("exec") => Some(Operation::Exec),
        Some("attach") => Some(Operation::Attach),
        Some("portforward") => Some(Operation::PortForward),
        Some("log") => Some(Operation::Log),
        Some("ephemeralcontainers") => Some(Operation::Debug),
        Some(_) => return Err(elsewhere(path)),
    };
    let options = Options::read(query, options_for(operation))?;
    let rest = Rest::Pod {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        operation,
        container: options.container().map(ToOwned::to_owned),
    };
    Ok((rest, options))
}

/// Reads a list of pods that selects one pod by its name, as kubectl does to wait for a pod.
fn listed(path: &str, namespace: &str, query: &str) -> Result<(Rest, Options), Refusal> {
    // Other options can list other pods.
    let options = Options::read(query, LIST).map_err(|refusal| match refusal.reason {
        "OptionUnknown" => elsewhere(path),
        _ => refusal,
    })?;
    let selected = options.text("fieldSelector");
    let pod = selected.and_then(|value| value.strip_prefix("metadata.name="));
    match pod.filter(|pod| dns_subdomain(pod).is_ok()) {
        Some(pod) if dns_subdomain(namespace).is_ok() => {
            let rest = Rest::Listed {
                namespace: namespace.to_owned(),
                pod: pod.to_owned(),
                watch: options.watch(),
            };
            Ok((rest, options))
        }
        _ => Err(elsewhere(path)),
    }
}

/// Returns the options that the gate knows for an operation.
fn options_for(operation: Option<Operation>) -> &'static [(&'static str, Kind)] {
    match operation {
        None => &[("pretty", Kind::Text), ("resourceVersion", Kind::Text)],
        Some(Operation::Exec) => EXEC,
        Some(Operation::Attach) => ATTACH,
        Some(Operation::PortForward) => &[("ports", Kind::Ports)],
        Some(Operation::Log) => LOG,
        Some(Operation::Debug) => &[],
    }
}

fn malformed(path: &str) -> Refusal {
    Refusal::new(
        "PathMalformed",
        format!(
            "{path:?} is not a path of the gate: these begin with {}, and no part of them may be \
                escaped",
            prefix("NAMESPACE", "REQUEST")
        ),
    )
}

fn elsewhere(path: &str) -> Refusal {
    Refusal::new(
        "PathNotServed",
        format!(
            "{path:?} is not forwarded: the gate serves get, exec, attach, port-forward, logs and \
             debug of the pod of one request, by its name; use kubectl without --server for all \
             else"
        ),
    )
}
