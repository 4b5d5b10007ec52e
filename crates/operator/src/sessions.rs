//! What is run in containers, and the script that ends the processes of a grant. It is an exec, for
//! which the operator has the right because it hands it out.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, ListParams};
use kube::{Api, Client, ResourceExt};
use oz_core::access::pod_state;
use oz_core::api::AuditEvent;
use oz_core::audit::{Action, Record, label_value};
use oz_core::connect::script::Ended;
use oz_core::connect::{Way, script};
use oz_core::controller::{Failure, Sessions, SessionsEnded};
use oz_core::labels;
use oz_engine::{Clock as _, EndSessions, ServerClock, Sink as _};
use oz_process::audit::Trail;
use tokio::io::AsyncReadExt;

/// How long one script may take in one container.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many scripts are run at once where one alone came to no end.
const SEVERAL: usize = 4;
/// How long after an end it is looked whether something has started since. Not sooner: where many end
/// together, their nodes are still busy with that.
const LATER: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(35),
];
/// The most that is read of an answer, in bytes.
const ANSWER: u64 = 4096;
/// How many sessions of one grant are counted.
const SOME: u32 = 500;

/// Why nothing came of running something.
#[derive(Debug)]
pub(crate) enum Unrun {
    /// The container cannot run it: it has no shell.
    Unable(String),
    /// The node did not answer, or something else that may pass.
    Unreached(String),
}

