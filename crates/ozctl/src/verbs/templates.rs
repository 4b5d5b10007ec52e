//! `ozctl templates`: lists the templates that the user may request here, and their durations; the
//! same function decides that in the webhook and in the operator.

use clap::Args;
use oz_client::templates::{self, Offer};
use serde_json::Value;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, Format, Table};

/// Show the access templates that you may use, with maximum duration
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl templates
  ozctl templates --all -o wide    also those that deny you access, with the reason
  ozctl templates -A -o json       in every namespace

With -o json each template has `mayAsk` and, if it is false, `reason`, in
addition to the fields of the API.")]
pub(crate) struct Templates {
    /// List templates that do not grant you access as well
    #[arg(long)]
    all: bool,
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

impl Templates {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let templates::Templates { me, offers } =
            templates::list(&cluster, self.all_namespaces).await?;
        let count = offers.len();
        let shown: Vec<Offer> = offers
            .into_iter()
            .filter(|offer| self.all || offer.denial.is_none())
            .collect();
        let hidden = count - shown.len();
        let is_table = matches!(self.output, Format::Table | Format::Wide);
        if is_table && hidden > 0 {
            context.say(&format!(
                "{hidden} more do not grant {} access; --all shows them and the reason.",
                me.user
            ));
        }
        if is_table && shown.is_empty() {
            context.say(&match self.all_namespaces {
                true => "No templates found.".to_owned(),
                false => format!("No templates found in namespace {}.", cluster.namespace),
            });
            return Ok(Exit::SUCCESS);
        }
        let objects: Vec<Value> = shown.iter().map(|offer| offer.object.clone()).collect();
        output::objects(context, self.output, &objects, false, |wide| {
            self.table(&shown, wide)
        })?;
        Ok(Exit::SUCCESS)
    }

    fn table(&self, offers: &[Offer], wide: bool) -> Table {
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
        for offer in offers {
            let mut cells = Vec::new();
            if self.all_namespaces {
                cells.push(offer.namespace.clone());
            }
            let target = offer.workload.as_ref().map_or_else(
                || "a dedicated pod with its own spec".to_owned(),
                |target| format!("{}/{}", target.kind.to_string().to_lowercase(), target.name),
            );
            cells.extend([
                Some(offer.name.clone()),
                Some(offer.purpose.to_owned()),
                Some(target),
                Some(offer.config.default_duration.clone()),
                Some(offer.config.max_duration.clone()),
                Some(offer.is_ready.to_string()),
            ]);
            if wide {
                let operations = offer.operations.iter().map(ToString::to_string);
                cells.extend([
                    Some(operations.collect::<Vec<_>>().join(",")),
                    Some(match &offer.config.containers[..] {
                        [] => "all".to_owned(),
                        some => some.join(","),
                    }),
                    Some(offer.config.require_reason.to_string()),
                ]);
            }
            if self.all {
                cells.push(Some(match &offer.denial {
                    None => "yes".to_owned(),
                    Some(denial) => format!("no: {}", denial.message),
                }));
            }
            table.row_with_blanks(cells);
        }
        table
    }
}
