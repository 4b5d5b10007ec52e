//! `ozctl reviews`: lists the emergencies and the uses of break-glass that require an access
//! review.

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt as _;
use oz_api::AccessReview;
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{self, Table, TextFormat, short};
use crate::{choose, reviews};

/// Show the access reviews that wait for you, of emergencies and of break-glass
#[derive(Args)]
#[command(after_help = "\
Lists the emergencies without a finding whose template names you or one of your groups as reviewer, except your own
requests. A use of break-glass in an enforcing namespace is listed as well, for the users who may review it.
`ozctl review NAME --finding Justified --reason WHY` writes a finding. --all adds the reviews with a finding, and
attestations of entitlements. The review of a deleted namespace is in oz's own namespace: -A lists it, with the UID that
`ozctl review` accepts.

Examples:
  ozctl reviews
  ozctl reviews --all -A
  ozctl reviews -o json")]
pub(crate) struct Reviews {
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Also those that wait for others, and those that are written
    #[arg(long)]
    all: bool,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Reviews {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let mut found = reviews::all(&cluster, self.all_namespaces).await?;
        if !self.all {
            let me = choose::myself(&cluster).await?;
            found.retain(|review| reviews::waits_for(review, &me));
        }
        let objects = || {
            let items: Result<Vec<_>> = found.iter().map(output::whole).collect();
            Ok::<_, crate::failure::Failure>(json!({
                "apiVersion": "v1", "kind": "List", "items": items?,
            }))
        };
        let text = match self.output {
            TextFormat::Text if found.is_empty() => {
                context.say(match self.all {
                    true => "There are no reviews.",
                    false => "No reviews wait for you.",
                });
                return Ok(Exit::SUCCESS);
            }
            TextFormat::Text => self.table(&found).to_string(),
            TextFormat::Json => output::json(&objects()?)?,
            TextFormat::Yaml => output::yaml(&objects()?)?,
        };
        context.print(&text)?;
        Ok(Exit::SUCCESS)
    }

    fn table(&self, found: &[AccessReview]) -> Table {
        let mut head = Vec::new();
        if self.all_namespaces {
            head.push("NAMESPACE");
        }
        head.extend(["NAME", "REQUESTER", "TEMPLATE", "DUE", "EMERGENCY"]);
        if self.all {
            head.extend(["FINDING", "REASON"]);
        }
        // The usual review is found by its name.
        let is_moved = |review: &AccessReview| review.spec.reviewed_namespace.is_some();
        let has_moved = found.iter().any(is_moved);
        if has_moved {
            head.extend(["REVIEWED NAMESPACE", "UID"]);
        }
        let mut table = Table::new(&head);
        let now = Timestamp::now();
        for review in found {
            let spec = &review.spec;
            let due = match (spec.is_written(), reviews::is_overdue(review, now)) {
                (true, _) => None,
                (false, true) => Some("overdue".to_owned()),
                (false, false) => Some(short(spec.due_at.duration_since(now))),
            };
            let mut cells = Vec::new();
            if self.all_namespaces {
                cells.push(review.namespace());
            }
            cells.extend([
                Some(review.name_any()),
                Some(spec.requester.user.clone()),
                Some(match (&spec.break_glass, &spec.attestation) {
                    (Some(_), _) => "break-glass".to_owned(),
                    (None, Some(_)) => "attestation".to_owned(),
                    (None, None) => spec.template.clone(),
                }),
                due,
                Some(spec.emergency.clone()),
            ]);
            if self.all {
                let finding = spec.finding.map(|finding| finding.to_string());
                let counts = spec.attestation.as_ref().map(|attestation| {
                    format!("{} kept, {} removed", attestation.kept, attestation.removed)
                });
                cells.push(finding);
                cells.push(spec.reason.clone().or(counts));
            }
            if has_moved {
                let about = spec.access_request_ref.as_ref();
                let uid = about
                    .filter(|_| is_moved(review))
                    .map(|about| about.uid.clone());
                cells.extend([spec.reviewed_namespace.clone(), uid]);
            }
            table.row_with_blanks(cells);
        }
        table
    }
}
