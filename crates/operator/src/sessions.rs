//! The script that ends the processes of grants, run in the containers of their pods when they end.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};
use oz_core::audit::{Action, Record};
use oz_core::connect::script::{Ended, Ending};
use oz_core::connect::{Way, script};
use oz_core::controller::{Failure, Opened, Sessions, SessionsEnded};
use oz_engine::{EndSessions, Sink as _};
use oz_process::audit::Trail;
use oz_runtime::{Clock as _, ServerClock};

use crate::container_exec::{Unrun, run_into, running};
use crate::session_openings::Openings;
use crate::session_turns::{Came, RunScript, Turns};

/// How long one script may take in one container.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many scripts are run at once where one alone came to no end.
const SEVERAL: usize = 4;
/// How long after an end it is looked whether something has started since. Not sooner: where many end
/// together, their nodes are still busy with that.
const LATER: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(35),
];

/// What came of each grant in a container.
type Answers = BTreeMap<String, Ended>;

/// Runs the script in one container for these grants, and says what came of it for each that it got to
/// an end for. Several at once for the others, which somebody in there may have seen to: they then have
/// to find each of them before it finds them.
async fn end_in(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    grants: &[Ending<'_>],
) -> Result<Answers, Unrun> {
    let once = async |grants: &[Ending<'_>]| {
        let (command, mut text) = (script::command(grants), Vec::new());
        let ran = run_into(pods, pod, container, command, SCRIPT_TIMEOUT, &mut text).await;
        let answers = script::answers(&String::from_utf8_lossy(&text));
        match ran {
            Err(why) if answers.is_empty() => Err(why),
            _ => Ok(answers),
        }
    };
    let first = once(grants).await;
    let mut answers = match &first {
        Ok(answers) => answers.clone(),
        Err(Unrun::Unreached(_)) => BTreeMap::new(),
        Err(Unrun::Unable(_)) => return first,
    };
    let rest = grants.iter().filter(|one| !answers.contains_key(one.grant));
    let rest: Vec<Ending<'_>> = rest.copied().collect();
    if rest.is_empty() {
        return Ok(answers);
    }
    let again = join_all((0..SEVERAL).map(|_| once(&rest))).await;
    for (grant, one) in again.into_iter().flatten().flatten() {
        // Each counts what it ended itself, and all the same what is left.
        let both = |known: &mut Ended| {
            known.ended = known.ended.saturating_add(one.ended);
            known.left = known.left.min(one.left);
        };
        answers.entry(grant).and_modify(both).or_insert(one);
    }
    if answers.is_empty() {
        let none = || Err(Unrun::Unreached("the script came to no end".to_owned()));
        return first.and_then(|_| none());
    }
    Ok(answers)
}

/// Runs the script that ends sessions in each container of their pod.
#[derive(Clone)]
struct InPod {
    client: Client,
    clock: ServerClock,
}

impl RunScript for InPod {
    fn run(&self, sessions: Vec<Sessions>) -> BoxFuture<'static, Vec<Came>> {
        let this = self.clone();
        async move { this.end(&sessions).await }.boxed()
    }
}

impl InPod {
    /// Ends what runs now of these, which are in one pod; none if the pod is gone, or another of its
    /// name: what ran in it is gone with it.
    async fn end(&self, sessions: &[Sessions]) -> Vec<Came> {
        let Some(first) = sessions.first() else {
            return Vec::new();
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &first.namespace);
        let name = first.pod.as_str();
        let all = |came: Came| vec![came; sessions.len()];
        let read = tokio::time::timeout(SCRIPT_TIMEOUT, pods.get_opt(name)).await;
        let pod = match read {
            Ok(Ok(pod)) => pod,
            Ok(Err(error)) => return all(Err(not_ended(name, &error.to_string()))),
            Err(_) => {
                return all(Err(not_ended(
                    name,
                    &format!("no answer within {SCRIPT_TIMEOUT:?}"),
                )));
            }
        };
        let Some(pod) = pod.filter(|pod| pod.uid().as_deref() == Some(&first.pod_uid)) else {
            return all(Ok(None));
        };
        let now = self.clock.now();
        let grants: Vec<Ending<'_>> = sessions
            .iter()
            .map(|one| Ending {
                grant: &one.mark,
                age: now.duration_since(one.granted_at),
            })
            .collect();
        let runs = running(&pod).map(async |container| {
            let answer = end_in(&pods, name, &container.name, &grants).await;
            (container.name.clone(), answer)
        });
        let answers = join_all(runs).await;
        let came = sessions
            .iter()
            .map(|one| of_grant(name, &one.mark, &answers));
        came.collect()
    }
}

