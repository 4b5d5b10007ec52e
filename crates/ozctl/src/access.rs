//! Access from the request to its release: ask, wait, use, give back. ozctl gives access back at
//! any end of its use: the command, an error, Ctrl-C, a closed terminal.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use clap_complete::ArgValueCandidates;
use futures::future::try_join;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use oz_api::{Operation, RequestStatus};
use oz_core::access::emergency;
use oz_core::kinds::{AccessRequest, AccessTemplate};

use crate::ask::{self, ask_which};
use crate::choose::{self, AccessQuery};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::request::{self, Ask, Clock, Outcome};
use crate::steps::{Share, Steps};
use crate::target::Target;
use crate::verbs::go_duration;
use crate::waiting::{self, Waiting};
use crate::{complete, names};

/// How to ask, on every verb that does.
#[derive(Args, Clone, Debug)]
pub(crate) struct AccessFlags {
    /// Why access is needed; kept in the audit record
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// The ticket by which access is needed, such as INC-42
    #[arg(long)]
    pub(crate) ticket: Option<String>,
    /// Say that it is an emergency: nobody has to approve it, if the template lets you in for one, and
    /// somebody looks at it afterwards
    #[arg(long, requires = "reason")]
    pub(crate) emergency: bool,
    /// How long access should last, such as 30m [default: as the template says]
    #[arg(short = 'D', long)]
    pub(crate) duration: Option<String>,
    /// The template to ask by, where several lead to the target
    #[arg(long, add = ArgValueCandidates::new(complete::templates))]
    pub(crate) template: Option<String>,
    /// Keep the access afterwards, until it ends by itself
    #[arg(long)]
    pub(crate) keep: bool,
    /// Use the access of this request, and leave it as it is
    #[arg(long, value_name = "NAME", conflicts_with_all = ["reason", "ticket", "emergency", "duration", "template", "keep"],
          add = ArgValueCandidates::new(complete::requests))]
    pub(crate) request: Option<String>,
    /// How long to wait for access
    #[arg(short, long, default_value = "5m", value_name = "DURATION")]
    pub(crate) wait: String,
    /// What the request's name begins with [default: $USER]
    #[arg(short = 'N', long, value_name = "PREFIX")]
    pub(crate) request_name: Option<String>,
    /// Say how long each step took, and which share of it is oz's
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// The usable access of a granted request.
pub(crate) struct Granted {
    /// Name of the request.
    pub(crate) request: String,
    /// The pod.
    pub(crate) pod: String,
    /// The container, if the access is for a particular one.
    pub(crate) container: Option<String>,
    /// The expiry of the access.
    pub(crate) until: Option<Timestamp>,
    /// The message of the template about the use of the access.
    pub(crate) message: String,
    /// The API server's time.
    pub(crate) clock: Clock,
    /// The verb that requests access again.
    pub(crate) verb: &'static str,
    /// The duration of each step.
    pub(crate) steps: Rc<Steps>,
    /// Access leads through the gate.
    gate: bool,
}

impl Granted {
    fn new(
        name: String,
        status: &RequestStatus,
        container: Option<String>,
        clock: Clock,
        invocation: Invocation<'_>,
    ) -> Result<Self> {
        let pod = status.pod_name.clone().ok_or_else(|| {
            Failure::new(format!("request {name} is ready, but names no pod"))
                .next("the cluster runs another oz than ozctl knows: `ozctl doctor` tells")
        })?;
        Ok(Self {
            request: name,
            pod,
            container,
            until: status.expires_at,
            message: status.access_message.clone().unwrap_or_default(),
            clock,
            verb: invocation.verb,
            steps: Rc::clone(invocation.steps),
            gate: status.gate,
        })
    }

    /// Returns the message about access that expires sooner than the request, created at `created`,
    /// asked for.
    fn shortened<T: AccessTemplate>(
        &self,
        created: Option<Timestamp>,
        asked: Option<&str>,
        emergency: bool,
        template: &T,
    ) -> Option<String> {
        let until = self.until?;
        let asked = SignedDuration::try_from(go_duration(asked?)?).ok()?;
        let wanted = created?.checked_add(asked).unwrap_or(Timestamp::MAX);
        let config = template.config();
        let longest = config.max_duration.parse().ok()?;
        let most = match emergency {
            true => emergency::longest(config, true, longest).to_string(),
            false => config.max_duration.clone(),
        };
        (wanted > until).then(|| {
            format!(
                "Access ends at {until}, sooner than asked for: template {} allows {most} at most.",
                template.name()
            )
        })
    }

    /// Returns the cluster with the route to the pod: through the gate if the access requires it.
    fn reached(&self, cluster: &Cluster) -> Cluster {
        match self.gate {
            true => cluster.through_gate(&self.request),
            false => cluster.clone(),
        }
    }

    /// Returns the remaining time of the access.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.until.map(|until| self.clock.left(until))
    }
}

