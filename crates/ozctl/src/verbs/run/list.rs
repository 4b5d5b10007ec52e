//! `ozctl run list`: lists runs, workspaces, and templates.

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::Resource;
use oz_api::harness::{HarnessRun, HarnessTemplate, Workspace};
use serde::Serialize;
use serde_json::Value;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, Format, Table};
use crate::run::{cluster_templates, installed, list};

/// Show harness runs, workspaces or templates
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl run list
  ozctl run list templates
  ozctl run list workspaces -A -o json")]
pub(crate) struct List {
    /// Kind of objects to list
    #[arg(value_name = "KIND", default_value = "runs")]
    what: What,
    #[command(flatten)]
    flags: Flags,
}

/// The flags of a list.
#[derive(Args)]
pub(crate) struct Flags {
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Labels of the objects, such as team=birds
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// The kind of objects to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    // Runs
    #[value(aliases = ["run", "hr", "harnessruns"])]
    Runs,
    // Workspaces
    #[value(aliases = ["workspace", "ws"])]
    Workspaces,
    // Templates of the namespace
    #[value(aliases = ["template", "ht", "harnesstemplates"])]
    Templates,
    // Templates of the cluster
    #[value(name = "clustertemplates", aliases = ["clustertemplate", "cht", "clusterharnesstemplates"])]
    ClusterTemplates,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        show(context, self.what, &self.flags)
            .await
            .map_err(installed)
    }
}

/// Lists the objects of one kind.
pub(crate) async fn show(context: &Context, what: What, flags: &Flags) -> Result<Exit> {
    let cluster = context.cluster().await?;
    let everywhere = flags.all_namespaces;
    let labels = flags.selector.as_ref();
    let objects = match what {
        What::Runs => whole(&list::<HarnessRun>(&cluster, everywhere, labels).await?),
        What::Workspaces => whole(&list::<Workspace>(&cluster, everywhere, labels).await?),
        What::Templates => whole(&list::<HarnessTemplate>(&cluster, everywhere, labels).await?),
        What::ClusterTemplates => whole(&cluster_templates(&cluster, labels).await?),
    }?;
    if objects.is_empty() && matches!(flags.output, Format::Table | Format::Wide) {
        let place = match everywhere || what == What::ClusterTemplates {
            true => String::new(),
            false => format!(" in namespace {}", cluster.namespace),
        };
        context.say(&format!("No {} found{place}.", title(what)));
        return Ok(Exit::SUCCESS);
    }
    output::objects(context, flags.output, &objects, false, |wide| {
        let everywhere = everywhere && what != What::ClusterTemplates;
        table(what, &objects, everywhere, wide, Timestamp::now())
    })?;
    Ok(Exit::SUCCESS)
}

const fn title(what: What) -> &'static str {
    match what {
        What::Runs => "runs",
        What::Workspaces => "workspaces",
        What::Templates => "templates",
        What::ClusterTemplates => "cluster templates",
    }
}

fn whole<K>(objects: &[K]) -> Result<Vec<Value>>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    objects.iter().map(output::whole).collect()
}

/// The titles of columns, each with the path of its value, or the type of a condition, with its message as the value.
type Columns = &'static [(&'static str, &'static str)];

/// Returns the columns of a kind; the second list is only for a wide table.
fn columns(what: What) -> (Columns, Columns) {
    match what {
        What::Runs => (
            &[
                ("PHASE", "/status/phase"),
                ("TEMPLATE", "/spec/templateRef/name"),
                ("WORKSPACE", "/status/workspaceRef"),
                ("CREDENTIALS", "BrokerCredentialsReady"),
            ],
            &[
                ("HOSTS", "EgressConfigured"),
                ("STARTED", "/status/startTime"),
                ("OVER", "/status/completionTime"),
                ("REASON", "/spec/reason"),
            ],
        ),
        What::Workspaces => (
            &[
                ("PHASE", "/status/phase"),
                ("ACTIVE RUN", "/status/activeRunRef"),
                ("RUNS", "/status/totalRuns"),
            ],
            &[
                ("SIZE", "/spec/storage/size"),
                ("CLAIM", "/status/pvcName"),
                ("LAST USED", "/status/lastActivity"),
            ],
        ),
        What::Templates | What::ClusterTemplates => (
            &[
                ("HARNESS", "/spec/harness"),
                ("BASE", "/spec/baseTemplateRef/name"),
                ("TIMEOUT", "/spec/defaults/timeout"),
            ],
            &[("IMAGE", "/spec/image"), ("MODEL", "/spec/defaults/model")],
        ),
    }
}

fn table(what: What, objects: &[Value], everywhere: bool, wide: bool, now: Timestamp) -> Table {
    let (narrow, more) = columns(what);
    let shown = narrow.iter().chain(more.iter().filter(|_| wide));
    let namespace = everywhere.then_some("NAMESPACE");
    let head: Vec<&str> = namespace
        .into_iter()
        .chain(["NAME"])
        .chain(shown.clone().map(|(head, _)| *head))
        .chain(["AGE"])
        .collect();
    let mut table = Table::new(&head);
    let text = |object: &Value, path: &str| {
        let value = match path.starts_with('/') {
            true => object.pointer(path),
            false => message(object, path),
        };
        match value {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    };
    for object in objects {
        let mut row = Vec::new();
        if everywhere {
            row.push(text(object, "/metadata/namespace"));
        }
        row.push(text(object, "/metadata/name"));
        row.extend(shown.clone().map(|(_, path)| text(object, path)));
        row.push(output::age(&object["metadata"], now));
        table.row(row);
    }
    table
}

/// Returns the message of a condition of this type.
fn message<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let condition = conditions.iter().find(|one| one["type"] == type_)?;
    condition.get("message")
}
