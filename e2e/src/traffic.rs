//! Grants that begin and expire while a test acts on oz, and the times of each of them from the API server's
//! own log.

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

use crate::{ExecRequests, GrantedRequest, Scene, TEMPLATE, conditions_line, exec_request};

/// The interval and the duration of the requests.
#[derive(Clone, Copy, Debug)]
pub struct TrafficPlan {
    /// The time between two requests.
    pub pace: Duration,
    /// The shortest duration of a grant, in seconds.
    pub shortest: usize,
}

impl Default for TrafficPlan {
    /// The default. The requests that accumulated while no replica led are granted before and together with
    /// the first that waited: the benches measure the speed, which depends on the machine. Grants last longer
    /// than a lease, so that each can begin before it ends.
    fn default() -> Self {
        Self {
            pace: Duration::from_millis(500),
            shortest: 24,
        }
    }
}

/// The number of different durations, in steps of a second.
const STEPS: usize = 12;
const TRAFFIC_TIMEOUT: Duration = Duration::from_secs(120);

/// A user who creates requests repeatedly.
#[derive(Debug)]
pub struct Traffic {
    mark: AuditMark,
    stop: watch::Sender<bool>,
    made: Arc<AtomicUsize>,
    task: JoinHandle<Asking>,
}

/// The created requests, and the number of failed attempts.
#[derive(Debug, Default)]
struct Asking {
    names: Vec<String>,
    refused: Vec<String>,
    unreachable: usize,
}

/// The times of a grant.
#[derive(Clone, Debug)]
pub struct GrantTimes {
    /// The name of the request.
    pub name: String,
    /// The time at which the API server was asked to create it.
    pub asked: Timestamp,
    /// The time at which the RoleBinding was created.
    pub bound: Timestamp,
    /// The time at which the request reported that it is ready, if the API server was able to log that.
    pub ready: Option<Timestamp>,
    /// The time that the API server took to answer the four writes of a grant: the request, the Role, the
    /// RoleBinding and the status.
    pub answering: SignedDuration,
    /// The expiry of the access.
    pub until: Timestamp,
    /// The time at which the RoleBinding was deleted.
    pub gone: Timestamp,
}

/// The results of all requests.
#[derive(Debug)]
pub struct Outcome {
    /// The times of the granted requests, by name.
    pub granted: Vec<GrantTimes>,
    /// The requests that were over before they were granted, with their conditions.
    pub in_vain: Vec<String>,
    /// The requests that were granted and have ended without a log of their writes because an API server
    /// died: their times are not known.
    pub unlogged: Vec<String>,
    /// The messages of the API server for the requests that it refused.
    pub refused: Vec<String>,
    /// The number of requests that no API server answered.
    pub unreachable: usize,
}

impl GrantTimes {
    /// Returns the time from the request until access.
    #[must_use]
    pub fn wait(&self) -> SignedDuration {
        self.bound.duration_since(self.asked)
    }

    /// Returns the time from the request until it reported that access is granted.
    #[must_use]
    pub fn until_ready(&self) -> Option<SignedDuration> {
        Some(self.ready?.duration_since(self.asked))
    }

    /// Returns the time by which access lasted longer than its expiry.
    #[must_use]
    pub fn late(&self) -> SignedDuration {
        self.gone.duration_since(self.until)
    }
}

impl Traffic {
    /// Begins to create requests, as alice.
    ///
    /// # Errors
    /// When the cluster has no audit log.
    pub async fn start(scene: &Scene) -> Result<Self> {
        Self::start_as(scene, "alice", TrafficPlan::default()).await
    }

    /// Begins like [`Traffic::start`], as another user and with another plan.
    ///
    /// # Errors
    /// As [`Traffic::start`], and when the user does not exist.
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

