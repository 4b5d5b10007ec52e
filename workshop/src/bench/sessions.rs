//! The end of open sessions, on a real node with real kubectl: at expiry, also of those of which the users
//! resist it; by revocation; and at expiry with the operator down. And the cost of opening one where only
//! grants give access, which includes its audit record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use oz_api::conditions;
use oz_e2e::{
    Options, Scene, Session, System, TEMPLATE, Webhook, exec_request, on_a_terminal, running_grants,
};
use parking_lot::Mutex;

use super::Size;
use super::report::{Budget, Report};
use super::stats::Values;
use crate::real_node;

/// The time in which all sessions must be open.
const OPENING: SignedDuration = SignedDuration::from_secs(90);
/// The time over which their ends are spread.
const SPREAD: SignedDuration = SignedDuration::from_secs(10);
/// The number of sessions that are opened at once.
const AT_ONCE: usize = 4;
/// The timeout for a session after its end.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(60);
/// The budgets, in milliseconds.
const ON_TIME: f64 = 500.0;
const REVOKED: f64 = 2000.0;

/// The behaviour of a user in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// The user ignores the end.
    Plain,
    /// The user receives the notice of the end, and ignores it.
    Deaf,
    /// The user kills the process that must end the session.
    Fighter,
    /// The user leaves processes in the background.
    Messy,
}

impl User {
    const fn words(self) -> &'static str {
        match self {
            Self::Plain => "echo here; sleep 7000",
            Self::Deaf => "trap '' HUP TERM INT; echo here; while :; do sleep 1; done",
            Self::Fighter => {
                "trap '' HUP TERM INT; killed=; for p in /proc/[0-9]*; do \
                 case $(tr '\\0' ' ' <$p/cmdline) in timeout*) \
                 if tr '\\0' '\\n' <$p/environ | grep -qx OZ_GRANT=$OZ_GRANT; \
                 then kill -9 ${p#/proc/} && killed=1; fi;; esac; done 2>/dev/null; \
                 [ $killed ] && echo here; while :; do sleep 1; done"
            }
            Self::Messy => {
                "nohup sleep 7001 >/dev/null 2>&1 & setsid sleep 7002 & echo here; sleep 7000"
            }
        }
    }
}

/// A session, with a separate grant.
pub(super) struct Open {
    user: User,
    pub(super) name: String,
    grant: String,
    until: Timestamp,
    pub(super) session: Session,
}

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (_owner, cluster) = real_node::cluster().await?;
    for run in 0..size.runs {
        let mut system = System::start_with(cluster, &Options::default().cutting()).await?;
        let scene = Scene::set(cluster, &format!("sessions-{run}")).await?;
        scene.enforce().await?;
        let watch = ProcessWatch::start();

        let users = [User::Plain, User::Deaf, User::Fighter];
        let open = spread(&scene, "by-time", &users, size.sessions).await?;
        opening(&system.webhook, report).await?;
        by_time("", open, &watch, report)?;

        early(&scene, size.revoked, &watch, report).await?;

        let open = spread(&scene, "alone", &users[..2], size.sessions).await?;
        system.operator.process.kill9();
        by_time("operator down: ", open, &watch, report)?;
    }
    Ok(())
}

/// Opens sessions of which the grants end one after the other.
async fn spread(scene: &Scene, name: &str, users: &[User], count: usize) -> Result<Vec<Open>> {
    let first = Timestamp::now() + OPENING;
    let apart = SPREAD / i32::try_from(count)?;
    let each = (0..count).map(|number| {
        // Each user connects with a terminal and without one.
        let user = users[(number / 2) % users.len()];
        let until = first + apart * i32::try_from(number).unwrap_or(i32::MAX);
        (format!("{name}-{number}"), user, number % 2 == 1, until)
    });
    let open = futures::stream::iter(each)
        .map(async |(name, user, terminal, until)| open(scene, name, user, terminal, until).await)
        .buffered(AT_ONCE);
    let open: Vec<Open> = open.try_collect().await?;
    ensure!(
        Timestamp::now() < first,
        "this machine is too busy to open {count} sessions within {OPENING}"
    );
    Ok(open)
}