/// Runs `command` in a container and gives what it wrote on standard output.
pub(crate) async fn run(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    command: Vec<String>,
    patience: Duration,
) -> Result<String, Unrun> {
    let whole = async {
        let parameters = AttachParams::default()
            .container(container)
            .stdin(false)
            .stdout(true)
            .stderr(false);
        let mut process = pods
            .exec(pod, command, &parameters)
            .await
            .map_err(|error| Unrun::Unreached(error.to_string()))?;
        let mut answer = Vec::new();
        if let Some(stdout) = process.stdout() {
            let _ = stdout.take(ANSWER).read_to_end(&mut answer).await;
        }
        let status = match process.take_status() {
            Some(status) => status.await,
            None => None,
        };
        let _ = process.join().await;
        let status = status.unwrap_or_default();
        if status.status.as_deref() == Some("Failure") && answer.is_empty() {
            return Err(unrun(status));
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(patience, whole)
        .await
        .unwrap_or_else(|_| Err(Unrun::Unreached(format!("no answer within {patience:?}"))))
}

/// Why a command that the node was given did not run. A code tells where the runtime makes it one; most
/// say in words alone that there is no shell. Words that are not known here are none of these: the
/// command is tried again, and what comes of that is said, rather than a container given up that may
/// have sessions.
fn unrun(status: Status) -> Unrun {
    let message = status.message.unwrap_or_default();
    let mut causes = status
        .details
        .into_iter()
        .flat_map(|details| details.causes.unwrap_or_default());
    let code = causes.find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = code.and_then(|cause| cause.message);
    let words = [
        "no such file or directory",
        "executable file not found",
        "permission denied",
        "exec format error",
    ];
    let lower = message.to_lowercase();
    let cannot = matches!(code.as_deref(), Some("126" | "127"))
        || code.is_none() && words.iter().any(|word| lower.contains(word));
    if cannot {
        Unrun::Unable(message)
    } else {
        Unrun::Unreached(message)
    }
}

/// Every container of the pod that runs now, ephemeral ones too.
pub(crate) fn running(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    pod_state::containers(pod).filter(|one| {
        let state = one.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    })
}

/// Runs the script in one container; several at once if it came to no end, which somebody in there
/// may have seen to: they then have to find each of them before it finds them.
async fn end_in(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    command: &[String],
) -> Result<Ended, Unrun> {
    let once = async || {
        let text = run(pods, pod, container, command.to_vec(), PATIENCE).await?;
        let none = || Unrun::Unreached("the script came to no end".to_owned());
        script::answer(&text).ok_or_else(none)
    };
    let first = once().await;
    let Err(Unrun::Unreached(_)) = first else {
        return first;
    };
    let answers = join_all((0..SEVERAL).map(|_| once())).await;
    // Each counts what it ended itself, and all the same what is left.
    let both = |one: Ended, other: Ended| Ended {
        ended: one.ended.saturating_add(other.ended),
        left: one.left.min(other.left),
    };
    answers.into_iter().flatten().reduce(both).map_or(first, Ok)
}

/// Ends sessions by a script that is run in each container of their pod.
#[derive(Clone)]
pub(crate) struct Scripts {
    client: Client,
    clock: ServerClock,
    trail: Trail,
    /// The grants that are looked at again, see [`Scripts::look_again`].
    again: Arc<Mutex<HashSet<String>>>,
}

impl Scripts {
    pub(crate) fn new(client: Client, clock: ServerClock, trail: Trail) -> Self {
        Self {
            client,
            clock,
            trail,
            again: Arc::default(),
        }
    }

    async fn end_all(&self, sessions: &Sessions) -> Result<SessionsEnded, Failure> {
        if sessions.with_pod {
            return Ok(SessionsEnded {
                opened: self.opened(sessions).await,
                ..SessionsEnded::default()
            });
        }
        let mut ended = self.end_now(sessions).await?.unwrap_or_default();
        ended.opened = self.opened(sessions).await;
        self.look_again(sessions);
        Ok(ended)
    }

    /// Ends what runs now; none if the pod is gone, or another of its name: what ran in it is gone
    /// with it.
    async fn end_now(&self, sessions: &Sessions) -> Result<Option<SessionsEnded>, Failure> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &sessions.namespace);
        let read = tokio::time::timeout(PATIENCE, pods.get_opt(&sessions.pod)).await;
        let failed = |why: String| {
            Failure::transient(
                Failure::SESSIONS_NOT_ENDED,
                format!("failed to end the sessions in pod {}: {why}", sessions.pod),
            )
        };
        let pod = match read {
            Ok(Ok(pod)) => pod,
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => return Err(failed(format!("no answer within {PATIENCE:?}"))),
        };
        let Some(pod) = pod.filter(|pod| pod.uid().as_deref() == Some(&sessions.pod_uid)) else {
            return Ok(None);
        };
        let age = self.clock.now().duration_since(sessions.granted_at);
        let command = script::command(&sessions.mark, age);
        let runs = running(&pod).map(|container| {
            let (pods, command, name) = (&pods, &command, container.name.clone());
            async move {
                let answer = end_in(pods, &sessions.pod, &name, command).await;
                (name, answer)
            }
        });
        let mut ended = SessionsEnded::default();
        let mut unreached = None;
        for (name, answer) in join_all(runs).await {
            match answer {
                Ok(done) => {
                    ended.ended = ended.ended.saturating_add(done.ended);
                    ended.left = ended.left.saturating_add(done.left);
                }
                Err(Unrun::Unable(why)) => {
                    tracing::debug!(
                        pod = sessions.pod,
                        container = name,
                        why,
                        "nothing can be run"
                    );
                    ended.out_of_reach.push(name);
                }
                Err(Unrun::Unreached(why)) => unreached = Some(format!("{name}: {why}")),
            }
        }
        match unreached {
            Some(why) => Err(failed(why)),
            None => Ok(Some(ended)),
        }
    }

    /// Ends what was allowed before the end and starts only now: the API server waits half a minute
    /// for a client to open its streams. Beside everything else, as nothing waits for it; only what
    /// is found is on record.
    fn look_again(&self, sessions: &Sessions) {
        let (this, sessions) = (self.clone(), sessions.clone());
        if !self.looked_after().insert(sessions.mark.clone()) {
            return;
        }
        tokio::spawn(async move {
            let ended = tokio::time::Instant::now();
            for later in LATER {
                tokio::time::sleep_until(ended + later).await;
                match this.end_now(&sessions).await {
                    Ok(Some(came)) if came.ended > 0 => this.late(&sessions, &came, later).await,
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(failure) => tracing::info!(%failure, "failed to look again"),
                }
            }
            this.looked_after().remove(&sessions.mark);
        });
    }

    fn looked_after(&self) -> MutexGuard<'_, HashSet<String>> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts on record that processes began after the end, and were ended.
    async fn late(&self, sessions: &Sessions, came: &SessionsEnded, later: Duration) {
        let Some(mut record) = sessions.ended(came) else {
            return;
        };
        record.time = self.clock.now();
        // A fact of its own.
        let what = format!("{} {}s later", sessions.mark, later.as_secs());
        record.id = Record::id(record.action, &what);
        "Processes that began after the end were ended".clone_into(&mut record.message);
        if let Err(failure) = self.trail.record(&record).await {
            let line = record.line();
            tracing::error!(%failure, record = line, "the end of sessions is not on record");
        }
    }

    /// When the sessions of the grant were opened, as far as that is on record in the cluster; none
    /// if they were ended before.
    async fn opened(&self, sessions: &Sessions) -> Vec<Timestamp> {
        let events: Api<AuditEvent> = Api::all(self.client.clone());
        let selector = format!(
            "{}={},{} in ({},{},{})",
            labels::AUDIT_GRANT,
            label_value(&sessions.mark),
            labels::AUDIT_KIND,
            Action::SessionOpened,
            Action::SessionCut,
            Action::SessionEnded,
        );
        let some = ListParams::default().labels(&selector).limit(SOME);
        let events = match tokio::time::timeout(PATIENCE, events.list(&some)).await {
            Ok(Ok(events)) => events.items,
            // They are ended all the same; only how long they lasted is not said.
            Ok(Err(error)) => {
                tracing::info!(%error, "failed to look up which sessions were opened");
                return Vec::new();
            }
            Err(_) => return Vec::new(),
        };
        let records = events.into_iter().map(|event| event.spec.record);
        opened(records, sessions.with_pod)
    }
}

