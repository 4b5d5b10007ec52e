//! Failures for users: the failure and the next step. Kubernetes' own denials are put into plain words; any further
//! text in them is kept.

use kube::client::AuthError;
use kube::core::Status;
use oz_api::IdentityError;

use crate::exit::Exit;

const CHECK_SERVER: &str = "check that the server of your kubeconfig is an API server, and that no \
                            proxy answers in its place: `kubectl config view --minify`";
const LOG_IN: &str = "log in again with the tool that provides your kubeconfig's credentials";
const UNKNOWN_KIND: &str = "oz's CustomResourceDefinitions are not installed in the cluster";

/// An error for a user at a terminal.
#[derive(Debug)]
pub struct Failure {
    message: String,
    next: Option<String>,
    exit: Exit,
    /// The HTTP status, if the API server responded with one.
    status: Option<u16>,
    passes: bool,
}

/// The result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Creates a failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            next: None,
            exit: Exit::FAILURE,
            status: None,
            passes: false,
        }
    }

    /// Marks the failure as transient: a retry may succeed.
    pub fn passing(mut self) -> Self {
        self.passes = true;
        self
    }

    /// Marks the failure as one about an object that does not exist.
    pub fn not_found(mut self) -> Self {
        self.status = Some(404);
        self
    }

    /// Sets the next step. A known next step is kept.
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next.get_or_insert_with(|| next.into());
        self
    }

    /// Adds an alternative next step.
    pub fn or_next(mut self, next: &str) -> Self {
        self.next = Some(match self.next.take() {
            Some(known) => format!("{known}; or {next}"),
            None => next.to_owned(),
        });
        self
    }

    /// Sets an exit code other than 1.
    pub fn with(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Adds the operation that failed.
    pub fn during(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Adds an earlier failure, after which this one was the second attempt.
    #[must_use]
    pub fn after(mut self, first: &Self) -> Self {
        self.message = format!("{}; {}", first.message, self.message);
        self
    }

    /// Returns the exit code of a process that ends with this failure.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the next step, if it is known.
    pub fn next_step(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Checks whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status == Some(404) && !self.is_unknown_kind()
    }

    /// Checks whether the API server does not serve the kind at all.
    pub fn is_unknown_kind(&self) -> bool {
        self.status == Some(404) && self.message.contains(UNKNOWN_KIND)
    }

    /// Checks whether a retry may succeed: the API server is busy, restarts, or cannot be reached at the moment.
    pub fn passes(&self) -> bool {
        self.passes || self.status.is_some_and(|code| code == 429 || code >= 500)
    }

    /// Checks whether the requested version is too old to resume from.
    pub fn is_gone(&self) -> bool {
        self.status == Some(410)
    }

    /// Checks whether the API server denied the request to the user.
    pub fn is_forbidden(&self) -> bool {
        self.status == Some(403)
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => of_status(&status),
            kube::Error::Auth(AuthError::AuthExecRun { cmd, out }) => {
                let said = String::from_utf8_lossy(&out.stderr);
                Self::new(format!(
                    "the credential plugin {cmd} ended with {}: {}",
                    out.status,
                    said.trim()
                ))
                .next(LOG_IN)
            }
            kube::Error::Auth(error) => {
                Self::new(format!("failed to get credentials: {error}")).next(LOG_IN)
            }
            kube::Error::Service(error) => {
                unreachable(&error.to_string(), &chain(&*error)).passing()
            }
            kube::Error::HyperError(error) => {
                unreachable(&error.to_string(), &chain(&error)).passing()
            }
            kube::Error::SerdeError(error) => Self::new(format!(
                "the response is not of the Kubernetes API: {error}"
            ))
            .next(CHECK_SERVER),
            error => Self::new(chain(&error)),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)?;
        match &self.next {
            Some(next) => write!(formatter, "; {next}"),
            None => Ok(()),
        }
    }
}

// The command line's parser accepts only this.
impl std::error::Error for Failure {}

