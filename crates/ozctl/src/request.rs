//! Asking for access: a request is created, watched until it is ready or over, and given back.

use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt};
use oz_core::api::{
    ExecAccessRequest, ExecAccessRequestSpec, ExecAccessTemplate, Phase, PodAccessRequest,
    PodAccessRequestSpec, PodAccessTemplate, RequestStatus,
};
use oz_core::conditions;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::cluster::{Clocks, Cluster};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::trouble::Trouble;

/// The longest `generateName` that the webhook lets in, with its `-`.
const PREFIX: usize = 57;
/// Between two looks where watching is not permitted.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// After a watch that broke.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) template: String,
    /// What the request's name begins with.
    pub(crate) prefix: String,
    pub(crate) duration: Option<String>,
    pub(crate) target_pod: Option<String>,
    pub(crate) container: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) extends: Option<String>,
}

/// A kind of request, and the kind of template that it names.
pub(crate) trait RequestKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// The templates.
    type Template: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + 'static;

    /// The verb that opens a session by it.
    const VERB: &'static str;

    /// What that verb is to be told of where.
    fn place(&self) -> String;
    /// A request that asks for this.
    fn asking(ask: &Ask) -> Self;
    /// What became of it.
    fn request_status(&self) -> Option<&RequestStatus>;
    /// What it was asked for by, and how.
    fn asked(&self) -> Ask;
}

impl RequestKind for ExecAccessRequest {
    type Template = ExecAccessTemplate;
    const VERB: &'static str = "exec";

    fn place(&self) -> String {
        let status = self.status.as_ref();
        let pod = status.and_then(|status| status.pod_name.as_deref());
        pod.map_or_else(|| "TARGET".to_owned(), |pod| format!("pod/{pod}"))
    }

    fn asking(ask: &Ask) -> Self {
        let mut request = Self::new(
            "",
            ExecAccessRequestSpec {
                template_name: ask.template.clone(),
                duration: ask.duration.clone(),
                target_pod: ask.target_pod.clone(),
                container: ask.container.clone(),
                reason: ask.reason.clone(),
                extends: ask.extends.clone(),
            },
        );
        request.metadata.name = None;
        request.metadata.generate_name = Some(format!("{}-", ask.prefix));
        request
    }

    fn request_status(&self) -> Option<&RequestStatus> {
        self.status.as_ref()
    }

    fn asked(&self) -> Ask {
        let spec = self.spec.clone();
        Ask {
            template: spec.template_name,
            prefix: String::new(),
            duration: spec.duration,
            target_pod: spec.target_pod,
            container: spec.container,
            reason: spec.reason,
            extends: spec.extends,
        }
    }
}

impl RequestKind for PodAccessRequest {
    type Template = PodAccessTemplate;
    const VERB: &'static str = "pod";

    fn place(&self) -> String {
        format!("template/{}", self.spec.template_name)
    }

    fn asking(ask: &Ask) -> Self {
        let mut request = Self::new(
            "",
            PodAccessRequestSpec {
                template_name: ask.template.clone(),
                duration: ask.duration.clone(),
                container: ask.container.clone(),
                reason: ask.reason.clone(),
                extends: ask.extends.clone(),
            },
        );
        request.metadata.name = None;
        request.metadata.generate_name = Some(format!("{}-", ask.prefix));
        request
    }

    fn request_status(&self) -> Option<&RequestStatus> {
        self.status.as_ref()
    }

    fn asked(&self) -> Ask {
        let spec = self.spec.clone();
        Ask {
            template: spec.template_name,
            prefix: String::new(),
            duration: spec.duration,
            target_pod: None,
            container: spec.container,
            reason: spec.reason,
            extends: spec.extends,
        }
    }
}

/// Checks what a request's name is to begin with, by the original's rule.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
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

/// What a request's name begins with unless the user says: their name, as far as a name may have
/// its letters. The original refused to work for Alice.Smith.
pub(crate) fn default_prefix() -> String {
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()))
        .unwrap_or_default();
    tidy(&user)
}

fn tidy(user: &str) -> String {
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
        "" => "ozctl".to_owned(),
        name if check_prefix(name).is_ok() => name.to_owned(),
        name => format!("ozctl-{name}"),
    }
}

/// Creates a request.
pub(crate) async fn create<R: RequestKind>(cluster: &Cluster, ask: &Ask) -> Result<R> {
    let api = cluster.api::<R>();
    let request = R::asking(ask);
    cluster
        .answer(api.create(&PostParams::default(), &request))
        .await
}

