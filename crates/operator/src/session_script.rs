//! The script that ends the processes of grants, run in the containers of their pod.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};
use oz_core::connect::script::{self, Ended, Ending};
use oz_core::controller::Failure;
use oz_core::sessions::{self, Sessions, SessionsEnded};
use oz_runtime::{Clock as _, ServerClock};

use crate::container_exec::{TimeLimit, Unrun, run_into, running};
use crate::session_queue::{EndResult, RunScript};

/// The timeout for reading a pod.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limits of one script in one container: for each grant, and for all of them.
const SCRIPT_TIMEOUT: TimeLimit = TimeLimit {
    silence: Duration::from_secs(5),
    whole: Duration::from_secs(20),
};
/// The number of concurrent scripts after one that did not finish.
const SEVERAL: usize = 4;
/// The results for the grants in one container.
type Answers = BTreeMap<String, Ended>;

/// Runs the script in one container for these grants, and returns the result for each grant that it
/// finished. For the others it runs several at once, since a user in the container may have stopped
/// the script: that user then has to find each script before it finds the processes. Each begins
/// with another grant, so that a grant on which the script hangs is not before all others again.
async fn end_in(
    pods: &Api<Pod>,
    pod: &str,
    container: &str,
    clock: &ServerClock,
    grants: &[&Sessions],
) -> Result<Answers, Unrun> {
    let once = async |grants: Vec<&Sessions>| {
        let now = clock.now();
        let endings = grants.iter().map(|one| Ending {
            grant: &one.mark,
            age: now.duration_since(one.granted_at),
        });
        let (command, mut text) = (script::command(&endings.collect::<Vec<_>>()), Vec::new());
        let ran = run_into(pods, pod, container, command, SCRIPT_TIMEOUT, &mut text).await;
        let answers = script::answers(&String::from_utf8_lossy(&text));
        match ran {
            Err(why) if answers.is_empty() => Err(why),
            _ => Ok(answers),
        }
    };
    let first = once(grants.to_vec()).await;
    let mut answers = match &first {
        Ok(answers) => answers.clone(),
        Err(Unrun::Unreached(_)) => BTreeMap::new(),
        Err(Unrun::Unable(_)) => return first,
    };
    let rest = grants.iter().filter(|one| !answers.contains_key(&one.mark));
    let rest: Vec<&Sessions> = rest.copied().collect();
    if rest.is_empty() {
        return Ok(answers);
    }
    let again = join_all((0..SEVERAL).map(|number| {
        let (before, from) = rest.split_at(number * rest.len() / SEVERAL);
        once([from, before].concat())
    }));
    let again = again.await;
    for (grant, one) in again.into_iter().flatten().flatten() {
        // Each counts the processes that it ended itself, and all of them the remaining ones.
        let both = |known: &mut Ended| {
            known.ended = known.ended.saturating_add(one.ended);
            known.left = known.left.min(one.left);
        };
        answers.entry(grant).and_modify(both).or_insert(one);
    }
    if answers.is_empty() {
        let none = || Err(Unrun::Unreached("the script did not terminate".to_owned()));
        return first.and_then(|_| none());
    }
    Ok(answers)
}

/// The runner of the script that ends sessions in each container of their pod.
#[derive(Clone)]
pub(crate) struct InPod {
    pub(crate) client: Client,
    pub(crate) clock: ServerClock,
}

impl RunScript for InPod {
    type Pod = Pod;

    fn find(&self, sessions: Sessions) -> BoxFuture<'static, Result<Option<Pod>, Failure>> {
        let this = self.clone();
        async move { this.pod(&sessions).await }.boxed()
    }

    fn node(pod: &Pod) -> String {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        node.unwrap_or_default()
    }

    fn run(&self, pod: Pod, sessions: Vec<Sessions>) -> BoxFuture<'static, Vec<EndResult>> {
        let this = self.clone();
        async move { this.end(&pod, &sessions).await }.boxed()
    }
}

impl InPod {
    /// Returns the pod of these sessions; `None` if it is gone, or replaced by another with its
    /// name: its processes are gone with it.
    async fn pod(&self, sessions: &Sessions) -> Result<Option<Pod>, Failure> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &sessions.namespace);
        let name = sessions.pod.as_str();
        match tokio::time::timeout(READ_TIMEOUT, pods.get_opt(name)).await {
            Ok(Ok(pod)) => Ok(pod.filter(|pod| pod.uid().as_deref() == Some(&sessions.pod_uid))),
            Ok(Err(error)) => Err(not_ended(name, &error.to_string())),
            Err(_) => Err(not_ended(
                name,
                &format!("no response within {READ_TIMEOUT:?}"),
            )),
        }
    }

    /// Ends the running processes of these sessions, which are in this pod.
    async fn end(&self, pod: &Pod, sessions: &[Sessions]) -> Vec<EndResult> {
        let name = pod.name_any();
        let Some(namespace) = pod.namespace() else {
            let failed = |_| Err(not_ended(&name, "the pod is in no namespace"));
            return sessions.iter().map(failed).collect();
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let grants: Vec<&Sessions> = sessions.iter().collect();
        let runs = running(pod).map(async |container| {
            let answer = end_in(&pods, &name, &container.name, &self.clock, &grants).await;
            (container.name.clone(), answer)
        });
        let answers = join_all(runs).await;
        let ended = sessions
            .iter()
            .map(|one| of_grant(&name, &one.mark, &answers));
        ended.collect()
    }
}

/// Returns the result for one grant in all containers.
fn of_grant(pod: &str, grant: &str, answers: &[(String, Result<Answers, Unrun>)]) -> EndResult {
    let mut all = SessionsEnded::default();
    for (container, answer) in answers {
        match answer {
            Ok(answers) => {
                let Some(done) = answers.get(grant) else {
                    let why = format!("{container}: the script did not terminate");
                    return Err(not_ended(pod, &why));
                };
                all.ended = all.ended.saturating_add(done.ended);
                all.left = all.left.saturating_add(done.left);
            }
            Err(Unrun::Unable(why)) => {
                tracing::debug!(pod, container, why, "no command can be run");
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
        sessions::NOT_ENDED,
        format!("failed to end the sessions in pod {pod}: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use kube::api::AttachParams;
    use kube::core::Request;

    use super::*;
    use crate::container_exec::ANSWER;
    use crate::session_queue::GRANTS_IN_RUN;

    #[test]
    fn a_request_and_an_answer_hold_as_many_grants_as_share_a_script() {
        let grants =
            (0..GRANTS_IN_RUN).map(|number| format!("0a1b2c3d-0000-4000-8000-{number:012}"));
        let grants: Vec<String> = grants.collect();
        let age = SignedDuration::from_hours(24 * 365);
        let endings = grants.iter().map(|grant| Ending { grant, age });
        let command = script::command(&endings.collect::<Vec<_>>());
        let pods = Request::new(format!("/api/v1/namespaces/{}/pods", "n".repeat(63)));
        // The client accepts no URI above 64 KiB.
        let request = pods.exec(&"p".repeat(253), command, &AttachParams::default());
        let length = request.unwrap().uri().to_string().len();
        assert!(length < 32 * 1024, "{length}");
        let most = u32::MAX;
        let answer = grants
            .iter()
            .map(|grant| format!("{grant} ended {most} left {most}\n"));
        let answer: String = answer.collect();
        assert_eq!(script::answers(&answer).len(), GRANTS_IN_RUN);
        assert!(u64::try_from(answer.len()).unwrap() < ANSWER);
    }
}
