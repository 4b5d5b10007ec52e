//! `ozctl doctor`: checks whether oz works here, for the current user, and reports each check, each
//! problem and its repair. A check that the user may not make is reported as unknown, and is not a
//! finding.

mod audit_keys;
mod checks;
mod composites;
mod harness;
mod installed;
mod name_servers;
mod policies;
mod registrations;
mod signing_keys;
mod standing;
mod windows;

use clap::Args;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::context::{Context, Style};
use crate::exit::Exit;
use crate::explain::operator;
use crate::failure::Result;
use crate::output::{self, TextFormat};

/// Look for what is wrong with oz here, and say what mends it
#[derive(Args)]
#[command(after_help = "\
Looks at: the API server and its clock, oz's kinds, your rights in the
namespace, the webhook in the path of requests (by a dry-run), its registration
and certificates, the operator's lease and rights, oz's policies, the keys that
the trail is signed with, the versions that run, the templates of the
namespace, the name servers that they count on, composites and whether
MetaController carries them out as well, harness runs and whether Paddock runs
them as well, who gets into pods without oz, and which windows of transient
bindings are still to open. Writes nothing.

Exit codes: 0 if nothing is wrong, 1 if something is.")]
pub(crate) struct Doctor {
    /// The namespace that oz runs in
    #[arg(long, default_value = "oz-system", value_name = "NAMESPACE")]
    oz_namespace: String,
    /// How to show it
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Good(String),
    /// A problem, and its repair.
    Wrong(String, String),
    /// The reason why the check was not possible.
    Unknown(String),
}

impl Finding {
    pub(super) fn good(check: &'static str, text: impl Into<String>) -> Self {
        let verdict = Verdict::Good(text.into());
        Self { check, verdict }
    }

    pub(super) fn wrong(
        check: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let verdict = Verdict::Wrong(text.into(), fix.into());
        Self { check, verdict }
    }

    pub(super) fn unknown(check: &'static str, text: impl Into<String>) -> Self {
        let verdict = Verdict::Unknown(text.into());
        Self { check, verdict }
    }

    /// Checks whether the examination ends here: without an API server, all other results are
    /// unknown.
    fn ends_the_examination(&self) -> bool {
        self.is_wrong() && ["API server", "clock"].contains(&self.check)
    }

    fn is_wrong(&self) -> bool {
        matches!(self.verdict, Verdict::Wrong(..))
    }

    pub(super) fn to_json(&self) -> Value {
        match &self.verdict {
            Verdict::Good(text) => json!({"check": self.check, "verdict": "good", "message": text}),
            Verdict::Wrong(text, fix) => {
                json!({"check": self.check, "verdict": "wrong", "message": text, "fix": fix})
            }
            Verdict::Unknown(text) => {
                json!({"check": self.check, "verdict": "unknown", "message": text})
            }
        }
    }
}

impl Doctor {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let mut findings = examine(&cluster, &self.oz_namespace).await;
        // This check names users and their rights, which are not for the recipients of `ozctl
        // report`.
        if !findings.iter().any(Finding::ends_the_examination) {
            findings.push(standing::rights(&cluster, &self.oz_namespace).await);
            findings.push(windows::windows(&cluster).await);
        }
        let text = match self.output {
            TextFormat::Text => text(context, &findings),
            format => {
                let list: Vec<Value> = findings.iter().map(Finding::to_json).collect();
                let value = json!({"findings": list});
                match format {
                    TextFormat::Yaml => output::yaml(&value)?,
                    _ => output::json(&value)?,
                }
            }
        };
        context.print(&text)?;
        Ok(if findings.iter().any(Finding::is_wrong) {
            Exit::FAILURE
        } else {
            Exit::SUCCESS
        })
    }
}

/// Runs all checks, in the order of their dependencies.
pub(super) async fn examine(cluster: &Cluster, oz: &str) -> Vec<Finding> {
    let mut findings = checks::api_server(cluster).await;
    if findings.iter().any(Finding::ends_the_examination) {
        return findings;
    }
    let kinds = checks::kinds(cluster).await;
    let there = !kinds.is_wrong();
    findings.push(kinds);
    if there {
        findings.extend(checks::rights(cluster).await);
        findings.push(checks::stamp(cluster, oz).await);
        findings.push(checks::templates(cluster).await);
        findings.extend(checks::unreadable(cluster).await);
    }
    let registrations = registrations::read(cluster).await;
    findings.extend(installed::webhooks(&registrations));
    findings.push(installed::operator(cluster, oz).await);
    let deployments = operator::deployments(cluster, oz).await;
    findings.push(installed::operator_rights(cluster, oz, &deployments).await);
    findings.extend(name_servers::name_servers(cluster, &deployments).await);
    findings.push(policies::policies(cluster, oz, &deployments).await);
    findings.push(audit_keys::audit_keys(cluster, oz).await);
    findings.push(signing_keys::signing_keys(cluster, oz).await);
    findings.extend(composites::composites(cluster, &deployments).await);
    findings.extend(harness::harness(cluster, oz, &deployments, &registrations).await);
    findings.push(installed::versions(oz, &deployments));
    findings
}

/// Returns the command that prints the logs of a component, independent of the release's name.
fn logs(oz: &str, component: &str) -> String {
    format!(
        "kubectl logs -n {oz} -l app.kubernetes.io/name=oz,app.kubernetes.io/component={component}"
    )
}

fn text(context: &Context, findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { check, verdict } in findings {
        let (mark, style, message, fix) = match verdict {
            Verdict::Good(message) => ("good   ", Style::Green, message, None),
            Verdict::Wrong(message, fix) => ("WRONG  ", Style::Red, message, Some(fix)),
            Verdict::Unknown(message) => ("unknown", Style::Yellow, message, None),
        };
        let mark = context.paint_output(style, mark);
        text.push_str(&format!("{mark} {check}: {message}\n"));
        if let Some(fix) = fix {
            text.push_str(&format!("        mend it: {fix}\n"));
        }
    }
    text
}
