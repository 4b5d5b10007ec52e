//! `ozctl run policy`: the policies of harness runs, the grants that a template lacks, and a policy
//! with these grants.

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;
use kube::ResourceExt;
use oz_api::harness::{BrokerPolicy, ProviderKind, TemplateKind};
use oz_runs::policy::{Discovery, discovery};
use oz_runs::scaffold::placeholders;
use serde_json::{Value, json};

use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::{self, Format, Table, TextFormat, instant, line};
use crate::run::{check_policies, installed, policies, provider, scaffold_policy, template_kind};

/// Show what harness runs may have here, and what they lack (needs the chart's harness.enabled)
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run policy list
  ozctl run policy check claude-code
  ozctl run policy scaffold claude-code --provider AnthropicAPI > policy.yaml")]
pub(crate) struct Policy {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    List(List),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Check(Check),
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Scaffold(Scaffold),
}

/// Show the policies of the namespace
#[derive(Args)]
pub(crate) struct List {
    /// How to show them
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// Check whether policies grant what a template requires
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run policy check claude-code
  ozctl run policy check claude-code -o json

Exit codes: 0 if runs of the template would be let in, 1 if not: then what is
lacking is named.")]
pub(crate) struct Check {
    /// The template
    #[arg(value_name = "TEMPLATE", add = ArgValueCandidates::new(complete::harness_templates))]
    template: String,
    /// Which kind of template [default: the namespace's own, else the cluster's]
    #[arg(long, value_name = "KIND", value_parser = template_kind)]
    template_kind: Option<TemplateKind>,
    /// How to show it
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

/// Print a policy that grants what a template requires, to begin with
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run policy scaffold claude-code > policy.yaml
  ozctl run policy scaffold claude-code --provider AnthropicAPI --name claude

Nothing is written to the cluster. What you have to replace, and the Secrets
that have to be there, stand in comments above the policy.

Providers: UserSuppliedSecret, AnthropicAPI, GitHubApp, PATPool.")]
pub(crate) struct Scaffold {
    /// The template
    #[arg(value_name = "TEMPLATE", add = ArgValueCandidates::new(complete::harness_templates))]
    template: String,
    /// Which kind of template [default: the namespace's own, else the cluster's]
    #[arg(long, value_name = "KIND", value_parser = template_kind)]
    template_kind: Option<TemplateKind>,
    /// Where the credentials come from
    #[arg(long, value_name = "PROVIDER", default_value = "UserSuppliedSecret", value_parser = provider)]
    provider: ProviderKind,
    /// Name of the policy [default: the template's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Policy {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        self.verb.run(context).await
    }
}

impl Verb {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        match self {
            Self::List(verb) => verb.run(context).await,
            Self::Check(verb) => verb.run(context).await,
            Self::Scaffold(verb) => verb.run(context).await,
        }
        .map_err(installed)
    }
}

impl List {
    async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let policies = policies(&cluster).await?;
        if policies.is_empty() && matches!(self.output, Format::Table | Format::Wide) {
            let namespace = &cluster.namespace;
            context.say(&format!("No policies found in namespace {namespace}."));
            return Ok(Exit::SUCCESS);
        }
        let objects: Vec<Value> = policies.iter().map(output::whole).collect::<Result<_>>()?;
        output::objects(context, self.output, &objects, false, |wide| {
            table(&policies, &objects, wide, Timestamp::now())
        })?;
        Ok(Exit::SUCCESS)
    }
}

fn table(policies: &[BrokerPolicy], objects: &[Value], wide: bool, now: Timestamp) -> Table {
    let mut head = vec!["NAME", "TEMPLATES", "CREDENTIALS", "HOSTS", "DISCOVERY"];
    if wide {
        head.extend(["REPOSITORIES", "INTERACTIVE", "RUNS AT ONCE"]);
    }
    head.push("AGE");
    let mut table = Table::new(&head);
    for (policy, object) in policies.iter().zip(objects) {
        let grants = &policy.spec.grants;
        let credentials = grants.credentials.iter().map(|one| one.name.as_str());
        let hosts = grants.egress.iter().map(|one| one.host.as_str());
        let mut row = vec![
            policy.name_any(),
            policy.spec.applies_to_templates.join(","),
            credentials.collect::<Vec<_>>().join(","),
            hosts.collect::<Vec<_>>().join(","),
            match discovery(policy, now) {
                Discovery::None => String::new(),
                Discovery::Active(ends) => format!("until {}", instant(ends)),
                Discovery::Expired(_) => "expired".to_owned(),
            },
        ];
        if wide {
            let repositories = grants.git_repos.iter();
            let repositories = repositories.map(|one| format!("{}/{}", one.owner, one.repo));
            let limits = policy.spec.limits.and_then(|limits| limits.concurrent_runs);
            row.extend([
                repositories.collect::<Vec<_>>().join(","),
                grants
                    .runs
                    .as_ref()
                    .is_some_and(|runs| runs.interact)
                    .to_string(),
                limits.map_or_else(String::new, |limit| limit.to_string()),
            ]);
        }
        row.push(output::age(&object["metadata"], now));
        table.row(row);
    }
    table
}

impl Check {
    async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let check = check_policies(&cluster, &self.template, self.template_kind).await?;
        let (name, lacking) = (&check.template, &check.gaps);
        let report = json!({
            "template": name,
            "kind": check.kind,
            "namespace": cluster.namespace,
            "policies": check.policies,
            "granted": check.is_granted,
            "gaps": {
                "credentials": lacking.credentials,
                "egress": output::to_value(&lacking.egress)?,
            },
        });
        let text = match self.output {
            TextFormat::Json => output::json(&report)?,
            TextFormat::Yaml => output::yaml(&report)?,
            TextFormat::Text => {
                let of = match &check.policies[..] {
                    [] => "none".to_owned(),
                    names => names.join(", "),
                };
                let mut text = line(&format!("{} {name}, policies: {of}", check.kind)) + "\n";
                text.push_str(&match check.is_granted {
                    true => "All that it requires is granted.\n".to_owned(),
                    false => line(&format!("Lacking: {lacking}")) + "\n",
                });
                text
            }
        };
        context.print(&text)?;
        if lacking.is_empty() {
            return Ok(Exit::SUCCESS);
        }
        context.say(&format!(
            "`ozctl run policy scaffold {name}` prints a policy that grants it."
        ));
        Ok(Exit::FAILURE)
    }
}

impl Scaffold {
    async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let scaffold = scaffold_policy(
            &cluster,
            &self.template,
            self.template_kind,
            self.provider,
            self.name.as_deref(),
        );
        let scaffold = scaffold.await?;
        if !scaffold.is_needed {
            context.say_plain(&format!(
                "{} {} requires nothing: its runs need no policy",
                scaffold.kind, scaffold.template
            ));
        }
        let mut text = String::new();
        for note in placeholders(&scaffold.policy) {
            text.push_str(&format!("# {}\n", line(&note)));
        }
        let manifest = output::whole(&scaffold.policy)?;
        context.print(&(text + &output::yaml(&manifest)?))?;
        Ok(Exit::SUCCESS)
    }
}

/// Returns the failure of `policy suggest`: it requires records of denied hosts, which no part of
/// oz writes yet.
pub(crate) fn suggest() -> Failure {
    Failure::new("policy suggest is not served yet: oz keeps no record of hosts that were refused to runs").next(
        "`ozctl run policy check TEMPLATE` names what a template lacks, `ozctl run policy scaffold TEMPLATE` prints a policy \
         that grants it",
    )
}
