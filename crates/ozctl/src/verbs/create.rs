//! `ozctl create`: the command of the original for access, with the same words, for scripts that
//! use it. Data goes to standard output and progress to standard error; the original wrote both to
//! standard error.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCandidates;
use kube::ResourceExt;
use oz_api::{ExecAccessRequest, PodAccessRequest};
use oz_core::kinds::AccessRequest;
use serde_json::Value;

use crate::access::default_prefix;
use crate::cluster::Cluster;
use crate::context::{Context, Style};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::request::{self, Ask, Outcome};
use crate::verbs::go_duration;
use crate::{cli, complete, names, output};

/// Create an access request and wait until it is ready
///
/// The way of the original ozctl, for scripts. At a terminal, `ozctl exec` and `ozctl pod` do all
/// of it at once.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl create ExecAccessRequest shell
  ozctl create ExecAccessRequest shell --target-pod web-0 --duration 30m
  ozctl create PodAccessRequest debug --wait 2m -o json")]
pub(crate) struct Create {
    #[command(subcommand)]
    kind: Option<Kind>,
    /// Output format: text describes how to use the access, json and yaml print the request, name
    /// its kind and name
    #[arg(
        short,
        long,
        global = true,
        default_value = "text",
        value_name = "FORMAT"
    )]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    // How to use the access, in words
    Text,
    // The request, once it is ready
    Json,
    // The same as YAML
    Yaml,
    // Its kind and name
    Name,
}

#[derive(Subcommand)]
enum Kind {
    /// Request access to a running pod
    #[command(
        name = "ExecAccessRequest",
        visible_aliases = ["execaccessrequest", "execaccessrequests", "exec-access-request", "exec"]
    )]
    Exec(Exec),
    /// Ask for a pod of your own
    #[command(
        name = "PodAccessRequest",
        visible_aliases = ["podaccessrequest", "podaccessrequests", "pod-access-request", "pod"]
    )]
    Pod(Pod),
}

#[derive(Args)]
struct Exec {
    /// Name of the ExecAccessTemplate
    #[arg(add = ArgValueCandidates::new(complete::exec_templates))]
    template: String,
    /// Pod to access [default: any ready pod]
    #[arg(short = 'p', long, value_name = "POD")]
    target_pod: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Pod {
    /// Name of the PodAccessTemplate
    #[arg(add = ArgValueCandidates::new(complete::pod_templates))]
    template: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// Duration of the access, such as 30m [default: as the template says]
    #[arg(short = 'D', long)]
    duration: Option<String>,
    /// Maximum time to wait for it
    #[arg(short, long, default_value = "5m", value_name = "DURATION")]
    wait: String,
    /// Prefix of the request's name [default: $USER]
    #[arg(short = 'N', long, value_name = "PREFIX")]
    request_name: Option<String>,
    /// Reason for the access; recorded in the audit trail
    #[arg(long)]
    reason: Option<String>,
    /// The ticket by which access is needed, such as INC-42
    #[arg(long)]
    ticket: Option<String>,
    /// Container to access
    #[arg(short, long)]
    container: Option<String>,
    /// More words; the original ignored them
    #[arg(hide = true)]
    ignored: Vec<String>,
}

impl Create {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        match self.kind {
            None => {
                context.print(&cli::help("create"))?;
            }
            Some(Kind::Exec(exec)) => {
                let ask = exec.common.ask(exec.template, exec.target_pod)?;
                create::<ExecAccessRequest>(context, self.output, &exec.common, ask).await?;
            }
            Some(Kind::Pod(pod)) => {
                let ask = pod.common.ask(pod.template, None)?;
                create::<PodAccessRequest>(context, self.output, &pod.common, ask).await?;
            }
        }
        Ok(Exit::SUCCESS)
    }
}

impl Common {
    fn ask(&self, template: String, target_pod: Option<String>) -> Result<Ask> {
        let prefix = match &self.request_name {
            Some(prefix) => prefix.clone(),
            None => default_prefix(),
        };
        request::check_prefix(&prefix)?;
        Ok(Ask {
            template,
            prefix,
            duration: self.duration.clone().filter(|text| !text.is_empty()),
            target_pod: target_pod.filter(|text| !text.is_empty()),
            container: self.container.clone(),
            reason: self.reason.clone(),
            extends: None,
            ticket: self.ticket.clone(),
            emergency: false,
        })
    }

