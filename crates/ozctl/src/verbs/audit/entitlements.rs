//! `ozctl audit entitlements`: lists the users who could get access to pods, regardless of actual
//! use.

use clap::{Args, ValueEnum};
use oz_compliance::entitlements::COLUMNS;
use oz_compliance::entitlements::attest::{DECISION, RATIONALE};

use super::verify::Oz;
use crate::context::Context;
use crate::entitlements::entitlements;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output;

/// Show the entitlements: users and groups that could connect to pods
///
/// The list contains the users and groups of templates, as requesters and approvers; of roles that
/// can be bound for a limited time; of break-glass; and of every right that RBAC grants to
/// pods/exec, pods/attach, pods/portforward, pods/ephemeralcontainers, pods/proxy and nodes/proxy,
/// with wildcards and aggregated roles resolved. The members of a group are not known to
/// Kubernetes. The list does not contain rights that lead to access in two steps: to bind roles, to
/// impersonate, to create pods.
///
/// Exits with 3 and names the objects that could not be read. The digest is that of the list: an
/// equal list has the same digest at any time.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl audit entitlements
  ozctl audit entitlements -n shop
  ozctl audit entitlements -o csv > entitlements.csv
  ozctl audit entitlements --to-attest -o csv > review.csv")]
pub(super) struct ShowEntitlements {
    #[command(flatten)]
    oz: Oz,
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
    /// Add columns for decision and rationale to each line, for `ozctl audit attest`
    #[arg(long)]
    to_attest: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    // Columns for people
    Table,
    // Comma-separated values, with a head
    Csv,
    // One JSON object, with the digest
    Json,
}

impl ShowEntitlements {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let mut found = entitlements(&cluster, &self.oz.namespace).await?;
        if let Some(namespace) = &context.connection.namespace {
            found = found.within(namespace);
        }
        match self.output {
            Format::Table if self.to_attest => {
                return Err(Failure::new("--to-attest needs -o csv or -o json"));
            }
            Format::Csv if self.to_attest => context.print(&found.csv_to_attest())?,
            Format::Json if self.to_attest => {
                let mut value = output::to_value(&found)?;
                let lines = value["entitlements"].as_array_mut();
                for line in lines.into_iter().flatten() {
                    (line[DECISION], line[RATIONALE]) = ("".into(), "".into());
                }
                context.print(&output::json(&value)?)?;
            }
            Format::Json => context.print(&output::json(&output::to_value(&found)?)?)?,
            Format::Csv => context.print(&found.csv())?,
            Format::Table => {
                let mut table = output::Table::new(
                    &COLUMNS
                        .map(str::to_uppercase)
                        .each_ref()
                        .map(|one| &one[..]),
                );
                for one in &found.entitlements {
                    let or_dash = |cell: String| {
                        if cell.is_empty() {
                            "-".to_owned()
                        } else {
                            cell
                        }
                    };
                    table.row(one.cells().map(or_dash).into());
                }
                context.print(&table.to_string())?;
            }
        }
        context.say(&format!("Digest: {}", found.digest));
        for gap in &found.gaps {
            context.say_plain(&format!("Gap: {gap}"));
        }
        Ok(match found.gaps.is_empty() {
            true => Exit::SUCCESS,
            false => Exit::INCOMPLETE,
        })
    }
}
