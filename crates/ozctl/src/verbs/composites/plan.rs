//! `ozctl composites plan`: shows what a policy or a composite from files would change, before it is
//! applied.

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::composites::plan::{
    self, Change, Field, Kind, Manifests, Objects, OfParent, Planned, Wanted,
};
use crate::context::{Context, Style};
use crate::exit::Exit;
use crate::explain::composite::Withheld;
use crate::explain::operator::Configured;
use crate::failure::{Failure, Result};
use crate::output::{self, TextFormat};
use crate::verbs::audit::Oz;

/// Show what a policy or composite would change, before it is applied
///
/// Evaluates the policy for each live parent by the operator's own functions, and shows the children
/// that would be created, changed and deleted. Nothing is written. The files hold
/// CompositeControllers, RegoControllers, and ConfigMaps with policies and documents; if they hold
/// ConfigMaps only, the plan is that of the cluster's composites that run a policy in them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl composites plan -f fleets.yaml
  ozctl composites plan -f policy.yaml -o json
  ozctl composites plan -f fleets.yaml --parent parent.yaml --children children.yaml
  ozctl composites plan -f fleets.yaml --at 2026-01-31T09:00:00Z

The parents are those of all namespaces or, with -n, of one. You need the rights
to list parents, children and related objects. Only the operator knows the authors
of a parent: children that grant rights are left out, and the plan says so.

Exit codes: 0 if nothing changes, 2 if something changes, 1 if the plan of a
parent is not known or ozctl failed.")]
pub(super) struct PlanVerb {
    /// Files of YAML or JSON with manifests, - for standard input
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    files: Vec<String>,
    /// File with parents, in place of those of the cluster; no cluster is required
    #[arg(long, value_name = "FILE")]
    parent: Option<String>,
    /// File with the existing children of these parents
    #[arg(long, value_name = "FILE", requires = "parent")]
    children: Option<String>,
    /// The instant of the plan [default: now]
    #[arg(long, value_name = "INSTANT")]
    at: Option<Timestamp>,
    /// Address of the server to call for functions behind HTTP; without it none is called
    #[arg(long, value_name = "HOST:PORT")]
    hook_address: Option<String>,
    #[command(flatten)]
    oz: Oz,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl PlanVerb {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let namespace = context.connection.namespace.clone();
        let default = namespace.clone().unwrap_or_else(|| "default".to_owned());
        let mut manifests = Manifests::default();
        for file in &self.files {
            manifests.add(file, &read(file)?, &default)?;
        }
        let objects = match &self.parent {
            None => None,
            Some(parent) => Some(Objects {
                parents: plan::objects(parent, &read(parent)?)?,
                children: match &self.children {
                    Some(children) => plan::objects(children, &read(children)?)?,
                    None => Vec::new(),
                },
            }),
        };
        let cluster = match objects {
            Some(_) => None,
            None => Some(context.cluster().await?),
        };
        let wanted = Wanted {
            manifests,
            objects,
            namespaces: self.namespaces(cluster.as_ref()).await?,
            everywhere: namespace.is_none(),
            at: self.at.unwrap_or_else(Timestamp::now),
            hook_address: self.hook_address,
        };
        let planned = plan::plan(cluster.as_ref(), &wanted).await?;
        context.print(&match self.output {
            TextFormat::Text => text(context, &planned),
            TextFormat::Json => output::json(&value(&planned)?)?,
            TextFormat::Yaml => output::yaml(&value(&planned)?)?,
        })?;
        Ok(match planned.iter().any(Planned::has_obstacles) {
            true => Exit::FAILURE,
            false if planned.iter().any(Planned::has_changes) => Exit::CHANGES,
            false => Exit::SUCCESS,
        })
    }

    /// Returns the namespaces of policies in the operator's configuration.
    async fn namespaces(&self, cluster: Option<&Cluster>) -> Result<Vec<String>> {
        let Some(cluster) = cluster else {
            return Ok(Vec::new());
        };
        let configured = Configured::read(cluster, &self.oz.namespace, &[]).await?;
        Ok(configured.settings.policy_namespaces)
    }
}

