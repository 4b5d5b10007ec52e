//! `ozctl run submit`: submits a prompt for a template; with --wait, prints the events of the run
//! until its end.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use clap_complete::ArgValueCandidates;
use kube::ResourceExt;
use oz_api::harness::{HarnessRun, TemplateKind, TemplateRef};
use oz_runs::admission::MAX_PROMPT;

use super::outcome;
use crate::cluster::Cluster;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::output::{self, ObjectFormat};
use crate::run::{Followed, Submission, follow, fresh, installed, phase, submit, template_kind};
use crate::verbs::go_duration;

/// Submit a harness run: a prompt for a template
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run submit -t echo --prompt 'say hello'
  ozctl run submit -t claude-code --workspace demo --prompt-file task.md --wait
  git diff | ozctl run submit -t review --prompt-file - --wait -o json

With --wait, events are written to standard error, and the result to standard
output. Ctrl-C stops waiting, and prints the command that cancels the run.

Exit codes: 0 if the run was submitted, 1 if not. With --wait: 0 if the run
succeeded, 1 if it failed, 2 if it was cancelled, 124 if it has not ended in
time, 125 if ozctl failed or the run was refused, 130 after Ctrl-C.")]
pub(crate) struct Submit {
    /// The template
    #[arg(short, long, value_name = "NAME", add = ArgValueCandidates::new(complete::harness_templates))]
    template: String,
    /// Which kind of template: HarnessTemplate or ClusterHarnessTemplate [default: the
    /// namespace's own, else the cluster's]
    #[arg(long, value_name = "KIND", value_parser = template_kind)]
    template_kind: Option<TemplateKind>,
    /// The workspace to work on [default: one that ends with the run]
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::workspaces))]
    workspace: Option<String>,
    /// The prompt
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "prompt_file",
        required_unless_present = "prompt_file"
    )]
    prompt: Option<String>,
    /// A file with the prompt, at most 256 KiB; - for standard input
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// The model [default: the template's]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Timeout of the run, such as 45m [default: that of the template]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Name of the run, at most 63 letters [default: the template's and some letters]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Reason, for the audit trail; required with --emergency
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Change ticket, such as INC-42
    #[arg(long, value_name = "TICKET")]
    ticket: Option<String>,
    /// Declare an emergency: the run requires no approval, if its template names you, and is
    /// reviewed afterwards
    #[arg(long, requires = "reason")]
    emergency: bool,
    /// Wait until the run has ended, and exit with its result
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", default_value = "30m")]
    wait_timeout: String,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: ObjectFormat,
}

impl Submit {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let wait = self.wait;
        let done = self.submit(context).await.map_err(installed);
        done.map_err(|failure| match wait {
            true => failure.with(Exit::NOT_RUN),
            false => failure,
        })
    }

    async fn submit(self, context: &Context) -> Result<Exit> {
        let within = go_duration(&self.wait_timeout).ok_or_else(|| {
            let text = &self.wait_timeout;
            Failure::new(format!(
                "--wait-timeout: {text} is not a duration, such as 30m"
            ))
        })?;
        let run = self.asked()?;
        let cluster = context.cluster().await?;
        let mut interrupts = match self.wait {
            true => Some(Interrupts::new()?),
            false => None,
        };
        let created = submit(&cluster, &run).await?;
        let name = created.name_any();
        let Some(interrupts) = &mut interrupts else {
            output::object(context, self.output, &created, || {
                format!("HarnessRun {name} submitted\n")
            })?;
            if self.output == ObjectFormat::Text {
                context.say(&format!("`ozctl run events {name} -f` shows its events."));
            }
            return Ok(Exit::SUCCESS);
        };
        context.say(&format!("HarnessRun {name} submitted"));
        let leaves = |why: &str| {
            context.say(&format!(
                "{why}: the run continues. `ozctl run events {name} -f` shows its events, `ozctl \
                    run cancel {name}` cancels it."
            ));
        };
        tokio::select! {
            followed = print_events(context, &cluster, created.clone()) => {
                let followed = followed.map_err(|failure| {
                    failure.next(format!("the run continues: `ozctl run status {name}`"))
                })?;
                let (run, exit) = match followed {
                    Followed::Enough(run) => {
                        let exit = outcome::exit(phase(&run));
                        (run, exit)
                    }
                    Followed::Deleted(run) => {
                        context.say(&format!("HarnessRun {name} was deleted before its end: it is \
                            cancelled"));
                        (run, Exit::CANCELLED)
                    }
                };
                output::object(context, self.output, &*run, || outcome::ending(&run))?;
                Ok(exit)
            }
            exit = interrupts.next() => {
                leaves("Stopped waiting");
                Ok(exit)
            }
            () = tokio::time::sleep(within) => {
                leaves(&format!("Not ended after {}", self.wait_timeout));
                Ok(Exit::ENDED)
            }
        }
    }

    /// Returns the run to create, after the checks of admission that require only the run itself.
    fn asked(&self) -> Result<HarnessRun> {
        let prompt = match (&self.prompt, &self.prompt_file) {
            (Some(prompt), _) => prompt.clone(),
            (None, Some(path)) => prompt_of(path)?,
            (None, None) => String::new(),
        };
        let submission = Submission {
            template: TemplateRef {
                name: self.template.clone(),
                kind: self.template_kind,
            },
            workspace: self.workspace.clone(),
            prompt,
            model: self.model.clone(),
            timeout: self.timeout.clone(),
            name: self.name.clone(),
            reason: self.reason.clone(),
            ticket: self.ticket.clone(),
            emergency: self.emergency,
        };
        Ok(submission.run()?)
    }
}

/// Reads a prompt from a file, of at most the maximum length of a prompt.
fn prompt_of(path: &PathBuf) -> Result<String> {
    let shown = path.display();
    let failed = |error| Failure::new(format!("failed to read the prompt from {shown}: {error}"));
    let source: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(path).map_err(failed)?),
    };
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_PROMPT).unwrap_or(u64::MAX);
    source
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() > MAX_PROMPT {
        return Err(Failure::new(format!(
            "the prompt in {shown} is longer than {} bytes",
            MAX_PROMPT
        ))
        .next("write long input into the workspace, and name its file in the prompt"));
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::new(format!("the prompt in {shown} is not UTF-8 text"))
            .next("write it as UTF-8, without bytes of other encodings")
    })
}

/// Prints the events of a run until it has ended.
async fn print_events(context: &Context, cluster: &Cluster, run: HarnessRun) -> Result<Followed> {
    let (mut events, mut said) = (Vec::new(), String::new());
    follow(cluster, run, |run| {
        let Some(status) = &run.status else {
            return Ok(false);
        };
        for event in fresh(&events, &status.recent_events) {
            context.say_plain(&outcome::event(event));
        }
        events.clone_from(&status.recent_events);
        let phase = phase(run);
        if phase.is_terminal() {
            return Ok(true);
        }
        let now = outcome::state(phase, status);
        if now != said {
            context.say_plain(&now);
            said = now;
        }
        Ok(false)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_as_long_as_a_run_may_have_and_not_a_byte_longer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prompt");
        for (length, is_taken) in [(1, true), (262_144, true), (262_145, false)] {
            std::fs::write(&path, "x".repeat(length)).unwrap();
            assert_eq!(prompt_of(&path).is_ok(), is_taken, "{length}");
        }
        std::fs::write(&path, b"\xff").unwrap();
        assert!(prompt_of(&path).unwrap_err().message().contains("UTF-8"));
        let missing = prompt_of(&directory.path().join("none")).unwrap_err();
        assert!(missing.message().contains("none"), "{}", missing.message());
    }
}
