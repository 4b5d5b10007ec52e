//! Grants that come and go, while something happens to oz, and when each of them came and went by the
//! API server's own log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::ListParams;
use oz_api::{ExecAccessRequest, Phase};
use oz_testkit::{AuditEntries, AuditEntry, AuditMark, eventually};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{Asked, ExecRequests, Scene, TEMPLATE, conditions_line, exec_request};

/// How often somebody asks, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct TrafficPlan {
    /// Between two requests.
    pub pace: Duration,
    /// Grants last this many seconds and more.
    pub shortest: usize,
}

impl Default for TrafficPlan {
    /// What has heaped up when nobody led is worked off before and beside the first that waited: how
    /// fast is for the benches to say, and depends on the machine. Grants last longer than a lease, so
    /// that each can begin before it ends.
    fn default() -> Self {
        Self {
            pace: Duration::from_millis(500),
            shortest: 24,
        }
    }
}

/// In so many steps of a second.
const STEPS: usize = 12;
const TRAFFIC_TIMEOUT: Duration = Duration::from_secs(120);

/// Somebody who asks again and again.
#[derive(Debug)]
pub struct Traffic {
    mark: AuditMark,
    stop: watch::Sender<bool>,
    made: Arc<AtomicUsize>,
    task: JoinHandle<Asking>,
}

/// What was asked for, and how often in vain.
#[derive(Debug, Default)]
struct Asking {
    names: Vec<String>,
    refused: Vec<String>,
    unreachable: usize,
}

/// When a grant came and went.
#[derive(Clone, Debug)]
pub struct GrantTimes {
    /// Of the request.
    pub name: String,
    /// When the API server was asked to create it.
    pub asked: Timestamp,
    /// When the RoleBinding was created.
    pub bound: Timestamp,
    /// When the request said that it is ready, if the API server came to log that.
    pub ready: Option<Timestamp>,
    /// How long the API server took meanwhile to answer the four writes that a grant is: the request,
    /// the Role, the RoleBinding and the status.
    pub answering: SignedDuration,
    /// When access was to end.
    pub until: Timestamp,
    /// When the RoleBinding was deleted.
    pub gone: Timestamp,
}

/// What became of everything that was asked for.
#[derive(Debug)]
pub struct Outcome {
    /// Of those that were granted, by name.
    pub granted: Vec<GrantTimes>,
    /// Those that were over before they were granted, with what their conditions say.
    pub in_vain: Vec<String>,
    /// Those that were granted and have ended, but of which an API server that died did not come to log
    /// the writes: when they were is not known.
    pub unlogged: Vec<String>,
    /// What the API server said to those that it refused.
    pub refused: Vec<String>,
    /// How often no API server answered.
    pub unreachable: usize,
}

impl GrantTimes {
    /// From asking until access.
    #[must_use]
    pub fn wait(&self) -> SignedDuration {
        self.bound.duration_since(self.asked)
    }

    /// From asking until the request said that access is there.
    #[must_use]
    pub fn until_ready(&self) -> Option<SignedDuration> {
        Some(self.ready?.duration_since(self.asked))
    }

    /// How long access lasted longer than agreed.
    #[must_use]
    pub fn late(&self) -> SignedDuration {
        self.gone.duration_since(self.until)
    }
}

impl Traffic {
    /// Begins to ask, as alice.
    ///
    /// # Errors
    /// When there is no audit log.
    pub async fn start(scene: &Scene) -> Result<Self> {
        Self::start_as(scene, "alice", TrafficPlan::default()).await
    }

    /// As [`Traffic::start`], as somebody else and in other terms.
    ///
    /// # Errors
    /// As [`Traffic::start`], and when there is no such user.
    pub async fn start_as(scene: &Scene, user: &str, plan: TrafficPlan) -> Result<Self> {
        let requests = scene.requests(user).await?;
        let mark = scene.cluster.audit().mark()?;
        let (stop, stopped) = watch::channel(false);
        let made = Arc::default();
        let task = tokio::spawn(ask(requests, plan, stopped, Arc::clone(&made)));
        Ok(Self {
            mark,
            stop,
            made,
            task,
        })
    }

    /// Waits until so many more requests were created.
    ///
    /// # Errors
    /// When it takes too long.
    pub async fn more(&self, count: usize) -> Result<()> {
        let wanted = self.made.load(Ordering::Relaxed) + count;
        eventually(
            &format!("{count} more requests"),
            TRAFFIC_TIMEOUT,
            async || Ok((self.made.load(Ordering::Relaxed) >= wanted).then_some(())),
        )
        .await
    }

    /// Waits until a request that is created from now on is granted.
    ///
    /// # Errors
    /// When it takes too long.
    pub async fn granted(&self, scene: &Scene) -> Result<()> {
        self.more(1).await?;
        // The last one may have been created before: the next was not.
        let number = self.made.load(Ordering::Relaxed);
        self.more(1).await?;
        let alice = scene.requests("alice").await?;
        alice.ready(&name(number)).await.map(drop)
    }

    /// Waits until what was asked for first has ended: from then on grants come and go.
    ///
    /// # Errors
    /// When it takes too long.
    pub async fn flows(&self, scene: &Scene) -> Result<()> {
        self.granted(scene).await?;
        let alice = scene.requests("alice").await?;
        alice.phase(&name(0), Phase::Expired).await.map(drop)
    }

