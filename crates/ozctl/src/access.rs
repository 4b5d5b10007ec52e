//! Access from the request to its release: ask, wait, use, give back. ozctl gives access back at
//! any end of its use: the command, an error, Ctrl-C, a closed terminal.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use clap_complete::ArgValueCandidates;
use futures::future::try_join;
use kube::ResourceExt;
use oz_api::Operation;
use oz_client::access::{Access, Shortened};
use oz_core::kinds::{AccessRequest, AccessTemplate};

use crate::ask::{self, ask_which};
use crate::choose::{self, AccessQuery};
use crate::cluster::Cluster;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::request::{self, Ask, Clock, Outcome};
use crate::steps::{Share, Steps};
use crate::target::Target;
use crate::verbs::go_duration;
use crate::waiting::{self, Waiting};

/// The flags of each verb that creates an access request.
#[derive(Args, Clone, Debug)]
pub(crate) struct AccessFlags {
    /// Reason for the access; recorded in the audit trail
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Change ticket, such as INC-42
    #[arg(long)]
    pub(crate) ticket: Option<String>,
    /// Declare an emergency: access requires no approval, if the template grants it to you, and is
    /// reviewed afterwards
    #[arg(long, requires = "reason")]
    pub(crate) emergency: bool,
    /// Duration of the access, such as 30m [default: that of the template]
    #[arg(short = 'D', long)]
    pub(crate) duration: Option<String>,
    /// Template to use, if several grant access to the target
    #[arg(long, add = ArgValueCandidates::new(complete::templates))]
    pub(crate) template: Option<String>,
    /// Keep the access afterwards, until its expiry
    #[arg(long)]
    pub(crate) keep: bool,
    /// Use the access of this request, and keep it
    #[arg(long, value_name = "NAME", conflicts_with_all = ["reason", "ticket", "emergency", "duration", "template", "keep"],
          add = ArgValueCandidates::new(complete::requests))]
    pub(crate) request: Option<String>,
    /// Maximum time to wait for access
    #[arg(short, long, default_value = "5m", value_name = "DURATION")]
    pub(crate) wait: String,
    /// Prefix of the request's name [default: $USER]
    #[arg(short = 'N', long, value_name = "PREFIX")]
    pub(crate) request_name: Option<String>,
    /// Say how long each step took, and which share of it is oz's
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// The usable access of a granted request, for a verb.
pub(crate) struct Granted {
    /// The access.
    pub(crate) access: Access,
    /// The cluster, without the route to the pod.
    pub(crate) cluster: Cluster,
    /// The verb that requests access again.
    pub(crate) verb: &'static str,
    /// The duration of each step.
    pub(crate) steps: Rc<Steps>,
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
        context.say(&steps.describe());
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

impl Invocation<'_> {
    fn granted(self, access: Access) -> Granted {
        Granted {
            access,
            cluster: self.cluster.clone(),
            verb: self.verb,
            steps: Rc::clone(self.steps),
        }
    }
}

/// Uses the access of an existing request, and leaves the request as it is.
async fn again<R: AccessRequest>(
    invocation: Invocation<'_>,
    name: &str,
    want: &Want<'_>,
    body: impl AsyncFnOnce(&Cluster, &Granted) -> Result<Exit>,
) -> Result<Exit> {
    let granted = existing::<R>(invocation, name, want).await?;
    invocation.steps.done("request", Share::Oz);
    let mut interrupts = Interrupts::new()?;
    let reached = granted.access.reached(invocation.cluster);
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
        let (access, asked) = (&granted.access, flags.duration.as_deref());
        if let Some(shortened) = access.shortened(since, asked, flags.emergency, &template) {
            let Shortened {
                until,
                template,
                most,
            } = shortened;
            context.say(&format!(
                "Access ends at {until}, sooner than asked for: template {template} allows {most} at most."
            ));
        }
        body(&access.reached(cluster), &granted).await
    };
    let result = tokio::select! {
        result = work => result,
        exit = interrupts.next() => Ok(exit),
    };
    steps.done("use", Share::Kubernetes);
    if flags.keep && used.get() && result.is_ok() {
        context.say(&format!(
            "The grant stays active. Use it again with `--request {name}`; revoke it with `ozctl \
             revoke {name}`."
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
    user.map_or_else(
        || request::UNNAMED.to_owned(),
        |user| request::prefix_of(&user),
    )
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
    let later = format!("`ozctl revoke {name}` revokes it later; it expires automatically");
    interrupts.given_back(name, released, later).await
}

async fn existing<R: AccessRequest>(
    invocation: Invocation<'_>,
    name: &str,
    want: &Want<'_>,
) -> Result<Granted> {
    let mut access = Access::existing::<R>(invocation.cluster, name, want.container).await?;
    if access.left().is_some_and(|left| left.is_zero()) {
        // The API server reports that the request is ready, so a clock is wrong, perhaps the clock
        // here.
        invocation
            .context
            .say("oz: by the local clock the access has expired; it ends at the cluster's time");
        access.until = None;
    }
    Ok(invocation.granted(access))
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
            let status = request::status(&ready);
            if let Some(note) = request::not_ready(&status) {
                invocation.context.say(&format!("oz: {note}"));
            }
            let access = Access::new(&name, status, container, clock)?;
            Ok(invocation.granted(access))
        }
        Outcome::Over(request) => {
            ended.set(true);
            Err(request::over(&name, &request::status(&request)))
        }
        Outcome::Late(request) => Err(request::late(&name, within, request.status())),
    }
}