    /// Waits until `count` more requests were created.
    ///
    /// # Errors
    /// When the requests take too long.
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
    /// When the request takes too long.
    pub async fn granted(&self, scene: &Scene) -> Result<()> {
        self.more(1).await?;
        // The last request may have been created before: the next was not.
        let number = self.made.load(Ordering::Relaxed);
        self.more(1).await?;
        let alice = scene.requests("alice").await?;
        alice.ready(&name(number)).await.map(drop)
    }

    /// Waits until the first request has expired: from then on grants begin and expire.
    ///
    /// # Errors
    /// When the request takes too long.
    pub async fn flows(&self, scene: &Scene) -> Result<()> {
        self.granted(scene).await?;
        let alice = scene.requests("alice").await?;
        alice.phase(&name(0), Phase::Expired).await.map(drop)
    }

    /// Stops creating requests, waits until all granted ones have ended, and returns their results.
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
            let told = format!("{}: {}", request.name_any(), describe_conditions(&request));
            match log.times(request)? {
                RequestOutcome::Granted(times) => granted.push(times),
                RequestOutcome::Unlogged => unlogged.push(told),
                RequestOutcome::NotGranted => in_vain.push(told),
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

/// The times that the log contains of an ended request.
enum RequestOutcome {
    Granted(GrantTimes),
    Unlogged,
    NotGranted,
}

/// The API server's log of the scene.
struct Log(AuditEntries);

impl Log {
    fn times(&self, request: ExecAccessRequest) -> Result<RequestOutcome> {
        const REQUESTS: &str = "execaccessrequests";
        let name = request.name_any();
        let status = request.status.clone().unwrap_or_default();
        let created = request.creation_timestamp().context("no creation")?.0;
        let object = GrantedRequest { request }.object_name();
        let first = |verb, resource, of: &str, codes: &[u16]| {
            let mut entries = self.entries(resource, "", of);
            entries.find(|entry| entry.verb == verb && codes.contains(&entry.code))
        };
        let asked = first("create", REQUESTS, &name, &[201]);
        let role = first("create", "roles", &object, &[201]);
        let binding = first("create", "rolebindings", &object, &[201]);
        // A request whose response was lost is repeated: the object is deleted then.
        let gone = first("delete", "rolebindings", &object, &[200, 404]);
        let Some(bound) = binding.map(|entry| entry.stage_timestamp) else {
            return Ok(match status.granted_at {
                Some(_) => RequestOutcome::Unlogged,
                None => RequestOutcome::NotGranted,
            });
        };
        let Some(gone) = gone else {
            return Ok(RequestOutcome::Unlogged);
        };
        let mut statuses = self.entries(REQUESTS, "status", &name);
        let ready = statuses.find(|entry| entry.received >= bound && entry.succeeded());
        let writes = [asked, role, binding, ready].into_iter().flatten();
        Ok(RequestOutcome::Granted(GrantTimes {
            asked: asked.map_or(created, |entry| entry.received),
            bound,
            ready: ready.map(|entry| entry.stage_timestamp),
            answering: writes.map(AuditEntry::took).sum(),
            until: status.expires_at.context("no end")?,
            gone: gone.stage_timestamp,
            name: name.clone(),
        }))
    }

    /// Returns the requests about one object, in the order of the responses.
    fn entries(
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
            // The object was created after all, when the response was lost.
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

/// Returns the requests, once all of them have expired.
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
            bail!(
                "{} is {}: {}",
                one.name_any(),
                phase(one),
                describe_conditions(one)
            );
        }
    }
    anyhow::ensure!(
        over.len() == count,
        "{} requests of {count} are there",
        over.len()
    );
    Ok(over)
}

/// Returns the conditions.
fn describe_conditions(request: &ExecAccessRequest) -> String {
    conditions_line(&request.status.clone().unwrap_or_default())
}

fn phase(request: &ExecAccessRequest) -> Phase {
    request
        .status
        .as_ref()
        .map(|status| status.phase)
        .unwrap_or_default()
}
