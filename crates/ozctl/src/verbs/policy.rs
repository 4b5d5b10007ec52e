//! `ozctl run policy`: the policies of harness runs, the grants that a template lacks, and a policy
//! with these grants.

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use oz_api::harness::{BrokerPolicy, ProviderKind, TemplateKind};
use oz_runs::policy::{Discovery, discovery};
use oz_runs::scaffold::{Account, placeholders};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::complete;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::names::checked;
use crate::output::{self, Format, Table, TextFormat, instant, line};
use crate::run::{
    PolicyCheck, broker_account, check_policies, installed, policies, provider, scaffold_policy,
    secret_access, template_kind,
};
use crate::verbs::run::findings;

/// Show and check the broker policies of harness runs (requires the chart's harness.enabled)
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

/// Show the broker policies of the namespace
#[derive(Args)]
pub(crate) struct List {
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// Check whether broker policies grant the requirements of a harness template
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run policy check claude-code
  ozctl run policy check claude-code -o json

Checks whether policies grant each credential and each host, whether the hosts
of each credential are granted, whether the webhook verified the policies, and
whether the broker may read their Secrets.

Exit codes: 0 if no check fails, 1 if one does.")]
pub(crate) struct Check {
    /// The template
    #[arg(value_name = "TEMPLATE", add = ArgValueCandidates::new(complete::harness_templates))]
    template: String,
    /// Which kind of template [default: the namespace's own, else the cluster's]
    #[arg(long, value_name = "KIND", value_parser = template_kind)]
    template_kind: Option<TemplateKind>,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

/// Print a broker policy with the requirements of a harness template
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run policy scaffold claude-code > policy.yaml
  ozctl run policy scaffold claude-code --provider AnthropicAPI --name claude
  ozctl run policy scaffold claude-code --role | kubectl apply -f -
  ozctl run policy scaffold --role --name claude

Writes nothing to the cluster. Comments above the policy list the values to
replace and the Secrets that must exist. A Role and a RoleBinding precede it:
with them, the broker may read the Secrets of the policy, and no others.

Providers: UserSuppliedSecret, AnthropicAPI, GitHubApp, PATPool.")]
pub(crate) struct Scaffold {
    /// The template
    #[arg(value_name = "TEMPLATE", required_unless_present_all = ["role", "name"], add = ArgValueCandidates::new(complete::harness_templates))]
    template: Option<String>,
    /// Which kind of template [default: the namespace's own, else the cluster's]
    #[arg(long, value_name = "KIND", value_parser = template_kind)]
    template_kind: Option<TemplateKind>,
    /// Provider of the credentials [default: AnthropicAPI for ANTHROPIC_API_KEY, else UserSuppliedSecret]
    #[arg(long, value_name = "PROVIDER", value_parser = provider)]
    provider: Option<ProviderKind>,
    /// Name of the policy [default: the template's; with --role, all policies for the template]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print only the Role and the RoleBinding for the Secrets of existing policies
    #[arg(long)]
    role: bool,
    /// Namespace of oz
    #[arg(long, default_value = "oz-system", value_name = "NAMESPACE")]
    oz_namespace: String,
    /// Service account of the broker [default: that of its Deployment, else oz-broker]
    #[arg(long, value_name = "NAME")]
    broker_account: Option<String>,
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
            "findings": findings::values(&check.findings),
        });
        let text = match self.output {
            TextFormat::Json => output::json(&report)?,
            TextFormat::Yaml => output::yaml(&report)?,
            TextFormat::Text => text(context, &check),
        };
        context.print(&text)?;
        if !lacking.is_empty() {
            context.say(&format!(
                "`ozctl run policy scaffold {name}` prints a policy that grants it."
            ));
        }
        Ok(match check.is_yes() {
            true => Exit::SUCCESS,
            false => Exit::FAILURE,
        })
    }
}

fn text(context: &Context, check: &PolicyCheck) -> String {
    let PolicyCheck { template, kind, .. } = check;
    let of = match &check.policies[..] {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let mut text = line(&format!("{kind} {template}, policies: {of}")) + "\n";
    text.push_str(&match check.is_granted {
        true => "All that it requires is granted.\n".to_owned(),
        false => line(&format!("Lacking: {}", check.gaps)) + "\n",
    });
    text + &findings::rows(context, &check.findings)
}

impl Scaffold {
    async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let broker = self.broker(&cluster).await?;
        let name = self.name.as_deref();
        let Some(template) = self.template.as_deref().filter(|_| !self.role) else {
            let access = secret_access(&cluster, self.template.as_deref(), name, &broker).await?;
            if access.is_empty() {
                context.say_plain("the policies name no Secret that the broker reads");
            }
            let documents = access.iter().map(manifests);
            let documents: Vec<String> = documents.collect::<Result<_>>()?;
            context.print(&documents.join("---\n"))?;
            return Ok(Exit::SUCCESS);
        };
        let scaffold = scaffold_policy(
            &cluster,
            template,
            self.template_kind,
            self.provider,
            name,
            &broker,
        );
        let scaffold = scaffold.await?;
        if !scaffold.is_needed {
            context.say_plain(&format!(
                "{} {} requires nothing: its runs need no policy",
                scaffold.kind, scaffold.template
            ));
        }
        let mut text = String::new();
        // Applied first, the Role is in force when the operator checks the policy.
        if let Some(access) = &scaffold.access {
            text.push_str(&manifests(access)?);
            text.push_str("---\n");
        }
        for note in placeholders(&scaffold.policy) {
            text.push_str(&format!("# {}\n", line(&note)));
        }
        text.push_str(&output::yaml(&output::whole(&scaffold.policy)?)?);
        context.print(&text)?;
        Ok(Exit::SUCCESS)
    }

    /// Returns the account of the broker.
    async fn broker(&self, cluster: &Cluster) -> Result<Account> {
        let namespace = checked(&self.oz_namespace)?;
        Ok(match &self.broker_account {
            Some(name) => Account {
                namespace: namespace.to_owned(),
                name: checked(name)?.to_owned(),
            },
            None => broker_account(cluster, namespace).await,
        })
    }
}

/// Formats a Role and its RoleBinding as two documents.
fn manifests((role, binding): &(Role, RoleBinding)) -> Result<String> {
    let role = output::yaml(&output::whole(role)?)?;
    let binding = output::yaml(&output::whole(binding)?)?;
    Ok(format!(
        "# The broker may read these Secrets, and no others.\n{role}---\n{binding}"
    ))
}

/// Returns the failure of `policy suggest`: oz does not derive policies from refused hosts.
pub(crate) fn suggest() -> Failure {
    Failure::new("policy suggest is not served yet").next(
        "`ozctl run egress RUN` lists the hosts that a run was refused, `ozctl run policy check TEMPLATE` names the missing \
         grants of a template, `ozctl run policy scaffold TEMPLATE` prints a policy with them",
    )
}