    /// Asks no more, waits until everything that was granted has ended, and tells what became of it.
    ///
    /// # Errors
    /// When a request was not granted, or its access did not end.
    pub async fn stop(self, scene: &Scene) -> Result<Outcome> {
        self.stop.send_replace(true);
        let asking = self.task.await?;
        let over = ended(scene, asking.names.len()).await?;
        let entries = scene.cluster.audit().since(self.mark)?;
        let log = Log(entries.in_namespace(scene.name()));
        let (mut granted, mut in_vain, mut unlogged) = (Vec::new(), Vec::new(), Vec::new());
        for request in over {
            let told = format!("{}: {}", request.name_any(), told(&request));
            match log.times(request)? {
                Seen::Granted(times) => granted.push(times),
                Seen::Unlogged => unlogged.push(told),
                Seen::NotGranted => in_vain.push(told),
            }
        }
        Ok(Outcome {
            granted,
            in_vain,
            unlogged,
            refused: asking.refused,
            unreachable: asking.unreachable,
        })
    }
}

/// What the log has of a request that has ended.
enum Seen {
    Granted(GrantTimes),
    Unlogged,
    NotGranted,
}

/// What the API server wrote down of the scene.
struct Log(AuditEntries);

impl Log {
    fn times(&self, request: ExecAccessRequest) -> Result<Seen> {
        const REQUESTS: &str = "execaccessrequests";
        let name = request.name_any();
        let status = request.status.clone().unwrap_or_default();
        let created = request.creation_timestamp().context("no creation")?.0;
        let object = Asked { request }.object_name();
        let first = |verb, resource, of: &str, codes: &[u16]| {
            let mut entries = self.of(resource, "", of);
            entries.find(|entry| entry.verb == verb && codes.contains(&entry.code))
        };
        let asked = first("create", REQUESTS, &name, &[201]);
        let role = first("create", "roles", &object, &[201]);
        let binding = first("create", "rolebindings", &object, &[201]);
        // An answer that was lost is asked for again: it is gone then.
        let gone = first("delete", "rolebindings", &object, &[200, 404]);
        let Some(bound) = binding.map(|entry| entry.stage_timestamp) else {
            return Ok(match status.granted_at {
                Some(_) => Seen::Unlogged,
                None => Seen::NotGranted,
            });
        };
        let Some(gone) = gone else {
            return Ok(Seen::Unlogged);
        };
        let mut statuses = self.of(REQUESTS, "status", &name);
        let ready = statuses.find(|entry| entry.received >= bound && entry.succeeded());
        let writes = [asked, role, binding, ready].into_iter().flatten();
        Ok(Seen::Granted(GrantTimes {
            asked: asked.map_or(created, |entry| entry.received),
            bound,
            ready: ready.map(|entry| entry.stage_timestamp),
            answering: writes.map(AuditEntry::took).sum(),
            until: status.expires_at.context("no end")?,
            gone: gone.stage_timestamp,
            name: name.clone(),
        }))
    }

    /// What was asked about one object, in the order of the answers.
    fn of(
        &self,
        resource: &str,
        subresource: &str,
        name: &str,
    ) -> impl Iterator<Item = &AuditEntry> {
        self.0.iter().filter(move |entry| {
            entry.resource == resource && entry.subresource == subresource && entry.name == name
        })
    }
}

fn name(number: usize) -> String {
    format!("traffic-{number}")
}

async fn ask(
    requests: ExecRequests,
    plan: TrafficPlan,
    mut stopped: watch::Receiver<bool>,
    made: Arc<AtomicUsize>,
) -> Asking {
    let mut asking = Asking::default();
    let mut pace = tokio::time::interval(plan.pace);
    while !*stopped.borrow_and_update() {
        pace.tick().await;
        let number = asking.names.len();
        let request = exec_request(
            &name(number),
            TEMPLATE,
            &format!("{}s", plan.shortest + number % STEPS),
        );
        match requests.create(&request).await {
            Ok(_) => {}
            // As it was created after all, when no answer came.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(kube::Error::Api(status)) => {
                asking.refused.push(status.message);
                continue;
            }
            Err(_) => {
                asking.unreachable += 1;
                continue;
            }
        }
        asking.names.push(request.name_any());
        made.store(asking.names.len(), Ordering::Relaxed);
    }
    asking
}

/// The requests, once all of them have expired.
async fn ended(scene: &Scene, count: usize) -> Result<Vec<ExecAccessRequest>> {
    let requests = scene.api::<ExecAccessRequest>();
    let over = eventually("everything to end", TRAFFIC_TIMEOUT, async || {
        let list = requests.list(&ListParams::default()).await?.items;
        let is_over = |one: &&ExecAccessRequest| phase(one).is_terminal();
        let open = list.iter().filter(|one| !is_over(one)).count();
        anyhow::ensure!(open == 0, "{open} of {} have not ended", list.len());
        Ok(Some(list))
    })
    .await?;
    for one in &over {
        if phase(one) != Phase::Expired {
            bail!("{} is {}: {}", one.name_any(), phase(one), told(one));
        }
    }
    anyhow::ensure!(
        over.len() == count,
        "{} requests of {count} are there",
        over.len()
    );
    Ok(over)
}

/// The conditions.
fn told(request: &ExecAccessRequest) -> String {
    conditions_line(&request.status.clone().unwrap_or_default())
}

fn phase(request: &ExecAccessRequest) -> Phase {
    request
        .status
        .as_ref()
        .map(|status| status.phase)
        .unwrap_or_default()
}