/// How a request turned out.
pub(crate) enum Outcome<R> {
    /// It can be used.
    Ready(R),
    /// It ended without ever being ready.
    Over(R),
    /// Neither, in time.
    Late(R),
}

/// Waits until a request is ready or over. `seen` is told each status. What passes while it waits,
/// such as an API server that starts anew, ends nothing.
pub(crate) async fn wait<R: RequestKind>(
    cluster: &Cluster,
    created: R,
    within: Duration,
    seen: impl FnMut(&RequestStatus),
) -> Result<Outcome<R>> {
    let deadline = Instant::now() + within;
    let mut wait = Wait {
        api: cluster.api::<R>(),
        name: created.name_any(),
        last: created,
        seen,
        trouble: Trouble::default(),
    };
    match tokio::time::timeout_at(deadline, wait.watch()).await {
        Ok(outcome) => outcome,
        // What it is like now is not known.
        Err(_) => match wait.trouble.at_the_end() {
            Some(failure) => {
                let what = format!("request {} is not ready after {within:?}", wait.name);
                Err(failure.during(&what))
            }
            None => Ok(Outcome::Late(wait.last)),
        },
    }
}

/// A request that is waited for.
struct Wait<R, F> {
    api: Api<R>,
    name: String,
    /// What is known of it.
    last: R,
    seen: F,
    trouble: Trouble,
}

impl<R: RequestKind, F: FnMut(&RequestStatus)> Wait<R, F> {
    /// Watches until the end; again, where a watch ends early or breaks.
    async fn watch(&mut self) -> Result<Outcome<R>> {
        let parameters = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        loop {
            let version = self.last.resource_version().unwrap_or_default();
            match self.api.watch(&parameters, &version).await {
                Ok(events) => {
                    self.trouble.over();
                    if let Some(outcome) = self.follow(events).await? {
                        return Ok(outcome);
                    }
                    tokio::time::sleep(WATCH_AGAIN).await;
                }
                Err(error) => match Failure::from(error) {
                    // The original only ever needed `get`.
                    failure if failure.is_forbidden() => return self.poll().await,
                    // Too old to go on from there.
                    failure if failure.is_gone() => tokio::time::sleep(WATCH_AGAIN).await,
                    failure => self.trouble.with(failure).await?,
                },
            }
            // Where it broke is not known, so what is there now is looked at first.
            if let Some(outcome) = self.look().await? {
                return Ok(outcome);
            }
        }
    }

    /// The outcome, if one watch brings it.
    async fn follow(
        &mut self,
        events: impl Stream<Item = kube::Result<WatchEvent<R>>>,
    ) -> Result<Option<Outcome<R>>> {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Added(request) | WatchEvent::Modified(request)) => {
                    if let Some(outcome) = self.judge(request) {
                        return Ok(Some(outcome));
                    }
                }
                Ok(WatchEvent::Deleted(_)) => return Err(deleted(&self.name)),
                Ok(WatchEvent::Bookmark(_)) => {}
                Ok(WatchEvent::Error(_)) | Err(_) => break,
            }
        }
        Ok(None)
    }

    async fn poll(&mut self) -> Result<Outcome<R>> {
        loop {
            if let Some(outcome) = self.look().await? {
                return Ok(outcome);
            }
            self.trouble.over();
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The outcome, if it is there now.
    async fn look(&mut self) -> Result<Option<Outcome<R>>> {
        loop {
            match self.api.get(&self.name).await.map_err(Failure::from) {
                Ok(request) => {
                    self.trouble.eased();
                    return Ok(self.judge(request));
                }
                Err(failure) if failure.is_not_found() => return Err(deleted(&self.name)),
                Err(failure) => self.trouble.with(failure).await?,
            }
        }
    }

    fn judge(&mut self, request: R) -> Option<Outcome<R>> {
        self.last = request;
        let status = self.last.request_status()?;
        (self.seen)(status);
        if status.phase.is_terminal() {
            return Some(Outcome::Over(self.last.clone()));
        }
        status.ready.then(|| Outcome::Ready(self.last.clone()))
    }
}

fn deleted(name: &str) -> Failure {
    Failure::new(format!(
        "request {name} was deleted while it was waited for"
    ))
    .next("ask again, or find out from the audit record who deleted it")
    .not_found()
}

/// Gives access back. That it is gone already is what was wanted.
pub(crate) async fn release<R: RequestKind>(cluster: &Cluster, name: &str) -> Result<()> {
    let api = cluster.api::<R>();
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop).map_err(|error| {
            Failure::from(error).during(&format!("failed to give access back ({name})"))
        }),
    }
}