/// What came of one grant in all containers.
fn of_grant(pod: &str, grant: &str, answers: &[(String, Result<Answers, Unrun>)]) -> Came {
    let mut all = SessionsEnded::default();
    for (container, answer) in answers {
        match answer {
            Ok(answers) => {
                let Some(done) = answers.get(grant) else {
                    let why = format!("{container}: the script came to no end");
                    return Err(not_ended(pod, &why));
                };
                all.ended = all.ended.saturating_add(done.ended);
                all.left = all.left.saturating_add(done.left);
            }
            Err(Unrun::Unable(why)) => {
                tracing::debug!(pod, container, why, "nothing can be run");
                all.out_of_reach.push(container.clone());
            }
            Err(Unrun::Unreached(why)) => {
                return Err(not_ended(pod, &format!("{container}: {why}")));
            }
        }
    }
    Ok(Some(all))
}

fn not_ended(pod: &str, why: &str) -> Failure {
    Failure::transient(
        Failure::SESSIONS_NOT_ENDED,
        format!("failed to end the sessions in pod {pod}: {why}"),
    )
}

/// Ends sessions by scripts, in their turn.
#[derive(Clone)]
pub(crate) struct Scripts {
    turns: Turns<InPod>,
    openings: Openings,
    clock: ServerClock,
    trail: Trail,
    /// The grants that are looked at again, see [`Scripts::look_again`].
    again: Arc<Mutex<HashSet<String>>>,
}

impl Scripts {
    pub(crate) fn new(client: Client, clock: ServerClock, trail: Trail) -> Self {
        let in_pod = InPod {
            client: client.clone(),
            clock: clock.clone(),
        };
        Self {
            turns: Turns::new(in_pod),
            openings: Openings::new(client),
            clock,
            trail,
            again: Arc::default(),
        }
    }

    async fn end_all(&self, sessions: &Sessions) -> Result<SessionsEnded, Failure> {
        let mut ended = SessionsEnded::default();
        if !sessions.with_pod {
            ended = self.turns.end(sessions.clone()).await?.unwrap_or_default();
            self.look_again(sessions);
        }
        let records = self.openings.of(&sessions.mark).await;
        ended.opened = opened(records.into_iter(), sessions.with_pod);
        Ok(ended)
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
                match this.turns.end(sessions.clone()).await {
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
}

/// The sessions that end now; none if that is on record already. A port that is forwarded, or a stream
/// that is attached to, is no process in the container: it ends with its pod only. Of equal ones within
/// a minute, the first has a record, and the others have one together.
fn opened(records: impl Iterator<Item = Record>, with_pod: bool) -> Option<Opened> {
    let (opened, ended): (Vec<_>, Vec<_>) =
        records.partition(|record| record.action == Action::SessionOpened);
    if !ended.is_empty() {
        return None;
    }
    let exec = |record: &Record| {
        let way = record.details.get("way");
        way.is_some_and(|way| way == Way::Exec.title())
    };
    let opened = opened.into_iter();
    let ending = opened.filter(|record| with_pod || exec(record));
    let ending = ending.map(|record| match record.repeated {
        Some(repeated) => (repeated.first, repeated.count),
        None => (record.time, 1),
    });
    ending.fold(None, |known, (first, count)| {
        Some(match known {
            Some(Opened {
                first: before,
                count: others,
            }) => Opened {
                first: before.min(first),
                count: others + count,
            },
            None => Opened { first, count },
        })
    })
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
    use jiff::Timestamp;
    use oz_core::audit::{Decision, Repeated};

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
        let since = |second, count| {
            Some(Opened {
                first: at(second),
                count,
            })
        };
        assert_eq!(opened(all.iter().cloned(), false), since(1, 2));
        assert_eq!(opened(all.iter().cloned(), true), since(1, 3));
        let mut several = record(Action::SessionOpened, 60, Way::Exec);
        several.repeated = Some(Repeated {
            count: 40,
            first: at(4),
            last: at(60),
            samples: Vec::new(),
        });
        let all_and_several = all.iter().cloned().chain([several.clone()]);
        assert_eq!(opened(all_and_several, false), since(1, 42));
        assert_eq!(opened([several].into_iter(), false), since(4, 40));
        for action in [Action::SessionCut, Action::SessionEnded] {
            let told = all.iter().cloned().chain([record(action, 4, Way::Exec)]);
            assert_eq!(opened(told, false), None);
        }
    }
}
