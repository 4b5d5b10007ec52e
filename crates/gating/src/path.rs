//! What is asked of the gate: one form of a path for each thing, and no other. The API server decodes a path
//! before it passes it on, and what it authorized was read from the path as a whole; so whatever could be read
//! in two ways is refused: escapes, empty segments, dots. The options are read by [`super::query`].

use oz_api::Operation;
use oz_core::connect::Refusal;
use oz_core::gate::{GROUP, RESOURCE, VERSION, of_request, prefix};
use oz_core::validate::dns_subdomain;

use super::query::{Kind, Options};
use crate::recording::PartName;

/// Where recordings of a request's sessions are read, below the address of the API server.
#[must_use]
pub fn recordings(namespace: &str, request: &str) -> String {
    of_request(namespace, request, RECORDINGS)
}

/// Namespace and name of the request that a path is about, and the segments from the subresource on; `None` if it is
/// about no request, or names one in a form that could be read in two ways.
pub(crate) fn read_request(path: &str) -> Option<(&str, &str, Vec<&str>)> {
    let start = format!("/apis/{GROUP}/{VERSION}/namespaces/");
    let mut segments = path.strip_prefix(&start)?.split('/');
    let (namespace, resource, request) = (segments.next()?, segments.next()?, segments.next()?);
    let is_one =
        resource == RESOURCE && dns_subdomain(namespace).is_ok() && dns_subdomain(request).is_ok();
    is_one.then(|| (namespace, request, segments.collect()))
}

/// The subresource that is the recordings of a request's sessions; a right of its own.
pub const RECORDINGS: &str = "recordings";

/// Whose recordings are asked for, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recordings {
    /// The namespace of the request.
    pub namespace: String,
    /// The name of the request.
    pub request: String,
    /// One part of a session; `None` for the names of all there are.
    pub part: Option<PartName>,
}

/// Which recordings a path means; `None` if it is about something else.
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

/// The options of an exec; those of an attach are all but the command.
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

/// What is asked for, by the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The namespace of the request.
    pub namespace: String,
    /// The name of the request.
    pub request: String,
    /// What of it.
    pub rest: Rest,
    /// The options that the API server is sent.
    pub options: Options,
}

impl Path {
    /// Path and query that the API server is asked for; `None` for what the gate answers itself.
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

/// What follows the prefix: what the API server itself has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// `/api`: the versions of the core group.
    Versions,
    /// `/apis`: the other groups.
    Groups,
    /// `/api/v1`: the resources of the core group.
    Resources,
    /// A pod, or what can be done with it.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        pod: String,
        /// What is done with it; `None` if it is looked at.
        operation: Option<Operation>,
        /// The container that is named.
        container: Option<String>,
    },
    /// One pod, as a list of which it is all; what is asked with `watch` goes on.
    Listed {
        /// Its namespace.
        namespace: String,
        /// Its name.
        pod: String,
        /// Whether changes are asked for.
        watch: bool,
    },
}

impl Rest {
    /// What it is called in metrics.
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

    /// Whether the answer goes on for as long as somebody reads it.
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

    /// Whether it adds a container.
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

    /// Whether it opens a connection that carries streams both ways.
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

    /// The path that the API server itself has for a pod; `None` for what the gate answers.
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

/// The subresource of a pod that an operation is.
fn title(operation: Operation) -> &'static str {
    match operation {
        Operation::Exec => "exec",
        Operation::Attach => "attach",
        Operation::PortForward => "portforward",
        Operation::Log => "log",
        Operation::Debug => "ephemeralcontainers",
    }
}

/// What a request line means; `method`, `path` and `query` as they came.
///
/// # Errors
/// If it is none of the forms that the gate knows, with what to use instead.
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
                "the gate passes on GET, POST for exec, attach and port-forward, and PATCH for what kubectl debug \
                 adds; not {method} of this"
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
    // The gate answers these alike, whatever is asked.
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
    let options = Options::read(query, known(operation))?;
    let rest = Rest::Pod {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        operation,
        container: options.container().map(ToOwned::to_owned),
    };
    Ok((rest, options))
}

/// A list of pods that is about one, by its name, as kubectl waits for a pod.
fn listed(path: &str, namespace: &str, query: &str) -> Result<(Rest, Options), Refusal> {
    // Who lists by other options lists other pods.
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

/// The options that the gate knows of an operation.
fn known(operation: Option<Operation>) -> &'static [(&'static str, Kind)] {
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
            "{path:?} is no path of the gate's: these begin with {}, and nothing in them may be escaped",
            prefix("NAMESPACE", "REQUEST")
        ),
    )
}

fn elsewhere(path: &str) -> Refusal {
    Refusal::new(
        "NotThroughTheGate",
        format!(
            "{path:?} is not passed on: the gate is for get, exec, attach, port-forward, logs and debug of the pod \
             of one request, by its name; use kubectl without --server for all else"
        ),
    )
}
