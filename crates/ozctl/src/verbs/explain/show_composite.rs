//! The actions of composites for a parent, on the screen and as JSON.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use oz_composites::Moment;
use oz_core::controller::{Live, Plan, Step};
use serde_json::{Value, json};

use super::super::composites::failed;
use super::show::{condition, step_text};
use crate::context::{Context, Style};
use crate::explain::composite::{Explained, Explanation, Outcome, Withheld};
use crate::failure::Result;
use crate::output::{self, TextFormat, instant, to_value};

pub(super) fn show(context: &Context, format: TextFormat, explanation: &Explanation) -> Result<()> {
    let text = match format {
        TextFormat::Text => text(context, explanation),
        TextFormat::Json => output::json(&value(explanation)?)?,
        TextFormat::Yaml => output::yaml(&value(explanation)?)?,
    };
    context.print(&text)
}

fn text(context: &Context, explanation: &Explanation) -> String {
    let metadata = &explanation.parent.metadata;
    let mut heading = format!(
        "{} {}",
        explanation.kind.resource.kind,
        explanation.parent.name_any()
    );
    if let Some(namespace) = &metadata.namespace {
        heading.push_str(&format!(" in namespace {namespace}"));
    }
    if metadata.deletion_timestamp.is_some() {
        heading.push_str(", being deleted");
    }
    let mut lines = vec![heading];
    if let Some(failure) = &explanation.unread {
        let message = output::line(failure.message());
        lines.push(format!("  not read: {message}"));
    }
    if explanation.composites.is_empty() {
        lines
            .push("  no composite reconciles it: those of its kind select other labels".to_owned());
    }
    if explanation.composites.len() > 1 {
        lines.push(
            "  several composites reconcile it, and may conflict about its children".to_owned(),
        );
    }
    for explained in &explanation.composites {
        one(context, explained, &mut lines);
    }
    lines.join("\n") + "\n"
}

fn one(context: &Context, explained: &Explained, lines: &mut Vec<String>) {
    let title = |text: &str| context.paint_output(Style::Bold, text);
    let composite = &explained.composite;
    let status = composite.standing();
    lines.push(format!(
        "  composite  {} {}",
        composite.kind(),
        composite.metadata().name.as_deref().unwrap_or_default()
    ));
    if let Some(function) = &explained.function {
        lines.push(format!(
            "  function   {}",
            output::line(&function.to_string())
        ));
    }
    if let Outcome::Told {
        policy: Some(policy),
        ..
    } = &explained.outcome
    {
        lines.push(format!(
            "  policy     Rego {}, {}",
            policy.language, policy.digest
        ));
    }
    if let Some(account) = status.and_then(|status| status.account.as_ref()) {
        lines.push(format!("  account    {}", output::line(account)));
    }
    lines.push(String::new());
    lines.push(title("Status of the composite"));
    match status.map(|status| &status.conditions[..]) {
        None | Some([]) => lines.push("  it has no conditions".to_owned()),
        Some(conditions) => lines.extend(conditions.iter().map(|one| condition(context, one))),
    }
    lines.push(String::new());
    match &explained.outcome {
        Outcome::Told {
            plan,
            live,
            timeline,
            tried_until,
            withheld,
            ..
        } => {
            lines.push(title("Steps of the operator now"));
            steps(plan, live, lines);
            lines.extend(withheld.map(|why| format!("  {}", not_done(why))));
            if let Some(timeline) = timeline {
                lines.push(String::new());
                lines.push(title("Later steps, if only time passes"));
                moments(timeline, lines);
                if let Some(until) = tried_until {
                    let until = instant(*until);
                    lines.push(format!("  after {until}: not evaluated"));
                }
            }
        }
        Outcome::Untold {
            why,
            children,
            instants,
            trouble,
        } => {
            lines.push(title("Steps of the operator now"));
            lines.push(format!("  unknown: {}", output::line(why)));
            for child in children {
                lines.push(format!("  there is {}", output::line(child)));
            }
            if let Some(first) = instants.first() {
                let first = instant(*first);
                lines.push(format!("  the function is called again at {first}"));
            }
            if let Some(trouble) = trouble {
                lines.push(output::line(&failed("  last error", trouble)));
            }
        }
    }
}