impl From<IdentityError> for Failure {
    fn from(error: IdentityError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

fn unreachable(short: &str, long: &str) -> Failure {
    let message = format!("failed to connect to the API server: {long}");
    let failure = Failure::new(message);
    if long.contains("certificate") || short.contains("certificate") {
        return failure.next(
            "check certificate-authority and server in your kubeconfig: `kubectl config view --minify`",
        );
    }
    failure.next("check that the cluster of your kubeconfig is up: `kubectl config view --minify`")
}

/// Returns an error and its causes, each once.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let one = error.to_string();
        if !text.contains(&one) {
            text.push_str(": ");
            text.push_str(&one);
        }
        cause = error.source();
    }
    text
}

fn of_status(status: &Status) -> Failure {
    let (message, next) = readable(&status.message, status.code);
    Failure {
        message,
        next,
        exit: Exit::FAILURE,
        status: Some(status.code),
        passes: false,
    }
}

/// Returns Kubernetes' text in plain words, and the next step.
fn readable(text: &str, code: u16) -> (String, Option<String>) {
    if let Some((hook, said)) = of_admission(text) {
        let refused = match code {
            500.. => format!("{hook} did not respond: {said}"),
            _ => said.to_owned(),
        };
        let next = (code >= 500)
            .then(|| "oz's webhook may be down: `ozctl doctor` shows the cause".to_owned());
        return (refused, next);
    }
    if let Some(denial) = Denial::read(text) {
        return (denial.to_string(), Some(denial.next()));
    }
    if code == 404
        && (text.contains("could not find the requested resource")
            || text.contains("page not found"))
    {
        return (
            UNKNOWN_KIND.to_owned(),
            Some(
                "have an administrator install oz, or choose another cluster with --context"
                    .to_owned(),
            ),
        );
    }
    if code == 401 {
        return (
            "the API server does not accept your credentials".to_owned(),
            Some(LOG_IN.to_owned()),
        );
    }
    match text.trim_start() {
        "" => (format!("the API server responded {code}"), None),
        page if page.starts_with('<') => (
            format!("the server responded {code} with a page that is not of the Kubernetes API"),
            Some(CHECK_SERVER.to_owned()),
        ),
        _ => (text.to_owned(), None),
    }
}

/// Parses `admission webhook "vexecaccessrequest.kb.io" denied the request: …`, and the error for a webhook that
/// cannot be called.
fn of_admission(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix("admission webhook \"") {
        let (hook, rest) = rest.split_once('"')?;
        let said = rest
            .strip_prefix(" denied the request: ")
            .or_else(|| rest.strip_prefix(" denied the request"))?;
        return Some((hook, said));
    }
    let rest = text.split_once("failed calling webhook \"")?.1;
    let (hook, said) = rest.split_once("\": ")?;
    Some((hook, said))
}

/// The parts of `pods "x" is forbidden: User "alice" cannot create resource "pods/exec" in API group "" in the
/// namespace "shop"`.
struct Denial<'a> {
    user: &'a str,
    verb: &'a str,
    resource: &'a str,
    namespace: Option<&'a str>,
    rest: &'a str,
}

