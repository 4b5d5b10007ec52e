//! What is run in containers: the script that ends the processes of a grant, and the probe that
//! finds out whether a command there can be made to end by itself. Each is an exec, for which the
//! operator has the right because it hands it out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::AttachParams;
use kube::{Api, Client, ResourceExt};
use oz_core::api::SessionProbe;
use oz_core::connect::{cut, script};
use oz_core::controller::{Failure, Sessions, SessionsEnded};
use oz_engine::EndSessions;
use tokio::io::AsyncReadExt;

/// How long one script may take in one container.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a probe may hold up a grant.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);
/// For how long a container that could not be probed is not probed again.
const AGAIN: Duration = Duration::from_secs(30);
/// The most that is read of an answer, in bytes.
const ANSWER: u64 = 4096;
/// Known images; more only if somebody makes them up.
const KNOWN: usize = 10_000;

/// Why nothing came of running something.
enum Unrun {
    /// The container cannot run it: it has no shell.
    Unable(String),
    /// The node did not answer, or something else that may pass.
    Unreached(String),
}

/// Runs `command` in a container and gives what it wrote on standard output.
async fn run(
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
            .map_err(|error| unrun(&error.to_string()))?;
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
            return Err(unrun(&status.message.unwrap_or_default()));
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(patience, whole)
        .await
        .unwrap_or_else(|_| Err(Unrun::Unreached(format!("no answer within {patience:?}"))))
}

/// Container runtimes say in words that there is no shell.
fn unrun(message: &str) -> Unrun {
    let words = [
        "no such file or directory",
        "executable file not found",
        "not found",
        "permission denied",
        "exit code 126",
        "exit code 127",
        "container not found",
        "container is not created or running",
    ];
    let lower = message.to_lowercase();
    if words.iter().any(|word| lower.contains(word)) {
        Unrun::Unable(message.to_owned())
    } else {
        Unrun::Unreached(message.to_owned())
    }
}

/// Every container of the pod that runs now, ephemeral ones too.
fn running(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    let all = status.flat_map(|status| {
        let main = status.container_statuses.iter().flatten();
        let init = status.init_container_statuses.iter().flatten();
        let ephemeral = status.ephemeral_container_statuses.iter().flatten();
        main.chain(init).chain(ephemeral)
    });
    all.filter(|one| {
        let state = one.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    })
}

/// Ends sessions by a script that is run in each container of their pod.
pub(crate) struct Scripts {
    pub(crate) client: Client,
}

impl Scripts {
    async fn end_all(&self, sessions: &Sessions) -> Result<SessionsEnded, Failure> {
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
        // Gone, or another of its name: what ran in it is gone with it.
        let Some(pod) = pod.filter(|pod| pod.uid().as_deref() == Some(&sessions.pod_uid)) else {
            return Ok(SessionsEnded::default());
        };
        let command = script::command(&sessions.mark);
        let runs = running(&pod).map(|container| {
            let (pods, command, name) = (&pods, command.clone(), container.name.clone());
            async move {
                let answer = run(pods, &sessions.pod, &name, command, PATIENCE).await;
                (name, answer)
            }
        });
        let mut ended = SessionsEnded::default();
        let mut unreached = None;
        for (name, answer) in join_all(runs).await {
            match answer.map(|text| script::answer(&text)) {
                Ok(Some(done)) => {
                    ended.ended = ended.ended.saturating_add(done.ended);
                    ended.left = ended.left.saturating_add(done.left);
                }
                Ok(None) => unreached = Some(format!("the script in {name} came to no end")),
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
            None => Ok(ended),
        }
    }
}

impl EndSessions for Scripts {
    fn end<'a>(
        &'a self,
        sessions: &'a Sessions,
    ) -> BoxFuture<'a, Result<Option<SessionsEnded>, Failure>> {
        self.end_all(sessions).map(|ended| ended.map(Some)).boxed()
    }
}

/// What containers were found able to. Cheap to clone; clones share what is known.
#[derive(Clone, Default)]
pub(crate) struct Probes {
    /// Whether any container is run anything in.
    pub(crate) enabled: bool,
    known: Arc<Mutex<HashMap<(String, String), Known>>>,
}

#[derive(Clone)]
enum Known {
    Found(SessionProbe),
    /// Could not be found out at this instant.
    Failed(Instant),
}

impl Probes {
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            known: Arc::default(),
        }
    }

    /// Takes in what an earlier process found.
    pub(crate) fn learn(&self, probes: &[SessionProbe]) {
        for probe in probes {
            let key = (probe.container.clone(), probe.image_id.clone());
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known
                .entry(key)
                .or_insert_with(|| Known::Found(probe.clone()));
        }
    }

    /// What the containers of the pod are able to; those of an unknown image are probed now.
    pub(crate) async fn of(
        &self,
        client: &Client,
        namespace: &str,
        pod: &Pod,
    ) -> Vec<SessionProbe> {
        if !self.enabled {
            return Vec::new();
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let name = pod.name_any();
        let found = running(pod).map(|container| self.one(&pods, &name, container));
        join_all(found).await.into_iter().flatten().collect()
    }

    async fn one(
        &self,
        pods: &Api<Pod>,
        pod: &str,
        container: &ContainerStatus,
    ) -> Option<SessionProbe> {
        let key = (container.name.clone(), container.image_id.clone());
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&key).cloned();
        match known {
            Some(Known::Found(probe)) => return Some(probe),
            Some(Known::Failed(at)) if at.elapsed() < AGAIN => return None,
            Some(Known::Failed(_)) | None => {}
        }
        let command = vec!["/bin/sh".to_owned(), "-c".to_owned(), cut::PROBE.to_owned()];
        let found = match run(pods, pod, &key.0, command, PROBE_PATIENCE).await {
            Ok(answer) => Known::Found(cut::probed(&key.0, &key.1, &answer)),
            Err(Unrun::Unable(_)) => Known::Found(cut::probed(&key.0, &key.1, "")),
            Err(Unrun::Unreached(why)) => {
                tracing::info!(
                    pod,
                    container = key.0,
                    why,
                    "a container could not be probed"
                );
                Known::Failed(Instant::now())
            }
        };
        let mut known = lock();
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(key, found.clone());
        match found {
            Known::Found(probe) => Some(probe),
            Known::Failed(_) => None,
        }
    }
}