/// Requests access until this instant, as a separate user, and opens a session with it.
pub(super) async fn open(
    scene: &Scene,
    name: String,
    user: User,
    terminal: bool,
    until: Timestamp,
) -> Result<Open> {
    scene.cluster.issue_kubeconfig(&name, &["devs"])?;
    let requests = scene.requests(&name).await?;
    // Access counts from the second in which the request is created.
    let left = until.as_millisecond() - Timestamp::now().as_second() * 1000;
    let duration = format!("{}.{:03}s", left / 1000, left % 1000);
    let asked = requests
        .granted(&exec_request(&name, TEMPLATE, &duration))
        .await?;
    let status = asked.status();
    let cut = conditions::find(&status.conditions, conditions::SESSION_TERMINATION);
    let cut = cut.context("nothing is said of sessions")?;
    ensure!(cut.status == "True", "{}", cut.message);

    let mut command = scene.cluster.kubectl(&name);
    let pod = asked.pod();
    let streams = if terminal { "-ti" } else { "-i" };
    command.args(["exec", "-n", scene.name(), streams, &pod, "--", "sh", "-c"]);
    command.arg(user.words());
    if terminal {
        command = on_a_terminal(&command);
    }
    let session = tokio::task::spawn_blocking(move || Session::open(command)).await??;
    Ok(Open {
        user,
        name,
        grant: asked.request.uid().context("no UID")?,
        until: status.expires_at.context("no end")?,
        session,
    })
}

/// Waits for the end of all, and reports its delay.
fn by_time(how: &str, open: Vec<Open>, watch: &ProcessWatch, report: &mut Report) -> Result<()> {
    let mut late: Vec<(User, f64)> = Vec::new();
    for one in &open {
        let left = Duration::try_from(one.until.duration_since(Timestamp::now()));
        let timeout = left.unwrap_or_default() + END_TIMEOUT;
        let ended = one.session.ended(timeout);
        let ended = ended.with_context(|| format!("{} ({:?})", one.name, one.user))?;
        late.push((one.user, milliseconds(ended.duration_since(one.until))));
    }
    let gone = gone(&open, watch)?;
    let processes = open.iter().zip(&gone);
    let processes: Values = processes
        .map(|(one, last)| milliseconds(last.duration_since(one.until)))
        .collect();
    let of = |who: Option<User>| -> Values {
        let those = late
            .iter()
            .filter(|(user, _)| who.is_none_or(|who| who == *user));
        those.map(|(_, late)| *late).collect()
    };
    let all = of(None);
    let mut row =
        |what: &str, budget, value| report.add(&format!("{how}{what}"), "ms", budget, value);
    row(
        "over for the user, after expiresAt, p50",
        Budget::None,
        all.median(),
    );
    row("  latest", Budget::AtMost(ON_TIME), all.max());
    for (user, what) in [
        (User::Plain, "  latest of those who do nothing"),
        (User::Deaf, "  latest of those who trap signals"),
        (User::Fighter, "  latest of those who kill the watcher"),
    ] {
        let theirs = of(Some(user));
        if open.iter().any(|one| one.user == user) {
            row(what, Budget::AtMost(ON_TIME), theirs.max());
        }
    }
    // The notice precedes the end by a second.
    row("  earliest", Budget::None, all.min());
    row(
        "last process seen, after expiresAt, latest",
        Budget::AtMost(ON_TIME),
        processes.max(),
    );
    Ok(())
}