fn not_done(why: Withheld) -> &'static str {
    match why {
        Withheld::DryRun => "no step is carried out: the composite is a dry run",
        Withheld::DeletionLimitExceeded => {
            "nothing is deleted until the deletion is accepted: see the composite's condition"
        }
    }
}

/// Adds the steps of a plan; a write to an existing object is shown as a change.
fn steps(plan: &Plan, live: &[Live], lines: &mut Vec<String>) {
    let mut there: BTreeSet<_> = live.iter().map(Live::key).collect();
    if plan.stages.is_empty() {
        lines.push("  nothing".to_owned());
    }
    for (number, step) in plan.stages.iter().flatten().enumerate() {
        let text = match step {
            Step::Apply(child) if there.contains(&child.key()) => {
                format!("change {} {}", child.resource.kind, child.object.name_any())
            }
            Step::Delete(reference) => {
                there.retain(|key| {
                    let is_it = key.kind == reference.resource.kind
                        && key.group == reference.resource.group
                        && key.namespace == reference.namespace
                        && key.name == reference.name;
                    !is_it
                });
                step_text(step)
            }
            Step::DeleteSelf => "delete the parent, whose window has ended".to_owned(),
            step => step_text(step),
        };
        lines.push(format!("  {}. {}", number + 1, output::lines(&text)));
    }
    if let Some(obstacle) = &plan.obstacle {
        lines.push(format!("  but: {}", output::line(&obstacle.message)));
    }
    if let Some(wake) = plan.wake {
        lines.push(format!("  and look again at {}", instant(wake)));
    }
}

fn moments(timeline: &[Moment], lines: &mut Vec<String>) {
    if timeline.is_empty() {
        lines.push("  nothing".to_owned());
    }
    for moment in timeline {
        // With nanoseconds: the side of an instant on which a bound lies is important.
        let at = moment.at;
        let mut said = Vec::new();
        for (word, children) in [
            ("comes", &moment.come),
            ("changes", &moment.change),
            ("goes", &moment.go),
        ] {
            said.extend(children.iter().map(|child| format!("{child} {word}")));
        }
        if let Some(failure) = &moment.failure {
            said.push(format!("no response: {failure}"));
        }
        if said.is_empty() {
            said.push("only the status changes".to_owned());
        }
        let said = said.iter();
        lines.extend(said.map(|said| format!("  {at}  {}", output::line(said))));
    }
}

fn value(explanation: &Explanation) -> Result<Value> {
    let metadata = &explanation.parent.metadata;
    let composites = explanation.composites.iter().map(|explained| {
        let composite = &explained.composite;
        let mut value = json!({
            "kind": composite.kind(),
            "name": composite.metadata().name,
            "function": explained.function.as_ref().map(ToString::to_string),
            "status": composite.standing().map(to_value).transpose()?,
        });
        let more = match &explained.outcome {
            Outcome::Told {
                plan,
                timeline,
                tried_until,
                status,
                policy,
                withheld,
                ..
            } => json!({
                "plan": to_value(plan)?,
                "timeline": timeline.as_ref().map(to_value).transpose()?,
                "triedUntil": tried_until,
                "namedStatus": status,
                "policy": policy.as_ref().map(|policy| json!({
                    "digest": policy.digest, "language": policy.language,
                })),
                "withheld": withheld.map(|why| match why {
                    Withheld::DryRun => "DryRun",
                    Withheld::DeletionLimitExceeded => "DeletionLimitExceeded",
                }),
            }),
            Outcome::Untold {
                why,
                children,
                instants,
                trouble,
            } => json!({
                "plan": null,
                "planUnknown": why,
                "children": children,
                "askedAgain": instants.first(),
                "lastError": to_value(trouble)?,
            }),
        };
        if let (Some(fields), Value::Object(more)) = (value.as_object_mut(), more) {
            fields.extend(more);
        }
        Ok(value)
    });
    Ok(json!({
        "apiVersion": explanation.kind.resource.api_version,
        "kind": explanation.kind.resource.kind,
        "namespace": metadata.namespace,
        "name": metadata.name,
        "composites": composites.collect::<Result<Vec<_>>>()?,
    }))
}