/// Why a request cannot be used, in the words of its first condition that is not True.
pub(crate) fn why_not(status: &RequestStatus) -> Option<&str> {
    let refused = status
        .conditions
        .iter()
        // It only informs: nobody waits for it.
        .find(|condition| {
            condition.status == "False" && condition.type_ != conditions::SESSIONS_CUT
        });
    // Some conditions have the original's words, which begin with what we say ourselves.
    let message = refused?.message.as_str();
    Some(
        ["ERROR: ", "Error: "]
            .iter()
            .find_map(|prefix| message.strip_prefix(prefix))
            .unwrap_or(message),
    )
}

/// The failure that a request which ended is.
pub(crate) fn over(name: &str, status: &RequestStatus) -> Failure {
    let what = match status.phase {
        Phase::Denied => "was denied",
        Phase::Failed => "cannot be granted",
        Phase::Revoked => "was revoked",
        Phase::Expired => "ran out before it could be used",
        Phase::Pending | Phase::Active => "is not ready",
    };
    let why = why_not(status).map_or(String::new(), |why| format!(": {why}"));
    Failure::new(format!("request {name} {what}{why}"))
        .next(format!("`ozctl explain {name}` shows how it was decided"))
}

/// The failure that a request which takes too long is.
pub(crate) fn late(name: &str, within: Duration, status: Option<&RequestStatus>) -> Failure {
    let why = match status {
        None => {
            return Failure::new(format!(
                "request {name} was not looked at within {within:?}"
            ))
            .next("oz's operator seems to be down: `ozctl doctor` says what is wrong")
            .with(Exit::FAILURE);
        }
        Some(status) => why_not(status).map_or(String::new(), |why| format!(": {why}")),
    };
    Failure::new(format!("request {name} is not ready after {within:?}{why}"))
        .next("give it longer with --wait")
}

/// How much is left of a grant.
///
/// The API server's clock counts. Ours is believed if it agrees with the time that the API server
/// wrote at the creation, and is corrected by the difference if not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    ahead: jiff::SignedDuration,
}

impl Clock {
    /// Ours, where there is nothing to compare it with.
    pub(crate) fn local() -> Self {
        Self {
            ahead: jiff::SignedDuration::ZERO,
        }
    }

    /// From what the API server says now.
    pub(crate) async fn of_server(cluster: &Cluster) -> Self {
        match cluster.clocks().await {
            Ok(Clocks {
                before,
                server: Some(server),
                ..
            }) => Self::compare(before, server),
            _ => Self::local(),
        }
    }

    /// From an object that was created just now.
    pub(crate) fn at_creation<R: RequestKind>(created: &R) -> Self {
        let Some(time) = created.meta().creation_timestamp.as_ref() else {
            return Self::local();
        };
        Self::compare(Timestamp::now(), time.0)
    }

    fn compare(ours: Timestamp, created: Timestamp) -> Self {
        // Creation times are whole seconds, and the answer took its time.
        const TOLERATED: jiff::SignedDuration = jiff::SignedDuration::from_secs(3);
        let ahead = ours.duration_since(created);
        let agrees = ahead.abs() <= TOLERATED;
        Self {
            ahead: if agrees {
                jiff::SignedDuration::ZERO
            } else {
                ahead
            },
        }
    }

    /// What the API server's clock says now.
    pub(crate) fn now(self) -> Timestamp {
        Timestamp::now()
            .checked_sub(self.ahead)
            .unwrap_or(Timestamp::MAX)
    }

    /// What is left until then; nothing, if it is past.
    pub(crate) fn left(self, until: Timestamp) -> Duration {
        Duration::try_from(until.duration_since(self.now())).unwrap_or_default()
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
    fn whoever_asks_has_a_prefix_of_their_name() {
        for (user, prefix) in [
            ("alice", "alice"),
            ("Alice.Smith@example.com", "alice-smith-example-com"),
            ("al", "ozctl-al"),
            ("7of9", "of9"),
            ("", "ozctl"),
            ("Ünal", "nal"),
        ] {
            assert_eq!(tidy(user), prefix, "{user}");
            assert!(check_prefix(&tidy(user)).is_ok(), "{user}");
        }
        assert_eq!(tidy(&"a".repeat(80)).len(), PREFIX);
    }

    #[test]
    fn a_clock_that_is_off_is_corrected_and_one_that_agrees_is_believed() {
        let created: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let second = jiff::SignedDuration::from_secs(1);
        assert!(Clock::compare(created + second, created).ahead.is_zero());
        let hour = jiff::SignedDuration::from_hours(1);
        assert_eq!(Clock::compare(created + hour, created).ahead, hour);
        assert_eq!(Clock::compare(created - hour, created).ahead, -hour);
    }
}
