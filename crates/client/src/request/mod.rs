//! Requests for access: a request is created, watched until it is ready or over, and deleted after use.

mod clock;
mod list;
mod retry;
mod wait;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, PostParams};
use oz_api::duration::GoDuration;
use oz_api::{Phase, RequestStatus, Requester, conditions, labels};
use oz_core::access::decide::{self, REASON_REQUIRED};
use oz_core::access::target::NO_SUCH_POD;
use oz_core::access::ticket::TICKET_REQUIRED;
use oz_core::access::{approval, stamp};
use oz_core::kinds::{AccessRequest, Terms};

pub use self::clock::Clock;
pub use self::list::{Filter, Listed, list};
pub use self::retry::Retry;
pub use self::wait::{Outcome, end, wait};
use crate::cluster::Cluster;
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// The longest `generateName` that the webhook accepts, with its `-`.
const PREFIX: usize = 57;

/// The prefix of the names of requests if the user's name is unknown.
pub const UNNAMED: &str = "ozctl";

/// The content of a request.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Name of the template.
    pub template: String,
    /// The prefix of the request's name.
    pub prefix: String,
    /// The duration.
    pub duration: Option<String>,
    /// The pod.
    pub target_pod: Option<String>,
    /// The container.
    pub container: Option<String>,
    /// The reason.
    pub reason: Option<String>,
    /// The request that it continues.
    pub extends: Option<String>,
    /// The change ticket.
    pub ticket: Option<String>,
    /// True if the request declares an emergency.
    pub emergency: bool,
}

impl Ask {
    /// Returns the content of an existing request.
    pub fn from_request<R: AccessRequest>(request: &R) -> Self {
        let terms = request.terms();
        let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
        Self {
            template: terms.template.to_owned(),
            prefix: String::new(),
            duration: owned(terms.duration),
            target_pod: owned(terms.target_pod),
            container: owned(terms.container),
            reason: owned(terms.reason),
            extends: owned(terms.extends),
            ticket: owned(terms.ticket),
            emergency: terms.emergency,
        }
    }

    /// Returns the content as the rules of templates see it.
    pub fn asked(&self) -> decide::Ask<'_> {
        decide::Ask {
            reason: self.reason.as_deref(),
            container: self.container.as_deref(),
            ticket: self.ticket.as_deref(),
            emergency: self.emergency,
        }
    }

    /// Returns the request; the API server completes its name.
    pub fn request<R: AccessRequest>(&self) -> R {
        let mut request = R::asking(&Terms {
            template: &self.template,
            duration: self.duration.as_deref(),
            target_pod: self.target_pod.as_deref(),
            container: self.container.as_deref(),
            reason: self.reason.as_deref(),
            extends: self.extends.as_deref(),
            ticket: self.ticket.as_deref(),
            emergency: self.emergency,
        });
        let metadata = request.meta_mut();
        metadata.name = None;
        metadata.generate_name = Some(format!("{}-", self.prefix));
        request
    }
}

/// Returns the status of a request. The default is the status of a request that the operator has not seen yet.
pub fn status<R: AccessRequest>(request: &R) -> RequestStatus {
    request.status().cloned().unwrap_or_default()
}

/// Parses a duration in the format of Go; returns `None` for a negative duration.
pub fn go_duration(text: &str) -> Option<Duration> {
    let duration: GoDuration = text.parse().ok()?;
    Some(Duration::from_nanos(
        u64::try_from(duration.as_nanos()).unwrap_or(0),
    ))
}

/// Returns the target for the command that uses a request.
pub fn place<R: AccessRequest>(request: &R) -> String {
    if R::MAKES_POD {
        return format!("template/{}", request.terms().template);
    }
    let pod = request
        .status()
        .and_then(|status| status.pod_name.as_deref());
    pod.map_or_else(|| "TARGET".to_owned(), |pod| format!("pod/{pod}"))
}