/// The access that a verb requires: the operation and its target.
pub(crate) struct Want<'a> {
    pub(crate) target: &'a Target,
    pub(crate) operation: Operation,
    pub(crate) container: Option<&'a str>,
    /// The verb that requests access again.
    pub(crate) verb: &'static str,
}

/// Gets access, uses it, and gives it back.
pub(crate) async fn with<R>(
    context: &Context,
    flags: &AccessFlags,
    want: Want<'_>,
    body: impl AsyncFnOnce(&Cluster, &Granted) -> Result<Exit>,
) -> Result<Exit>
where
    R: AccessRequest,
{
    let steps = Rc::new(Steps::begin());
    let within = go_duration(&flags.wait)
        .ok_or_else(|| Failure::new(format!("invalid time supplied: {}", flags.wait)))?;
    let cluster = context.cluster().await?;
    steps.done("kubeconfig", Share::Kubernetes);
    let invocation = Invocation {
        context,
        cluster: &cluster,
        steps: &steps,
        verb: want.verb,
    };
    let result = match &flags.request {
        Some(name) => again::<R>(invocation, name, &want, body).await,
        None => anew::<R>(invocation, flags, &want, within, body).await,
    };
    if flags.verbose {
        context.say(&steps.told());
    }
    result
}

/// The arguments of every step in one run of a command.
#[derive(Clone, Copy)]
struct Invocation<'a> {
    context: &'a Context,
    cluster: &'a Cluster,
    steps: &'a Rc<Steps>,
    /// The verb that requests access again.
    verb: &'static str,
}

/// Uses the access of an existing request, and leaves the request as it is.
async fn again<R: AccessRequest>(
    invocation: Invocation<'_>,
    name: &str,
    want: &Want<'_>,
    body: impl AsyncFnOnce(&Cluster, &Granted) -> Result<Exit>,
) -> Result<Exit> {
    let granted = existing::<R>(invocation, names::checked(name)?, want).await?;
    invocation.steps.done("request", Share::Oz);
    let mut interrupts = Interrupts::new()?;
    let reached = granted.reached(invocation.cluster);
    let result = tokio::select! {
        result = body(&reached, &granted) => result,
        exit = interrupts.next() => Ok(exit),
    };
    invocation.steps.done("use", Share::Kubernetes);
    result
}

/// Requests access, uses the grant, and gives it back.
async fn anew<R: AccessRequest>(
    invocation: Invocation<'_>,
    flags: &AccessFlags,
    want: &Want<'_>,
    within: Duration,
    body: impl AsyncFnOnce(&Cluster, &Granted) -> Result<Exit>,
) -> Result<Exit> {
    let (context, cluster, steps) = (invocation.context, invocation.cluster, invocation.steps);
    let (ask, template) = asked::<R>(invocation, flags, want).await?;
    let mut interrupts = Interrupts::new()?;
    let created = match ask_for::<R>(cluster, &ask, &mut interrupts).await? {
        Ok(created) => created,
        Err(exit) => return Ok(exit),
    };
    steps.done("request", Share::Oz);
    let name = created.name_any();
    let since = created.meta().creation_timestamp.as_ref();
    let since = since.map(|time| time.0);
    let (ended, used) = (Cell::new(false), Cell::new(false));
    let work = async {
        let waiting = wait_for::<R>(invocation, created, ask.container.clone(), within, &ended);
        let granted = waiting.await?;
        steps.done("granted", Share::Oz);
        used.set(true);
        if let Some(said) =
            granted.shortened(since, flags.duration.as_deref(), flags.emergency, &template)
        {
            context.say(&said);
        }
        body(&granted.reached(cluster), &granted).await
    };
    let result = tokio::select! {
        result = work => result,
        exit = interrupts.next() => Ok(exit),
    };
    steps.done("use", Share::Kubernetes);
    if flags.keep && used.get() && result.is_ok() {
        context.say(&format!(
            "Access is kept. Use it again with `--request {name}`; \
             give it back with `ozctl revoke {name}`."
        ));
        return result;
    }
    // A denied request is kept, since it states the reason.
    if ended.get() {
        return result;
    }
    let given_back = give_back::<R>(cluster, &name, &mut interrupts).await;
    steps.done("given back", Share::Oz);
    match given_back {
        Ok(()) => result,
        // The result of the command is more important than a failure to give access back.
        Err(failure) => result.and_then(|exit| match exit {
            Exit::SUCCESS => Err(failure),
            exit => Err(failure.with(exit)),
        }),
    }
}

