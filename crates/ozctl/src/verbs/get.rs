//! `ozctl get`: lists templates and requests as the original does. `-o json` is the format of the
//! API.

use clap::Args;
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;
use oz_client::objects::{self, Selection};
use serde_json::Value;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::{self, Format, Table};
use crate::{complete, names};

/// Show access templates and requests
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl get execaccessrequests
  ozctl get ExecAccessRequest alice-x7k2p -o yaml
  ozctl get podaccesstemplate/debug -o json
  ozctl get ear,par -o wide

Kinds: execaccesstemplates (eat), podaccesstemplates (pat),
execaccessrequests (ear), podaccessrequests (par).")]
pub(crate) struct Get {
    /// Kinds, by commas, and names; or KIND/NAME, any number of times
    #[arg(required = true, value_name = "KIND [NAME...]|KIND/NAME...",
          add = ArgValueCandidates::new(complete::words))]
    words: Vec<String>,
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only those with these labels, such as app=web
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// A selection to read: all objects of a kind, or one by its name.
#[derive(Debug, PartialEq)]
struct Wanted<'a> {
    kind: &'a str,
    name: Option<&'a str>,
}

impl Get {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let wanted = wanted(&self.words)?;
        let cluster = context.cluster().await?;
        let mut objects = Vec::new();
        for one in &wanted {
            let kind = objects::kind(&cluster, one.kind).await?;
            let selection = match one.name {
                Some(name) => Selection::Name(name),
                None => Selection::Labels(self.selector.as_deref()),
            };
            let found = objects::read(&cluster, &kind, selection, self.all_namespaces).await?;
            for object in &found {
                objects.push(output::to_value(object)?);
            }
        }
        let single = matches!(&wanted[..], [one] if one.name.is_some());
        if objects.is_empty() && matches!(self.output, Format::Table | Format::Wide) {
            let place = match self.all_namespaces {
                true => String::new(),
                false => format!(" in {} namespace", cluster.namespace),
            };
            context.say(&format!("No resources found{place}."));
            return Ok(Exit::SUCCESS);
        }
        output::objects(context, self.output, &objects, single, |wide| {
            table(&objects, wide)
        })?;
        Ok(Exit::SUCCESS)
    }
}

fn wanted(words: &[String]) -> Result<Vec<Wanted<'_>>> {
    let (first, names) = words
        .split_first()
        .ok_or_else(|| Failure::new("name the kind of objects to show"))?;
    if first.contains('/') {
        let pairs = words.iter().map(|word| {
            let (kind, name) = word.split_once('/').ok_or_else(|| {
                Failure::new(format!("{word} is not KIND/NAME, as those before it are"))
            })?;
            let name = Some(names::checked(name)?);
            Ok(Wanted { kind, name })
        });
        return pairs.collect();
    }
    let kinds: Vec<&str> = first.split(',').filter(|kind| !kind.is_empty()).collect();
    if kinds.len() > 1 && !names.is_empty() {
        return Err(Failure::new("names require a single kind")
            .next("write KIND/NAME for each, as in `ozctl get ear/a par/b`"));
    }
    if names.is_empty() {
        let lists = kinds.iter().map(|&kind| Wanted { kind, name: None });
        return Ok(lists.collect());
    }
    let kind = kinds
        .first()
        .ok_or_else(|| Failure::new("name the objects to show"))?;
    let named = names.iter().map(|name| {
        let name = Some(crate::names::checked(name)?);
        Ok(Wanted { kind, name })
    });
    named.collect()
}

fn table(objects: &[Value], wide: bool) -> Table {
    let now = Timestamp::now();
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    // Transient bindings have a role as their template, and a binding as their pod.
    let either = |one: &Value, other: &Value| text(if one.is_null() { other } else { one });
    let mut head = vec!["NAMESPACE", "NAME", "AGE"];
    if wide {
        head.extend(["KIND", "READY", "PHASE", "TEMPLATE", "POD", "EXPIRES"]);
    }
    let mut table = Table::new(&head);
    for object in objects {
        let metadata = &object["metadata"];
        let mut row = vec![
            text(&metadata["namespace"]),
            text(&metadata["name"]),
            Some(output::age(metadata, now)),
        ];
        if wide {
            let status = &object["status"];
            row.extend([
                text(&object["kind"]),
                Some(is_ready(status).to_string()),
                text(&status["phase"]),
                either(
                    &object["spec"]["templateName"],
                    &object["spec"]["roleRef"]["name"],
                ),
                either(&status["podName"], &status["bindingName"]),
                text(&status["expiresAt"]),
            ]);
        }
        table.row_with_blanks(row);
    }
    table
}

/// Checks whether an object is ready, by its own field or by its condition.
fn is_ready(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    status["ready"].as_bool().unwrap_or_else(|| {
        conditions.any(|known| known["type"] == "Ready" && known["status"] == "True")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readiness_falls_back_to_condition() {
        let condition = |status| json!({"conditions": [{"type": "Ready", "status": status}]});
        assert!(is_ready(&json!({"ready": true})));
        assert!(is_ready(&condition("True")));
        assert!(!is_ready(&condition("False")));
        assert!(!is_ready(&json!({})));
    }

    #[test]
    fn words_are_kinds_and_names_as_kubectl_reads_them() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            wanted(&words)
                .map(|wanted| {
                    let text = wanted.iter().map(|one| match one.name {
                        Some(name) => format!("{}/{name}", one.kind),
                        None => one.kind.to_owned(),
                    });
                    text.collect::<Vec<_>>().join(" ")
                })
                .map_err(|failure| failure.message().to_owned())
        };
        assert_eq!(read(&["ear"]).unwrap(), "ear");
        assert_eq!(read(&["ear,par"]).unwrap(), "ear par");
        assert_eq!(read(&["ear", "a", "b"]).unwrap(), "ear/a ear/b");
        assert_eq!(read(&["ear/a", "par/b"]).unwrap(), "ear/a par/b");
        assert!(read(&["ear/a", "b"]).is_err());
        assert!(read(&["ear,par", "a"]).is_err());
    }
}
