//! `ozctl extend`: extends access by a new request that continues the running one; it is decided
//! anew, and recorded.

use std::time::Duration;

use clap::Args;
use clap_complete::ArgValueCandidates;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use oz_core::for_each_kind;
use oz_core::kinds::AccessRequest;

use super::go_duration;
use super::revoke::no_request;
use crate::access::{ask_for, default_prefix, give_back};
use crate::cluster::Cluster;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::names::Named;
use crate::output::{TextFormat, json, short, whole, yaml};
use crate::request::{self, Ask, Clock, Outcome};

/// Extend active access, with a new access request
///
/// It is a new decision, recorded as one, on the same pod. Sessions that are
/// open keep the end that they have: open another with the new request. A pod
/// of one's own cannot live longer; the new request gets a new pod.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl extend alice-x7k2p
  ozctl extend alice-x7k2p --duration 2h --reason 'INC-42 is not over'")]
pub(crate) struct Extend {
    /// Name of the running request, or KIND/NAME
    #[arg(add = ArgValueCandidates::new(complete::requests))]
    name: String,
    /// Duration from now; it must not end before the current access [default: that of the previous
    /// request]
    #[arg(short = 'D', long)]
    duration: Option<String>,
    /// Reason [default: that of the previous request]
    #[arg(long)]
    reason: Option<String>,
    /// Change ticket [default: that of the previous request]
    #[arg(long)]
    ticket: Option<String>,
    /// Maximum time to wait for it
    #[arg(short, long, default_value = "5m", value_name = "DURATION")]
    wait: String,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Extend {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let named = Named::request(&self.name)?;
        for_each_kind!(requests R => {
            if named.may_be::<R>()
                && let Some(running) = cluster.find(&cluster.api::<R>(), named.name).await?
            {
                return self.extend(context, &cluster, &running).await;
            }
        });
        Err(no_request(&cluster, named.name))
    }

    async fn extend<R: AccessRequest>(
        &self,
        context: &Context,
        cluster: &Cluster,
        running: &R,
    ) -> Result<Exit> {
        let within = go_duration(&self.wait)
            .ok_or_else(|| Failure::new(format!("invalid time supplied: {}", self.wait)))?;
        let old = running.name_any();
        let status = request::status(running);
        if !status.phase.is_granted() {
            return Err(Failure::new(format!(
                "request {old} is {}; only one that is Starting or Active can be extended",
                status.phase
            ))
            .next(format!("create a new request with `ozctl {}`", R::PURPOSE)));
        }
        let asked = Ask::from_request(running);
        let ask = Ask {
            prefix: prefix(&old),
            duration: self.duration.clone().or(asked.duration),
            reason: self.reason.clone().or(asked.reason),
            target_pod: status.pod_name.clone().filter(|_| !R::MAKES_POD),
            extends: Some(old.clone()),
            ticket: self.ticket.clone().or(asked.ticket),
            emergency: asked.emergency,
            template: asked.template,
            container: asked.container,
        };
        let wanted = ask.duration.as_deref().and_then(go_duration);
        if let (Some(until), Some(wanted)) = (status.expires_at, wanted) {
            let left = Clock::of_server(cluster).await.left(until);
            if wanted <= left {
                return Err(sooner(&old, until, left));
            }
        }
        let mut interrupts = Interrupts::new()?;
        let created = match ask_for::<R>(cluster, &ask, &mut interrupts).await? {
            Ok(created) => created,
            Err(exit) => return Ok(exit),
        };
        let name = created.name_any();
        let outcome = tokio::select! {
            outcome = request::wait(cluster, created, within, |_| ()) => {
                outcome.map_err(|failure| still_there(failure, &name))?
            }
            exit = interrupts.next() => {
                let given_back = give_back::<R>(cluster, &name, &mut interrupts).await;
                return given_back.map(|()| exit).map_err(|failure| failure.with(exit));
            }
        };
        let ready = match outcome {
            Outcome::Ready(ready) => ready,
            Outcome::Over(request) => {
                return Err(request::over(&name, &request::status(&request)));
            }
            Outcome::Late(request) => {
                let late = request::late(&name, within, request.status());
                return Err(still_there(late, &name));
            }
        };
        let ends = (status.expires_at, end(&ready));
        if let (Some(until), Some(new)) = ends
            && new < until
        {
            // The template permits no more time by now.
            let left = Clock::of_server(cluster).await.left(until);
            give_back::<R>(cluster, &name, &mut interrupts).await?;
            return Err(sooner(&old, until, left));
        }
        context.print(&match self.output {
            TextFormat::Json => json(&whole(&ready)?)?,
            TextFormat::Yaml => yaml(&whole(&ready)?)?,
            TextFormat::Text => continued(running, &ready),
        })?;
        Ok(Exit::SUCCESS)
    }
}

fn end<R: AccessRequest>(request: &R) -> Option<Timestamp> {
    request.status().and_then(|status| status.expires_at)
}

/// Returns the failure for a continuation that would end before the continued request.
fn sooner(old: &str, until: Timestamp, left: Duration) -> Failure {
    let left = short(SignedDuration::try_from(left).unwrap_or(SignedDuration::MAX));
    Failure::new(format!(
        "request {old} lasts until {until} already ({left} from now), longer than the new one"
    ))
    .next("give a longer --duration, which counts from now")
}

/// Adds the next step to a failure: the request may still be granted after the wait, and no user
/// must have access unknowingly.
fn still_there(failure: Failure, name: &str) -> Failure {
    match failure.is_not_found() {
        true => failure,
        false => failure.or_next(&format!("revoke it with `ozctl revoke {name}`")),
    }
}

/// Describes the result, and the use of the access.
fn continued<R: AccessRequest>(running: &R, ready: &R) -> String {
    let until = |request: &R| end(request).map_or("its end".to_owned(), |until| until.to_string());
    let name = ready.name_any();
    format!(
        "{name} continues {}: until {}\nOpen sessions keep their expiry, {}. For the new expiry, \
         open another: ozctl {} {} --request {name}\n",
        running.name_any(),
        until(ready),
        until(running),
        R::PURPOSE,
        request::place(ready),
    )
}

/// Returns the prefix of the running request's name, so that both names are next to each other in
/// lists.
fn prefix(old: &str) -> String {
    let stem = old.rsplit_once('-').map_or(old, |(stem, _)| stem);
    match request::check_prefix(stem) {
        Ok(()) => stem.to_owned(),
        Err(_) => default_prefix(),
    }
}