/// Returns the requester: as the webhook stamped it, or else as the operator verified it or the webhook annotated it.
/// Only the operator can verify a stamp, and its status reports the result.
pub fn requester<R: AccessRequest>(request: &R) -> Option<Requester> {
    let stamped = stamp::read(request.meta()).and_then(|text| serde_json::from_str(text).ok());
    let named = |user| Requester {
        user,
        ..Requester::default()
    };
    stamped.or_else(|| user(request).map(named))
}

/// Returns the name of the requester: as the operator verified it, or else as the webhook annotated it.
pub fn user<R: AccessRequest>(request: &R) -> Option<String> {
    let verified = request.status().and_then(|status| status.requester.clone());
    let annotations = request.meta().annotations.as_ref();
    verified.or_else(|| annotations?.get(labels::REQUESTED_BY).cloned())
}

/// Checks the prefix of a request's name, by the original's rule.
pub fn check_prefix(prefix: &str) -> Result<()> {
    let bytes = prefix.as_bytes();
    let letter = |byte: u8| byte.is_ascii_lowercase();
    let alphanumeric = |byte: u8| letter(byte) || byte.is_ascii_digit();
    let good = bytes.len() >= 3
        && letter(bytes[0])
        && (alphanumeric(bytes[1]) || bytes[1] == b'-')
        && alphanumeric(bytes[2]);
    if !good {
        return Err(
            Failure::new(format!("invalid request name prefix: {prefix}")).next(
                "name another with --request-name: three or more of a-z, 0-9 and -, a letter first",
            ),
        );
    }
    if bytes.len() > PREFIX {
        return Err(Failure::new(format!(
            "invalid request name prefix: {prefix}: longer than {PREFIX} characters"
        )));
    }
    Ok(())
}

/// Returns the prefix of the names of a user's requests: the user's name, as far as a name may contain its characters.
/// The original did not work for Alice.Smith.
pub fn prefix_of(user: &str) -> String {
    let mut name = String::new();
    for letter in user.to_lowercase().chars() {
        if letter.is_ascii_alphanumeric() {
            name.push(letter);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    let name: String = name
        .trim_start_matches(|letter: char| !letter.is_ascii_lowercase())
        .chars()
        .take(PREFIX)
        .collect();
    let name = name.trim_end_matches('-');
    match name {
        "" => UNNAMED.to_owned(),
        name if check_prefix(name).is_ok() => name.to_owned(),
        name => format!("{UNNAMED}-{name}"),
    }
}

/// Creates a request.
pub async fn create<R: AccessRequest>(cluster: &Cluster, ask: &Ask) -> Result<R> {
    let api = cluster.api::<R>();
    let request: R = ask.request();
    let parameters = PostParams::default();
    let created = cluster.answer(api.create(&parameters, &request));
    created.await.map_err(|failure| {
        // The name of the field does not help a user of the command line.
        let said = failure.message();
        if let Some(said) = said.strip_suffix(REASON_REQUIRED) {
            return Failure::new(said).next("give a reason with --reason, such as --reason INC-42");
        }
        match said.strip_suffix(TICKET_REQUIRED) {
            Some(said) => Failure::new(said).next("name one with --ticket"),
            None => failure,
        }
    })
}

/// Deletes a request, which ends its access, also if a connection to the API server is lost meanwhile. A request that
/// does not exist is a success.
pub async fn release<R: AccessRequest>(cluster: &Cluster, name: &str) -> Result<()> {
    let released = cluster.persist(async |cluster: &Cluster| delete::<R>(cluster, name).await);
    let failed = || format!("failed to revoke access ({name})");
    released.await.map_err(|failure| failure.during(&failed()))
}

pub(crate) async fn delete<R: AccessRequest>(cluster: &Cluster, name: &str) -> Result<()> {
    let api = cluster.api::<R>();
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop).map_err(Failure::from),
    }
}

