//! `ozctl templates`: lists the templates that the user may request here, and their durations; the
//! same function decides that in the webhook and in the operator.

use clap::Args;
use futures::FutureExt as _;
use futures::future::{try_join, try_join_all};
use kube::api::ListParams;
use oz_api::Requester;
use oz_core::access::decide::{self, Ask};
use oz_core::for_each_kind;
use oz_core::kinds::AccessTemplate;
use serde_json::{Value, json};

use crate::choose;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::{self, Format, Table};

/// Show what may be asked for here, and for how long
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl templates
  ozctl templates --all -o wide    also those that do not let you in, and why
  ozctl templates -A -o json       in every namespace

With -o json each template has `mayAsk` and, if it is false, `reason` beside
the fields of the API.")]
pub(crate) struct Templates {
    /// Also those that do not let you in
    #[arg(long)]
    all: bool,
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// How to show them
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// A template, and whether it grants access to the user.
struct Row {
    object: Value,
    cells: Vec<String>,
    more: Vec<String>,
    may: Result<(), String>,
}

/// A function that makes the row of a template for the user.
type Rowing = Box<dyn FnOnce(&Requester) -> Result<Row>>;

impl Templates {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let parameters = ListParams::default();
        let asking = &cluster;
        let mut lists = Vec::new();
        for_each_kind!(templates T => {
            let api = asking.api_in::<T>(self.all_namespaces);
            let parameters = &parameters;
            let list = async move {
                let found = asking.answer(api.list(parameters)).await?;
                let found = found.items.into_iter();
                let rows = found.map(|one| Box::new(move |me: &Requester| row(me, &one)) as Rowing);
                Ok::<Vec<Rowing>, Failure>(rows.collect())
            };
            lists.push(list.boxed_local());
        });
        let (me, lists) = try_join(choose::myself(&cluster), try_join_all(lists)).await?;
        let rows = lists.into_iter().flatten().map(|row| row(&me));
        let rows: Vec<Row> = rows.collect::<Result<_>>()?;
        let count = rows.len();
        let shown: Vec<Row> = rows
            .into_iter()
            .filter(|row| self.all || row.may.is_ok())
            .collect();
        let hidden = count - shown.len();
        let is_table = matches!(self.output, Format::Table | Format::Wide);
        if is_table && hidden > 0 {
            context.say(&format!(
                "{hidden} more do not let {} in; --all shows them and why.",
                me.user
            ));
        }
        if is_table && shown.is_empty() {
            context.say(&match self.all_namespaces {
                true => "Nothing may be asked for.".to_owned(),
                false => format!(
                    "Nothing may be asked for in namespace {}.",
                    cluster.namespace
                ),
            });
            return Ok(Exit::SUCCESS);
        }
        let objects: Vec<Value> = shown.iter().map(|row| row.object.clone()).collect();
        output::objects(context, self.output, &objects, false, |wide| {
            self.table(&shown, wide)
        })?;
        Ok(Exit::SUCCESS)
    }

    fn table(&self, rows: &[Row], wide: bool) -> Table {
        let mut head = Vec::new();
        if self.all_namespaces {
            head.push("NAMESPACE");
        }
        head.extend(["NAME", "FOR", "TARGET", "DEFAULT", "MAX", "READY"]);
        if wide {
            head.extend(["OPERATIONS", "CONTAINERS", "NEEDS REASON"]);
        }
        if self.all {
            head.push("MAY I");
        }
        let mut table = Table::new(&head);
        for row in rows {
            let mut cells = Vec::new();
            if self.all_namespaces {
                let namespace = row.object["metadata"]["namespace"].as_str();
                cells.push(namespace.unwrap_or_default().to_owned());
            }
            cells.extend(row.cells.iter().cloned());
            if wide {
                cells.extend(row.more.iter().cloned());
            }
            if self.all {
                cells.push(match &row.may {
                    Ok(()) => "yes".to_owned(),
                    Err(why) => format!("no: {why}"),
                });
            }
            table.row(cells);
        }
        table
    }
}

fn row<T: AccessTemplate>(me: &Requester, template: &T) -> Result<Row> {
    let config = template.config();
    // A request chooses its own container; the question here is about the user.
    let may = decide::may_ask(me, template.name(), config, Ask::default())
        .map_err(|denial| denial.message);
    let mut object = output::whole(template)?;
    object["mayAsk"] = json!(may.is_ok());
    if let Err(why) = &may {
        object["reason"] = json!(why);
    }
    let target = template.workload().map_or_else(
        || "a pod of its own spec".to_owned(),
        |target| format!("{}/{}", target.kind.to_string().to_lowercase(), target.name),
    );
    let operations: Vec<String> = decide::operations(config)
        .iter()
        .map(ToString::to_string)
        .collect();
    let containers = match &config.containers[..] {
        [] => "all".to_owned(),
        some => some.join(","),
    };
    Ok(Row {
        cells: vec![
            template.name().to_owned(),
            T::PURPOSE.to_owned(),
            target,
            config.default_duration.clone(),
            config.max_duration.clone(),
            template.is_ready().to_string(),
        ],
        more: vec![
            operations.join(","),
            containers,
            config.require_reason.to_string(),
        ],
        object,
        may,
    })
}