    fn wait(&self) -> Result<Duration> {
        go_duration(&self.wait)
            .ok_or_else(|| Failure::new(format!("invalid time supplied: {}", self.wait)))
    }
}

async fn create<R: AccessRequest>(
    context: &Context,
    output: Output,
    common: &Common,
    ask: Ask,
) -> Result<()> {
    let within = common.wait()?;
    names::checked(&ask.template)?;
    let cluster = context.cluster().await?;
    let text = output == Output::Text;
    let kind = R::kind(&());
    if text {
        context.say(&format!(
            "Initiating Access Request...\n  Template Name: {}\n  Request Name Prefix: {}",
            ask.template, ask.prefix
        ));
        context.say_on(&format!(
            "Verifying Template {} exists (ns: {})...\n",
            ask.template, cluster.namespace
        ));
    }
    template_exists::<R>(&cluster, &ask.template).await?;
    if text {
        context.say_on(&format!("Creating {kind}... "));
    }
    let created: R = request::create(&cluster, &ask).await.inspect_err(|_| {
        if text {
            context.say("");
        }
    })?;
    let name = created.name_any();
    if text {
        context.say(&format!("{name} created!"));
        context.say_on(&format!("Waiting for {name} to be ready"));
    }
    let outcome = {
        let waiting = request::wait(&cluster, created, within, |_| ());
        let outcome = dots(context, text, waiting).await;
        if text {
            context.say("");
        }
        outcome?
    };
    match outcome {
        Outcome::Ready(ready) => show(context, output, &ready),
        Outcome::Over(request) => Err(request::over(&name, &request::status(&request))),
        Outcome::Late(request) => {
            context.say(&format!("Error - timed out waiting for {name} to be ready"));
            for one in &request::status(&request).conditions {
                context.say(&format!(
                    "Condition {}, State: {}, Reason: {}, Message: {}",
                    one.type_, one.status, one.reason, one.message
                ));
            }
            Err(request::late(&name, within, request.status()))
        }
    }
}

async fn template_exists<R: AccessRequest>(cluster: &Cluster, name: &str) -> Result<()> {
    let api = cluster.api::<R::Template>();
    match cluster.answer(api.get_metadata(name)).await {
        Ok(_) => Ok(()),
        Err(failure) => {
            let missing = failure.is_not_found();
            let failure = failure.during("- Invalid --template name flag passed in");
            Err(match missing {
                true => failure.next("`ozctl templates` lists the existing templates"),
                false => failure,
            })
        }
    }
}

/// Prints a dot for each second of the wait, begun or over.
async fn dots<T>(context: &Context, shown: bool, waiting: impl Future<Output = T>) -> T {
    let mut waiting = std::pin::pin!(waiting);
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    seconds.tick().await;
    if shown {
        context.say_on(".");
    }
    loop {
        tokio::select! {
            done = &mut waiting => return done,
            _ = seconds.tick() => if shown { context.say_on(".") },
        }
    }
}

fn show<R: AccessRequest>(context: &Context, output: Output, request: &R) -> Result<()> {
    let object: Value = output::whole(request)?;
    let text = match output {
        Output::Json => output::json(&object)?,
        Output::Yaml => output::yaml(&object)?,
        Output::Name => format!(
            "{}.{}/{}\n",
            R::kind(&()).to_lowercase(),
            R::group(&()),
            request.name_any()
        ),
        Output::Text => {
            let mut text = "Success, your access request is ready! Here are your access \
                            instructions:\n---\n"
                .to_owned();
            let status = request.status();
            if let Some(message) = status.and_then(|status| status.access_message.as_deref()) {
                text.push_str(&output::lines(message));
            }
            text.push_str("\n---");
            context.paint_output(Style::Green, &text) + "\n"
        }
    };
    context.print(&text)
}
