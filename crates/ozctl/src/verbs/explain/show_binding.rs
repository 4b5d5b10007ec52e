//! The output of the explanation of a transient binding on the screen, and as JSON.

use serde_json::{Value, json};

use super::show::{attributes, condition, no, requester_value, source, source_value, steps, yes};
use crate::context::{Context, Style};
use crate::explain::binding::{Explanation, Rule};
use crate::failure::Result;
use crate::output::{self, TextFormat, to_value};

pub(super) fn show(context: &Context, format: TextFormat, explanation: &Explanation) -> Result<()> {
    let text = match format {
        TextFormat::Text => text(context, explanation),
        TextFormat::Json => output::json(&value(explanation)?)?,
        TextFormat::Yaml => output::yaml(&value(explanation)?)?,
    };
    context.print(&text)
}

fn text(context: &Context, explanation: &Explanation) -> String {
    let Explanation {
        view,
        requester,
        rules,
        plan,
        ..
    } = explanation;
    let title = |text: &str| context.paint_output(Style::Bold, text);
    let place = view.namespace.as_ref().map_or_else(
        || "for the whole cluster".to_owned(),
        |namespace| format!("in namespace {namespace}"),
    );
    let mut lines = vec![format!("{} {} {place}", view.kind, view.name)];
    lines.push(match requester.user.as_str() {
        "" => "  asked by   unknown".to_owned(),
        user => format!("  asked by   {}", output::line(user)),
    });
    lines.extend(attributes(&explanation.extra));
    if let Some(terms) = &view.terms {
        lines.push(format!(
            "  role       {} {}",
            terms.role.kind, terms.role.name
        ));
        for subject in &terms.subjects {
            let name = output::line(&subject.name);
            lines.push(format!("  subject    {} {name}", subject.kind));
        }
        for (name, value) in [
            ("reason", terms.reason.as_deref()),
            ("ticket", terms.ticket.as_deref()),
            ("emergency", terms.emergency.then_some("yes")),
        ] {
            if let Some(value) = value {
                lines.push(format!("  {name:<10} {}", output::line(value)));
            }
        }
    }
    if let Some(status) = &view.status {
        lines.push(String::new());
        lines.push(title(&format!("Status: {}", status.phase)));
        let conditions = status.conditions.iter();
        lines.extend(conditions.map(|one| condition(context, one)));
        if let Some(until) = status.expires_at {
            lines.push(format!("    until {}", output::instant(until)));
        }
    }
    lines.push(String::new());
    lines.push(title("Rules that apply now"));
    for rule in rules {
        let mark = match rule.holds {
            Some(true) => yes(context),
            Some(false) => no(context),
            None => "?  ".to_owned(),
        };
        let message = output::line(&rule.message);
        lines.push(format!("  {mark} {}: {message}", rule.name));
    }
    lines.push(String::new());
    lines.push(title("Steps of the operator for such an object now"));
    match plan {
        Some(plan) => steps(plan, &mut lines),
        None => lines.push("  unknown, for the reasons above".to_owned()),
    }
    lines.push(source(&explanation.configuration));
    lines.join("\n") + "\n"
}

fn value(explanation: &Explanation) -> Result<Value> {
    let Explanation {
        view,
        requester,
        rules,
        plan,
        ..
    } = explanation;
    let rule =
        |rule: &Rule| json!({"rule": rule.name, "holds": rule.holds, "message": rule.message});
    Ok(json!({
        "kind": view.kind,
        "namespace": view.namespace,
        "name": view.name,
        "requester": requester_value(requester, &explanation.extra),
        "status": view.status.as_ref().map(to_value).transpose()?,
        "rules": rules.iter().map(rule).collect::<Vec<_>>(),
        "plan": plan.as_ref().map(to_value).transpose()?,
        "configuration": source_value(&explanation.configuration),
    }))
}