/// When the sessions were opened that end now; none if that is on record already. A port that is
/// forwarded, or a stream that is attached to, is no process in the container: it ends with its pod
/// only.
fn opened(records: impl Iterator<Item = Record>, with_pod: bool) -> Vec<Timestamp> {
    let (opened, ended): (Vec<_>, Vec<_>) =
        records.partition(|record| record.action == Action::SessionOpened);
    if !ended.is_empty() {
        return Vec::new();
    }
    let exec = |record: &Record| {
        let way = record.details.get("way");
        way.is_some_and(|way| way == Way::Exec.title())
    };
    let opened = opened.into_iter();
    let ending = opened.filter(|record| with_pod || exec(record));
    ending.map(|record| record.time).collect()
}

impl EndSessions for Scripts {
    fn end<'a>(
        &'a self,
        sessions: &'a Sessions,
    ) -> BoxFuture<'a, Result<Option<SessionsEnded>, Failure>> {
        self.end_all(sessions).map(|ended| ended.map(Some)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use oz_core::audit::Decision;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_forwarded_port_hides_no_session_that_ends() {
        let at = |second| Timestamp::constant(1_790_000_000 + second, 0);
        let record = |action, second: i64, way: Way| {
            let id = second.to_string();
            let record = Record::about(at(second), action, Decision::Allow, &id, "", "");
            record.detail("way", way.title())
        };
        let all = [
            record(Action::SessionOpened, 1, Way::Exec),
            record(Action::SessionOpened, 2, Way::PortForward),
            record(Action::SessionOpened, 3, Way::Exec),
        ];
        assert_eq!(opened(all.iter().cloned(), false), [at(1), at(3)]);
        assert_eq!(opened(all.iter().cloned(), true), [at(1), at(2), at(3)]);
        for action in [Action::SessionCut, Action::SessionEnded] {
            let told = all.iter().cloned().chain([record(action, 4, Way::Exec)]);
            assert!(opened(told, false).is_empty());
        }
    }

    #[test]
    fn a_container_is_given_up_only_where_the_runtime_says_that_there_is_no_shell() {
        let started = "error executing command in container: failed to exec in container: failed to start exec";
        let containerd = format!(
            "{started} \"a1\": OCI runtime exec failed: exec failed: unable to start container process: \
             exec: \"/bin/sh\": stat /bin/sh: no such file or directory: unknown"
        );
        let forbidden = format!("{started} \"a1\": exec: \"/bin/sh\": permission denied: unknown");
        let crio = "error executing command in container: executable file `/bin/sh` not found: No such file or directory";
        let busy = format!("{started} \"a1\": context deadline exceeded");
        for (code, message, unable) in [
            (None, containerd.as_str(), true),
            (None, forbidden.as_str(), true),
            (None, crio, true),
            (Some("127"), "command terminated with exit code 127", true),
            (Some("126"), "command terminated with exit code 126", true),
            // Another code is the script's own, whatever it complains of.
            (Some("1"), "no such file or directory", false),
            (Some("137"), "command terminated with exit code 137", false),
            (None, busy.as_str(), false),
            (None, "container not found (\"app\")", false),
            (None, "", false),
        ] {
            let causes = code.map(|code| json!([{ "reason": "ExitCode", "message": code }]));
            let status = serde_json::from_value(json!({
                "status": "Failure", "message": message, "details": { "causes": causes },
            }));
            let why = unrun(status.unwrap());
            assert_eq!(
                matches!(why, Unrun::Unable(_)),
                unable,
                "{code:?} {message}"
            );
        }
    }
}
