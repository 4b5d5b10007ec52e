//! `ozctl composites`: lists the composites, the locations of their functions, their state, and
//! their last failure.

mod plan;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;
use oz_api::conditions;
use oz_composites::Declaration;
use oz_composites::supervise::RUNNING;
use serde_json::{Value, json};

use crate::complete;
use crate::composites::{self, Listed, Trouble};
use crate::context::Context;
use crate::exit::Exit;
use crate::explain::operator::Configured;
use crate::failure::Result;
use crate::output::{self, Format, Table, short};
use crate::verbs::audit::Oz;

/// Show composite controllers: functions in Rego or behind HTTP
///
/// CompositeControllers and RegoControllers each reconcile one kind of parent by a function: a Rego
/// policy that the operator runs itself, shown as data.PATH and its location, or a URL. The
/// operator reads and writes the children as the service account of the composite.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  ozctl composites
  ozctl composites fleets -o wide     with children, language and digest
  ozctl composites -o json
  ozctl composites plan -f fleets.yaml

LAST ERROR is the failed condition of the composite, or the last failure of its
function or of a child, if you may read events. PARENTS is ? if you may not list
them. Standard error names the kinds of composites that are not installed or
that you may not list. `ozctl explain PLURAL/NAME` shows the steps for one
parent. With -o json each has `function`, `parents` and `lastError` in addition
to the fields of the API.")]
pub(crate) struct Composites {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Only these
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete::composites))]
    names: Vec<String>,
    #[command(flatten)]
    oz: Oz,
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

#[derive(Subcommand)]
enum Verb {
    #[allow(missing_docs, reason = "the help is that of the arguments")]
    Plan(plan::PlanVerb),
}

impl Composites {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        if let Some(Verb::Plan(verb)) = self.verb {
            return verb.run(context).await;
        }
        let cluster = context.cluster().await?;
        let configured = Configured::read(&cluster, &self.oz.namespace, &[]).await?;
        let namespaces = &configured.settings.policy_namespaces;
        let found = composites::list(&cluster, namespaces, &self.names).await?;
        let listed = found.composites;
        if let Some(failure) = &found.unread {
            context.say(&format!("Not shown: {}", output::line(failure.message())));
        }
        let is_table = matches!(self.output, Format::Table | Format::Wide);
        if is_table && listed.is_empty() {
            context.say(match found.unread {
                None => "There are no CompositeControllers and no RegoControllers.",
                Some(_) => "There are no others.",
            });
            return Ok(Exit::SUCCESS);
        }
        let objects = listed.iter().map(object).collect::<Result<Vec<_>>>()?;
        let single = self.names.len() == 1;
        output::objects(context, self.output, &objects, single, |wide| {
            table(&listed, wide)
        })?;
        Ok(Exit::SUCCESS)
    }
}

fn object(one: &Listed) -> Result<Value> {
    let mut object = match &one.composite {
        Declaration::CompositeController(composite) => output::whole(&**composite)?,
        Declaration::RegoController(composite) => output::whole(&**composite)?,
    };
    object["function"] = json!(one.function.as_ref().map(ToString::to_string));
    object["parents"] = json!(one.parents.as_ref().ok());
    object["lastError"] = output::to_value(&one.trouble)?;
    Ok(object)
}

/// Formats a failure: `what`, the time since then if that is known, and the message.
pub(in crate::verbs) fn failed(what: &str, trouble: &Trouble) -> String {
    let message = &trouble.message;
    match trouble.at.map(|at| Timestamp::now().duration_since(at)) {
        Some(ago) => format!("{what} ({} ago): {message}", short(ago)),
        None => format!("{what}: {message}"),
    }
}

fn table(listed: &[Listed], wide: bool) -> Table {
    let mut head = vec![
        "NAME", "KIND", "PARENT", "FUNCTION", "ACCOUNT", "PARENTS", "RUNNING",
    ];
    if wide {
        head.extend(["CHILDREN", "LANGUAGE", "DIGEST"]);
    }
    head.push("LAST ERROR");
    let mut table = Table::new(&head);
    for one in listed {
        let status = one.status();
        let running = status.and_then(|status| conditions::find(&status.conditions, RUNNING));
        let parents = one.parents.as_ref();
        let mut row = vec![
            one.metadata().name.clone(),
            Some(one.composite.kind().to_owned()),
            Some(one.parent().resource),
            one.function.as_ref().map(ToString::to_string),
            one.account(),
            Some(parents.map_or_else(|_| "?".to_owned(), ToString::to_string)),
            Some(running.map_or_else(|| "?".to_owned(), |running| running.status.clone())),
        ];
        if wide {
            row.push(Some(one.children().join(",")));
            row.push(status.and_then(|status| status.language.clone()));
            row.push(status.and_then(|status| status.policy_digest.clone()));
        }
        let trouble = one.trouble.as_ref();
        row.push(trouble.map(|trouble| failed(&trouble.reason, trouble)));
        table.row_with_blanks(row);
    }
    table
}