impl<'a> Denial<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let rest = text.split_once(" is forbidden: User \"")?.1;
        let (user, rest) = rest.split_once("\" cannot ")?;
        let (verb, rest) = rest.split_once(" resource \"")?;
        let (resource, rest) = rest.split_once('"')?;
        let (namespace, rest) = match rest.split_once(" in the namespace \"") {
            Some((_, rest)) => {
                let (namespace, rest) = rest.split_once('"')?;
                (Some(namespace), rest)
            }
            None => match rest.split_once(" at the cluster scope") {
                Some((_, rest)) => (None, rest),
                // The text ends with the resource.
                None => (None, ""),
            },
        };
        Some(Self {
            user,
            verb,
            resource,
            namespace,
            rest: rest.trim_start_matches([':', ' ']),
        })
    }

    fn next(&self) -> String {
        let namespace = self.namespace.unwrap_or("NAMESPACE");
        let role = match (self.resource, self.verb) {
            (resource, "create" | "delete") if resource.ends_with("accessrequests") => {
                "oz-request-access"
            }
            (resource, "get" | "list" | "watch")
                if resource.ends_with("accessrequests")
                    || resource.ends_with("accesstemplates") =>
            {
                "oz-view-access"
            }
            (resource, _) if resource.ends_with("accesstemplates") => "oz-template-manager-role",
            ("accessrequestapprovals", _) => "oz-approve-access",
            ("accessreviews", _) => "oz-review-access",
            (resource, _) if resource.starts_with("pods") => {
                return "request access first: `ozctl templates` lists the templates".to_owned();
            }
            _ => return "ask an administrator of the cluster for this right".to_owned(),
        };
        format!(
            "have an administrator bind the ClusterRole {role} to you: \
             `kubectl create rolebinding {role} -n {namespace} --clusterrole={role} --user={}`",
            self.user
        )
    }
}

impl std::fmt::Display for Denial<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            user,
            verb,
            resource,
            ..
        } = self;
        write!(formatter, "{user} may not {verb} {resource}")?;
        match self.namespace {
            Some(namespace) => write!(formatter, " in namespace {namespace}")?,
            None => formatter.write_str(" in the whole cluster")?,
        }
        if !self.rest.is_empty() {
            write!(formatter, " ({})", self.rest)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_of_kubernetes_reads_as_who_may_not_do_what_where() {
        let text = "execaccessrequests.crds.wizardofoz.co is forbidden: User \"mallory\" cannot \
                    create resource \"execaccessrequests\" in API group \"crds.wizardofoz.co\" in \
                    the namespace \"shop\"";
        let (message, next) = readable(text, 403);
        assert_eq!(
            message,
            "mallory may not create execaccessrequests in namespace shop"
        );
        assert!(next.unwrap().contains("--clusterrole=oz-request-access"));
        let text = "pods \"web-0\" is forbidden: User \"bob\" cannot create resource \"pods/exec\" \
                    in API group \"\" in the namespace \"shop\"";
        let (message, next) = readable(text, 403);
        assert_eq!(message, "bob may not create pods/exec in namespace shop");
        assert!(next.unwrap().contains("ozctl templates"));
        let text = "nodes is forbidden: User \"bob\" cannot list resource \"nodes\" in API group \
                    \"\" at the cluster scope: RBAC: role not found";
        let (message, _) = readable(text, 403);
        assert_eq!(
            message,
            "bob may not list nodes in the whole cluster (RBAC: role not found)"
        );
    }

    #[test]
    fn webhook_message_is_shown_without_api_server_prefix() {
        let text = "admission webhook \"vexecaccessrequest.kb.io\" denied the request: mallory is \
                    in none of the groups";
        assert_eq!(
            readable(text, 403),
            ("mallory is in none of the groups".to_owned(), None)
        );
        let text = "Internal error occurred: failed calling webhook \"mexecaccessrequest.kb.io\": \
                    failed to call webhook: connection refused";
        let (message, next) = readable(text, 500);
        assert!(
            message.starts_with("mexecaccessrequest.kb.io did not respond"),
            "{message}"
        );
        assert!(next.unwrap().contains("ozctl doctor"));
    }

    #[test]
    fn transient_status_codes_are_distinguished_from_permanent() {
        for (code, passes) in [
            (400, false),
            (403, false),
            (409, false),
            (429, true),
            (500, true),
            (503, true),
        ] {
            let failure = of_status(&Status::failure("no", "No").with_code(code));
            assert_eq!(failure.passes(), passes, "{code}");
        }
    }

    #[test]
    fn missing_oz_is_distinguished_from_missing_object() {
        let (message, next) = readable("the server could not find the requested resource", 404);
        assert_eq!(message, UNKNOWN_KIND);
        assert!(next.is_some());
        let text = "execaccesstemplates.crds.wizardofoz.co \"shell\" not found";
        assert_eq!(readable(text, 404), (text.to_owned(), None));
    }
}