/// Returns the reason why a request cannot be used: the message of its first condition that is not True.
pub fn why_not(status: &RequestStatus) -> Option<&str> {
    let refused = status
        .conditions
        .iter()
        // This condition only informs: no client waits for it.
        .find(|condition| {
            condition.status == "False" && condition.type_ != conditions::SESSION_TERMINATION
        });
    // Some conditions have the original's messages, which begin with a prefix that ozctl also adds.
    let message = refused?.message.as_str();
    Some(
        ["ERROR: ", "Error: "]
            .iter()
            .find_map(|prefix| message.strip_prefix(prefix))
            .unwrap_or(message),
    )
}

/// Returns the operator's message about a pod that is not Ready.
pub fn not_ready(status: &RequestStatus) -> Option<&str> {
    let ready = conditions::find(&status.conditions, conditions::ACCESS_RESOURCES_READY)?;
    let message = ready.message.as_str();
    let is_about_pod = message.ends_with(conditions::message::POD_NOT_READY);
    is_about_pod.then_some(message)
}

/// Returns the operator's message about the approvals that a request or transient binding waits for; `None` if it does
/// not wait.
pub fn waits_for_others(phase: Phase, conditions: &[Condition]) -> Option<&str> {
    let approved = conditions::find(conditions, conditions::APPROVED)?;
    let waits = phase == Phase::Pending
        && approved.status == "False"
        && approved.reason == approval::WAITING;
    waits.then_some(approved.message.as_str())
}

/// Returns the failure for a request that ended.
pub fn over(name: &str, status: &RequestStatus) -> Failure {
    let what = match status.phase {
        Phase::Denied => "was denied",
        Phase::Failed => "cannot be granted",
        Phase::Revoked => "was revoked",
        Phase::Expired => "expired before it was ready",
        Phase::Pending | Phase::Starting | Phase::Active => "is not ready",
    };
    let why = why_not(status).map_or(String::new(), |why| format!(": {why}"));
    Failure::new(format!("request {name} {what}{why}"))
        .next(format!("`ozctl explain {name}` shows the decision"))
}

/// Checks whether the pod that the request names does not exist.
fn has_no_such_pod(status: &RequestStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|one| one.status == "False" && one.reason == NO_SUCH_POD)
}

/// Returns the failure for a request that is not ready in time.
pub fn late(name: &str, within: Duration, status: Option<&RequestStatus>) -> Failure {
    let why = match status {
        None => {
            return Failure::new(format!(
                "request {name} was not reconciled within {within:?}"
            ))
            .next("oz's operator may be down: `ozctl doctor` shows the cause")
            .with(Exit::FAILURE);
        }
        Some(status) => why_not(status).map_or(String::new(), |why| format!(": {why}")),
    };
    let failure = Failure::new(format!("request {name} is not ready after {within:?}{why}"));
    match status.is_some_and(has_no_such_pod) {
        true => failure.next("name an existing pod, or the workload for any of its pods"),
        false => failure.next("give a longer --wait"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_checked_as_the_original_did() {
        for good in ["alice", "a-1", "abc.d", "a0z"] {
            assert!(check_prefix(good).is_ok(), "{good}");
        }
        for bad in ["", "ab", "Alice", "1ab", "a.b", "al-", "a_b"] {
            let error = check_prefix(bad).unwrap_err();
            assert_eq!(
                error.message(),
                format!("invalid request name prefix: {bad}")
            );
        }
        assert!(check_prefix(&"a".repeat(58)).is_err());
    }

    #[test]
    fn request_name_prefix_is_derived_from_user_name() {
        for (user, prefix) in [
            ("alice", "alice"),
            ("Alice.Smith@example.com", "alice-smith-example-com"),
            ("al", "ozctl-al"),
            ("7of9", "of9"),
            ("", "ozctl"),
            ("Ünal", "nal"),
        ] {
            assert_eq!(prefix_of(user), prefix, "{user}");
            assert!(check_prefix(&prefix_of(user)).is_ok(), "{user}");
        }
        assert_eq!(prefix_of(&"a".repeat(80)).len(), PREFIX);
    }
}