fn read(file: &str) -> Result<String> {
    let text = match file {
        "-" => std::io::read_to_string(std::io::stdin()),
        file => std::fs::read_to_string(file),
    };
    text.map_err(|error| Failure::new(format!("failed to read {file}: {error}")))
}

fn text(context: &Context, planned: &[Planned]) -> String {
    let mut lines = Vec::new();
    for one in planned {
        let counts = [
            (Kind::Create, "to create"),
            (Kind::Change, "to change"),
            (Kind::Replace, "to replace"),
            (Kind::Delete, "to delete"),
            (Kind::Adopt, "to adopt"),
            (Kind::Release, "to release"),
        ];
        let counts = counts.iter().map(|(kind, what)| (one.count(*kind), what));
        let counts = counts.filter(|(count, _)| *count > 0);
        let mut said: Vec<String> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if said.is_empty() {
            said.push("no changes".to_owned());
        }
        let heading = format!(
            "{}: {}, {}",
            one.composite.title(),
            output::counted(one.parents.len(), "parent"),
            said.join(", ")
        );
        lines.push(context.paint_output(Style::Bold, &output::line(&heading)));
        lines.extend(one.withheld.map(|why| format!("  {}", withheld(why))));
        for parent in &one.parents {
            of_parent(parent, &mut lines);
        }
    }
    lines.join("\n") + "\n"
}

fn withheld(why: Withheld) -> &'static str {
    match why {
        Withheld::DryRun => "the composite is a dry run: no step is carried out",
        Withheld::DeletionLimitExceeded => {
            "the composite waits until a user accepts its deletions: nothing is deleted until then"
        }
    }
}

/// Adds the lines of a parent with changes, now or later, or an obstacle.
fn of_parent(parent: &OfParent, lines: &mut Vec<String>) {
    if parent.changes.is_empty() && parent.later.is_empty() && parent.obstacle.is_none() {
        return;
    }
    let place = place(parent.namespace.as_deref(), &parent.name);
    lines.push(format!("  {} {place}", parent.kind));
    for change in &parent.changes {
        of_change(change, lines);
    }
    for moment in &parent.later {
        let at = moment.at;
        for (word, children) in [
            ("+", &moment.come),
            ("~", &moment.change),
            ("-", &moment.go),
        ] {
            let said = children
                .iter()
                .map(|child| format!("    at {at}  {word} {child}"));
            lines.extend(said.map(|said| output::line(&said)));
        }
        if let Some(failure) = &moment.failure {
            lines.push(output::line(&format!(
                "    at {at}  no response: {failure}"
            )));
        }
    }
    if let Some(obstacle) = &parent.obstacle {
        lines.push(output::line(&format!("    but: {obstacle}")));
    }
}

fn of_change(change: &Change, lines: &mut Vec<String>) {
    let mark = match change.kind {
        Kind::Create => "+",
        Kind::Change => "~",
        Kind::Replace => "-/+",
        Kind::Delete => "-",
        Kind::Adopt => "adopt",
        Kind::Release => "release",
    };
    let place = place(change.namespace.as_deref(), &change.name);
    let heading = format!("    {mark} {} {place}", change.object_kind);
    lines.push(output::line(&heading));
    for Field { path, from, to } in &change.fields {
        let said = match (from, to) {
            (Some(from), Some(to)) => format!("{from} -> {to}"),
            (None, Some(to)) => to.to_string(),
            (Some(from), None) => format!("{from} ->"),
            (None, None) => continue,
        };
        lines.push(output::line(&format!("        {path}: {said}")));
    }
}

fn place(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn value(planned: &[Planned]) -> Result<Value> {
    let composites = planned.iter().map(|one| {
        Ok(json!({
            "kind": one.composite.kind(),
            "name": one.composite.metadata().name,
            "withheld": one.withheld.map(|why| match why {
                Withheld::DryRun => "DryRun",
                Withheld::DeletionLimitExceeded => "DeletionLimitExceeded",
            }),
            "counts": {
                "create": one.count(Kind::Create), "change": one.count(Kind::Change),
                "replace": one.count(Kind::Replace), "delete": one.count(Kind::Delete),
            },
            "parents": output::to_value(&one.parents)?,
        }))
    });
    Ok(json!({ "composites": composites.collect::<Result<Vec<_>>>()? }))
}