/// Revokes grants while their sessions are open.
async fn early(
    scene: &Scene,
    count: usize,
    watch: &ProcessWatch,
    report: &mut Report,
) -> Result<()> {
    let until = Timestamp::now() + SignedDuration::from_mins(30);
    let each = (0..count).map(|number| (format!("early-{number}"), number % 2 == 1));
    let open: Vec<Open> = futures::stream::iter(each)
        .map(async |(name, terminal)| open(scene, name, User::Messy, terminal, until).await)
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let deletions = open.iter().map(async |one| {
        let requests = scene.requests(&one.name).await?;
        let began = Timestamp::now();
        requests
            .api()
            .delete(&one.name, &DeleteParams::default())
            .await?;
        anyhow::Ok(began)
    });
    let began = futures::future::try_join_all(deletions).await?;
    let mut over = Vec::new();
    for one in &open {
        over.push(
            one.session
                .ended(END_TIMEOUT)
                .with_context(|| one.name.clone())?,
        );
    }
    let gone = gone(&open, watch)?;
    let after = |instants: Vec<Timestamp>| -> Values {
        let after = instants.iter().zip(&began);
        after
            .map(|(at, began)| milliseconds(at.duration_since(*began)))
            .collect()
    };
    let (over, gone) = (after(over), after(gone));
    report.add(
        "revoked: over for the user, after the deletion, p50",
        "ms",
        Budget::None,
        over.median(),
    );
    report.add(
        "  latest of all at once",
        "ms",
        Budget::AtMost(REVOKED),
        over.max(),
    );
    report.add(
        "revoked: last process seen, latest",
        "ms",
        Budget::AtMost(REVOKED),
        gone.max(),
    );
    Ok(())
}

/// Returns the times at which a process of each grant was last seen; waits until none is.
pub(super) fn gone(open: &[Open], watch: &ProcessWatch) -> Result<Vec<Timestamp>> {
    let deadline = Timestamp::now() + SignedDuration::try_from(END_TIMEOUT)?;
    loop {
        let running = running_grants()?;
        let left: Vec<&str> = open
            .iter()
            .filter(|one| running.contains(&one.grant))
            .map(|one| one.name.as_str())
            .collect();
        if left.is_empty() {
            break;
        }
        ensure!(
            Timestamp::now() < deadline,
            "processes run on: {}",
            left.join(", ")
        );
        std::thread::sleep(ProcessWatch::EVERY);
    }
    let seen = watch.seen.lock();
    open.iter()
        .map(|one| {
            seen.get(&one.grant)
                .copied()
                .with_context(|| format!("{} was never seen", one.name))
        })
        .collect()
}

pub(super) fn milliseconds(duration: SignedDuration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The repeated check which grants have processes.
pub(super) struct ProcessWatch {
    seen: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProcessWatch {
    const EVERY: Duration = Duration::from_millis(20);

    pub(super) fn start() -> Self {
        let seen: Arc<Mutex<BTreeMap<String, Timestamp>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let grants = running_grants().unwrap_or_default();
                    let now = Timestamp::now();
                    let mut seen = seen.lock();
                    seen.extend(grants.into_iter().map(|grant| (grant, now)));
                    drop(seen);
                    std::thread::sleep(Self::EVERY);
                }
            }
        });
        Self {
            seen,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for ProcessWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reports the time that the hook took for each of the sessions, by the webhook's own metrics.
async fn opening(webhook: &Webhook, report: &mut Report) -> Result<()> {
    let page = webhook.metrics().await?;
    let value = |line: &str| {
        line.rsplit(' ')
            .next()
            .and_then(|value| value.parse::<f64>().ok())
    };
    let of = |what: &str| {
        let name = format!("review_duration_seconds_{what}{{");
        let lines = page
            .lines()
            .filter(|line| line.contains("hook=\"observe-connect\""));
        lines.filter(move |line| line.contains(&name))
    };
    let one = |what: &str| {
        of(what)
            .next()
            .and_then(value)
            .with_context(|| format!("no {what} of the hook"))
    };
    let (sum, count) = (one("sum")?, one("count")?);
    let mean = sum / count * 1000.0;
    let bound = of("bucket").find_map(|line| {
        let (_, rest) = line.split_once("le=\"")?;
        let (bound, _) = rest.split_once('"')?;
        (value(line)? >= count * 0.99).then(|| bound.parse::<f64>().unwrap_or(f64::INFINITY))
    });
    report.add("the hook, with its record, mean", "ms", Budget::None, mean);
    let bound = bound.context("no bucket of the hook")? * 1000.0;
    // The timeout is 3 s, and the hook gives up automatically before.
    report.add("  99 % within", "ms", Budget::AtMost(2000.0), bound);
    Ok(())
}
