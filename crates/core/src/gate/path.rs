//! What is asked of the gate: one form of a path for each thing, and no other. The API server decodes a path
//! before it passes it on, and what it authorized was read from the path as a whole; so whatever could be read
//! in two ways is refused: escapes, empty segments, dots, a query that names a thing twice.

use crate::api::Operation;
use crate::connect::Refusal;
use crate::recording::PartName;
use crate::validate::dns_subdomain;

/// The group that the gate serves.
pub const GROUP: &str = "gate.oz.wizardofoz.co";
/// Its version.
pub const VERSION: &str = "v1alpha1";
/// The resource: one for each request. Its subresource is called `proxy`, since what is called so may last.
pub const RESOURCE: &str = "gates";

/// Where a user sends what the gate passes on for a request, below the address of the API server.
#[must_use]
pub fn prefix(namespace: &str, request: &str) -> String {
    of_request(namespace, request, "proxy")
}

/// Where recordings of a request's sessions are read, below the address of the API server.
#[must_use]
pub fn recordings(namespace: &str, request: &str) -> String {
    of_request(namespace, request, RECORDINGS)
}

/// Where a subresource of a request's gate is, below the address of the API server.
pub(super) fn of_request(namespace: &str, request: &str, subresource: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{RESOURCE}/{request}/{subresource}")
}

/// Namespace and name of the request that a path is about, and the segments from the subresource on; `None` if it is
/// about no request, or names one in a form that could be read in two ways.
pub(super) fn read_request(path: &str) -> Option<(&str, &str, Vec<&str>)> {
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

/// The longest query that is read, in bytes: a command is in it.
pub const MAX_QUERY: usize = 64 << 10;

/// What is asked for, by the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The namespace of the request.
    pub namespace: String,
    /// The name of the request.
    pub request: String,
    /// What of it.
    pub rest: Rest,
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
    let query = read_query(query.unwrap_or_default())?;
    let rest = read_rest(path, rest, &query)?;
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
    })
}

fn read_rest(path: &str, segments: &[&str], query: &[(&str, &str)]) -> Result<Rest, Refusal> {
    let (namespace, pod, subresource) = match segments {
        ["api"] => return Ok(Rest::Versions),
        ["apis"] => return Ok(Rest::Groups),
        ["api", "v1"] => return Ok(Rest::Resources),
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
    let container = options(operation, query)?;
    Ok(Rest::Pod {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        operation,
        container,
    })
}

/// A list of pods that is about one, by its name, as kubectl waits for a pod.
fn listed(path: &str, namespace: &str, query: &[(&str, &str)]) -> Result<Rest, Refusal> {
    const KNOWN: [&str; 9] = [
        "fieldSelector",
        "watch",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "timeoutSeconds",
        "timeout",
        "limit",
    ];
    let mut names: Vec<&str> = query.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let twice = names.windows(2).any(|pair| pair[0] == pair[1]);
    if twice || names.iter().any(|name| !KNOWN.contains(name)) {
        return Err(elsewhere(path));
    }
    let value = |wanted: &str| {
        let mut found = query.iter().filter(|(name, _)| *name == wanted);
        found.next().map(|(_, value)| *value)
    };
    let selected = value("fieldSelector").and_then(|value| value.strip_prefix("metadata.name%3D"));
    let pod = selected.filter(|pod| dns_subdomain(pod).is_ok());
    let watch = match value("watch") {
        None => Some(false),
        Some("true" | "1") => Some(true),
        Some(_) => None,
    };
    match (pod, watch) {
        (Some(pod), Some(watch)) if dns_subdomain(namespace).is_ok() => Ok(Rest::Listed {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            watch,
        }),
        _ => Err(elsewhere(path)),
    }
}

/// Names and values of a query, of which no name needs an escape.
fn read_query(query: &str) -> Result<Vec<(&str, &str)>, Refusal> {
    if query.len() > MAX_QUERY {
        return Err(Refusal::new(
            "QueryTooLong",
            format!(
                "the query is longer than {MAX_QUERY} bytes; pass what is long through standard input"
            ),
        ));
    }
    let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let good = plain(name) && !value.contains(';');
            good.then_some((name, value)).ok_or_else(|| {
                Refusal::new(
                    "QueryMalformed",
                    "the query cannot be read; leave out what is escaped in its names",
                )
            })
        })
        .collect()
}

/// Whether every option is known; gives back the container that is named.
fn options(
    operation: Option<Operation>,
    query: &[(&str, &str)],
) -> Result<Option<String>, Refusal> {
    const EXEC: &[&str] = &["container", "stdin", "stdout", "stderr", "tty", "command"];
    const ATTACH: &[&str] = &["container", "stdin", "stdout", "stderr", "tty"];
    const LOG: &[&str] = &[
        "container",
        "follow",
        "previous",
        "sinceSeconds",
        "sinceTime",
        "timestamps",
        "tailLines",
        "limitBytes",
        "stream",
        "pretty",
    ];
    let known = match operation {
        None => &["pretty", "resourceVersion"][..],
        Some(Operation::Exec) => EXEC,
        Some(Operation::Attach) => ATTACH,
        Some(Operation::PortForward) => &["ports"],
        Some(Operation::Log) => LOG,
        Some(Operation::Debug) => &[],
    };
    if let Some((name, _)) = query.iter().find(|(name, _)| !known.contains(name)) {
        return Err(Refusal::new(
            "OptionUnknown",
            format!("the gate does not know the option {name:?} of this; leave it out"),
        ));
    }
    let named: Vec<&str> = query
        .iter()
        .filter(|(name, _)| *name == "container")
        .map(|(_, value)| *value)
        .collect();
    match named.as_slice() {
        [] | [""] => Ok(None),
        [one] if dns_subdomain(one).is_ok() => Ok(Some((*one).to_owned())),
        _ => Err(Refusal::new(
            "ContainerMalformed",
            "name one container, by its name",
        )),
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