/// Returns the request to create, and its template.
async fn asked<R: AccessRequest>(
    invocation: Invocation<'_>,
    flags: &AccessFlags,
    want: &Want<'_>,
) -> Result<(Ask, R::Template)> {
    let (context, cluster) = (invocation.context, invocation.cluster);
    let prefix = flags.request_name.clone().unwrap_or_else(default_prefix);
    request::check_prefix(&prefix)?;
    let query = AccessQuery {
        target: want.target,
        operation: want.operation,
        template: flags.template.as_deref(),
        container: want.container,
        emergency: flags.emergency,
    };
    let chosen = choose::template::<R>(cluster, &query, |some| ask_which(context, some));
    // In parallel: the list of grants adds no waiting time, and is not requested if the query for a
    // template is invalid.
    let grants = async { Ok(choose::grants::<R>(cluster).await) };
    let ((template, mut target_pod), grants) = try_join(chosen, grants).await?;
    if target_pod.is_none()
        && let Some(last) = choose::last_used(cluster, grants, template.name()).await
    {
        let choose::LastUsed { pod, request } = last;
        context.say(&format!("oz: pod {pod} again, as by request {request}"));
        target_pod = Some(pod);
    }
    invocation.steps.done("template", Share::Oz);
    // The first container that the template names is the default.
    let container = want
        .container
        .map(str::to_owned)
        .or_else(|| template.config().containers.first().cloned());
    let ask = Ask {
        template: template.name().to_owned(),
        prefix,
        duration: flags.duration.clone(),
        target_pod,
        container,
        reason: ask::reason(context, &template, flags.reason.as_deref())?,
        extends: None,
        ticket: match flags.emergency {
            true => flags.ticket.clone(),
            false => ask::ticket(context, &template, flags.ticket.as_deref())?,
        },
        emergency: flags.emergency,
    };
    Ok((ask, template))
}

/// Returns the default prefix of a request's name.
pub(crate) fn default_prefix() -> String {
    let mut names = ["USER", "LOGNAME"].iter();
    let user = names.find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    request::prefix_of(&user.unwrap_or_default())
}

/// Creates a request. Returns the exit code of the process if a signal came first; then no request
/// remains.
pub(crate) async fn ask_for<R: AccessRequest>(
    cluster: &Cluster,
    ask: &Ask,
    interrupts: &mut Interrupts,
) -> Result<Result<R, Exit>> {
    let creating = request::create::<R>(cluster, ask);
    interrupts
        .made(creating, async |created, interrupts| {
            give_back::<R>(cluster, &created.name_any(), interrupts).await
        })
        .await
}

/// Gives access back, unless the user interrupts the wait.
pub(crate) async fn give_back<R: AccessRequest>(
    cluster: &Cluster,
    name: &str,
    interrupts: &mut Interrupts,
) -> Result<()> {
    let released = request::release::<R>(cluster, name);
    let later = format!("`ozctl revoke {name}` does so later; it ends by itself in its time");
    interrupts.given_back(name, released, later).await
}

async fn existing<R: AccessRequest>(
    invocation: Invocation<'_>,
    name: &str,
    want: &Want<'_>,
) -> Result<Granted> {
    let cluster = invocation.cluster;
    let found: R = cluster
        .answer(cluster.api::<R>().get(name))
        .await
        .map_err(|failure| match failure.is_not_found() {
            true => failure.next("`ozctl requests` lists those that are there"),
            false => failure,
        })?;
    let status = found.status().cloned().unwrap_or_default();
    if !status.ready {
        return Err(request::over(name, &status));
    }
    let container = want
        .container
        .map(str::to_owned)
        .or_else(|| Ask::of(&found).container);
    let clock = Clock::of_server(invocation.cluster).await;
    let mut granted = Granted::new(name.to_owned(), &status, container, clock, invocation)?;
    if granted.left().is_some_and(|left| left.is_zero()) {
        // The API server reports that the request is ready, so a clock is wrong, perhaps the clock
        // here.
        invocation
            .context
            .say("oz: by this clock access is over already; it ends when the cluster ends it");
        granted.until = None;
    }
    Ok(granted)
}

async fn wait_for<R: AccessRequest>(
    invocation: Invocation<'_>,
    created: R,
    container: Option<String>,
    within: Duration,
    ended: &Cell<bool>,
) -> Result<Granted> {
    let name = created.name_any();
    let clock = Clock::at_creation(&created);
    let line = std::cell::RefCell::new(Waiting::new(
        invocation.context,
        &format!("waiting for {name} to be granted"),
    ));
    let outcome = {
        let mut waiting = std::pin::pin!(request::wait(
            invocation.cluster,
            created,
            within,
            |status| {
                let (what, obstacle) = waiting::waited_for(&name, status);
                line.borrow_mut().is(&what, obstacle);
            }
        ));
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                outcome = &mut waiting => break outcome?,
                _ = seconds.tick() => line.borrow().draw(),
            }
        }
    };
    drop(line);
    match outcome {
        Outcome::Ready(ready) => {
            let status = ready.status().cloned().unwrap_or_default();
            Granted::new(name, &status, container, clock, invocation)
        }
        Outcome::Over(request) => {
            ended.set(true);
            let status = request.status().cloned().unwrap_or_default();
            Err(request::over(&name, &status))
        }
        Outcome::Late(request) => Err(request::late(&name, within, request.status())),
    }
}
