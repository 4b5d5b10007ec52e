//! The output of an explanation on the screen, and as JSON.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use oz_api::{RequestStatus, Requester};
use oz_core::access::decide::Rule;
use oz_core::access::extra::Extra;
use oz_core::controller::{Plan, Step, Which};
use oz_core::sessions::Sessions;
use oz_core::tickets::{self, Subject};
use serde_json::{Value, json};

use crate::context::{Context, Style};
use crate::explain::access::{Explanation, Planned};
use crate::explain::operator::Source;
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
    let mut lines = Vec::new();
    let title = |text: &str| context.paint_output(Style::Bold, text);
    lines.push(output::lines(&heading(explanation)));
    if let Some(status) = &explanation.status {
        lines.push(String::new());
        lines.push(title(&format!("Status: {}", status.phase)));
        decided(context, status, &mut lines);
    }
    lines.push(String::new());
    lines.push(title("Rules that apply now"));
    rules(context, explanation, &mut lines);
    lines.push(String::new());
    lines.push(title("Steps of the operator for such a request now"));
    match &explanation.plan {
        Planned::Unknown(why) => lines.push(format!("  unknown: {why}")),
        Planned::Plan(plan) => steps(plan, &mut lines),
    }
    lines.push(source(&explanation.configuration));
    lines.join("\n") + "\n"
}

fn heading(explanation: &Explanation) -> String {
    let ask = &explanation.ask;
    let mut text = match &explanation.name {
        Some(name) => format!("{} {name}", explanation.kind),
        None if explanation.kind.starts_with('E') => {
            format!("If an {} was made now", explanation.kind)
        }
        None => format!("If a {} was made now", explanation.kind),
    };
    let user = match explanation.requester.user.as_str() {
        "" => "unknown",
        user => user,
    };
    text.push_str(&format!(
        " in namespace {}\n  asked by   {user}",
        explanation.namespace
    ));
    if !explanation.requester.groups.is_empty() {
        text.push_str(&format!(" ({})", explanation.requester.groups.join(", ")));
    }
    for attribute in explanation.extra.iter().flat_map(attributes) {
        text.push_str(&format!("\n{attribute}"));
    }
    text.push_str(&format!("\n  template   {}", ask.template));
    for (name, value) in [
        ("duration", &ask.duration),
        ("pod", &ask.target_pod),
        ("container", &ask.container),
        ("reason", &ask.reason),
        ("extends", &ask.extends),
        ("ticket", &ask.ticket),
        ("emergency", &ask.emergency.then(|| "yes".to_owned())),
    ] {
        if let Some(value) = value {
            text.push_str(&format!("\n  {name:<10} {}", output::line(value)));
        }
    }
    text
}

/// Formats the extra attributes of a requester, one in each line.
pub(super) fn attributes(extra: &Extra) -> Vec<String> {
    let formatted = |(key, values): (&String, &Vec<String>)| {
        let attribute = format!("{key}: {}", values.join(", "));
        format!("  extra      {}", output::line(&attribute))
    };
    extra.iter().map(formatted).collect()
}

/// Returns a requester, with the extra attributes if there are any.
pub(super) fn requester_value(requester: &Requester, extra: &Extra) -> Value {
    let mut value = json!({"user": requester.user, "groups": requester.groups});
    if !extra.is_empty() {
        value["extra"] = json!(extra);
    }
    value
}

fn decided(context: &Context, status: &RequestStatus, lines: &mut Vec<String>) {
    let conditions = status.conditions.iter();
    lines.extend(conditions.map(|one| self::condition(context, one)));
    if let Some(pod) = &status.pod_name {
        lines.push(format!("    pod {pod}"));
    }
    if let Some(until) = status.expires_at {
        lines.push(format!("    until {}", instant(until)));
    }
}

pub(super) fn condition(context: &Context, condition: &Condition) -> String {
    let mark = match condition.status.as_str() {
        "True" => yes(context),
        "False" => no(context),
        _ => "?".to_owned(),
    };
    let said = output::line(&format!("{}: {}", condition.type_, condition.message));
    format!("  {mark} {said}")
}

fn rules(context: &Context, explanation: &Explanation, lines: &mut Vec<String>) {
    for violation in &explanation.request_violations {
        lines.push(format!("  {} request: {violation}", no(context)));
    }
    if !explanation.template_exists {
        lines.push(format!(
            "  {} template: there is no template {}",
            no(context),
            explanation.ask.template
        ));
        return;
    }
    for Rule { name, verdict } in &explanation.rules {
        lines.push(match verdict {
            Ok(why) => format!("  {} {name}: {}", yes(context), output::line(why)),
            Err(denial) => format!(
                "  {} {name}: {}",
                no(context),
                output::line(&denial.to_string())
            ),
        });
    }
    if let Some(verdict) = &explanation.emergency {
        let (mark, why) = match verdict {
            Ok(why) => (
                yes(context),
                format!("{why}, with --emergency and a --reason"),
            ),
            Err(denial) => (no(context), denial.to_string()),
        };
        lines.push(format!("  {mark} emergency: {}", output::line(&why)));
    }
    for violation in &explanation.template_violations {
        lines.push(format!("  {} template: {violation}", no(context)));
    }
    policies(context, explanation, lines);
    if let Some(window) = &explanation.window {
        lines.push(format!(
            "  {} duration: {}, until {}",
            yes(context),
            window.message(),
            instant(window.until)
        ));
    }
}

/// Adds the lines about access policies and about required approvals, if there are any.
fn policies(context: &Context, explanation: &Explanation, lines: &mut Vec<String>) {
    let policies = &explanation.policies;
    if let Some(why) = &policies.unknown {
        let why = output::line(why);
        lines.push(format!("  ?   policies: unknown: {why}"));
    }
    if let Err(why) = policies.permits(explanation.ask.asked()) {
        lines.push(format!(
            "  {} policies: {}",
            no(context),
            output::line(&why.to_string())
        ));
    } else if policies.judgement.is_some() {
        let effect = output::line(&policies.effect());
        lines.push(format!("  {} policies: {effect}", yes(context)));
    }
    if let Some(missing) = &policies.missing {
        lines.push(format!("  ?   approval: {}", output::line(missing)));
    }
}

pub(super) fn yes(context: &Context) -> String {
    context.paint_output(Style::Green, "yes")
}

pub(super) fn no(context: &Context) -> String {
    context.paint_output(Style::Red, "no ")
}

pub(super) fn steps(plan: &Plan, lines: &mut Vec<String>) {
    if plan.stages.is_empty() {
        lines.push("  nothing".to_owned());
    }
    for (number, step) in plan.stages.iter().flatten().enumerate() {
        lines.push(format!("  {}. {}", number + 1, step_text(step)));
    }
    if let Some(obstacle) = &plan.obstacle {
        lines.push(format!("  but: {}", obstacle.message));
    }
    if let Some(wake) = plan.wake {
        lines.push(format!("  and look again at {}", instant(wake)));
    }
}

/// Returns the kind and the name in a reference.
fn format_reference(reference: &Value) -> String {
    let words = [&reference["kind"], &reference["name"]];
    let words = words.iter().filter_map(|word| word.as_str());
    words.collect::<Vec<_>>().join(" ")
}

pub(super) fn step_text(step: &Step) -> String {
    match step {
        Step::Record(record) => {
            format!(
                "record {}: {}",
                record.action,
                output::line(&record.message)
            )
        }
        Step::Apply(child) => {
            let mut text = format!("create {} {}", child.resource.kind, child.object.name_any());
            if let Some(rules) = child.object.data["rules"].as_array() {
                for rule in rules {
                    text.push_str(&format!(
                        "\n       {} on {} {}",
                        words(&rule["verbs"]),
                        words(&rule["resources"]),
                        words(&rule["resourceNames"])
                    ));
                }
            }
            if let Some(subjects) = child.object.data["subjects"].as_array() {
                for subject in subjects {
                    text.push_str(&format!("\n       for {}", format_reference(subject)));
                }
            }
            text
        }
        Step::Delete(reference) => {
            format!(
                "delete {} {}",
                reference.resource.kind,
                child_name(reference)
            )
        }
        Step::Effect(effect) => match Sessions::try_from(effect) {
            Ok(sessions) => format!("end the processes in pod {}", sessions.pod),
            Err(_) if effect.port == tickets::PORT => match tickets::Ask::try_from(effect) {
                Ok(ask) => match &ask.subject {
                    Subject::Ticket(ticket) => {
                        format!(
                            "run check {} for ticket {}",
                            ask.check,
                            output::line(ticket)
                        )
                    }
                    Subject::Requester(person) => format!(
                        "run on-call check {} for {}",
                        ask.check,
                        output::line(&person.user)
                    ),
                },
                Err(_) => "run a check".to_owned(),
            },
            Err(_) => format!("ask the port {} for {}", effect.port, effect.key),
        },
        Step::Look(sought) => match &sought.which {
            Which::Name(name) => format!("check that {} {name} is deleted", sought.resource.kind),
            Which::Having(_, role) => format!(
                "check that no {} of others refers to {}",
                sought.resource.kind,
                format_reference(role)
            ),
        },
        Step::Hold(_) => "add oz's finalizer".to_owned(),
        Step::Adopt(child, _) => format!("adopt {} {}", child.resource.kind, child_name(child)),
        Step::Disown(child) => format!("release {} {}", child.resource.kind, child_name(child)),
        Step::Release(_) => "remove oz's finalizer".to_owned(),
        Step::DeleteSelf => "delete the request".to_owned(),
        Step::Own(owner) => format!("set {} {} as owner of the request", owner.kind, owner.name),
    }
}

/// Formats the source of the configuration by which the plan is made.
pub(super) fn source(source: &Source) -> String {
    let mut text = format!("  ({source}");
    if let Source::Defaults(_) = source {
        text.push_str("; give values that differ with --set");
    }
    output::line(&text) + ")"
}

pub(super) fn source_value(source: &Source) -> Value {
    match source {
        Source::Given => json!({"from": "given"}),
        Source::ConfigMap(name) => json!({"from": "configMap", "configMap": name}),
        Source::ConfigMapAlone { name, why } => {
            json!({"from": "configMap", "configMap": name, "why": why})
        }
        Source::Deployment(name) => json!({"from": "deployment", "deployment": name}),
        Source::Defaults(why) => json!({"from": "defaults", "why": why}),
    }
}

fn words(value: &Value) -> String {
    let words = value.as_array().into_iter().flatten();
    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
    words.join(", ")
}

fn value(explanation: &Explanation) -> Result<Value> {
    let rules: Vec<Value> = explanation
        .rules
        .iter()
        .map(|rule| match &rule.verdict {
            Ok(why) => json!({"rule": rule.name, "holds": true, "message": why}),
            Err(denial) => json!({
                "rule": rule.name, "holds": false, "reason": denial.reason,
                "message": denial.message,
            }),
        })
        .collect();
    let list = |violations: &[oz_core::validate::Violation]| -> Vec<Value> {
        violations
            .iter()
            .map(|one| json!({"field": one.field, "message": one.message}))
            .collect()
    };
    let (ask, policies) = (&explanation.ask, &explanation.policies);
    let none = Extra::new();
    let extra = explanation.extra.as_ref().unwrap_or(&none);
    Ok(json!({
        "kind": explanation.kind,
        "namespace": explanation.namespace,
        "name": explanation.name,
        "requester": requester_value(&explanation.requester, extra),
        "asked": {
            "template": ask.template, "duration": ask.duration, "targetPod": ask.target_pod,
            "container": ask.container, "reason": ask.reason, "extends": ask.extends,
            "ticket": ask.ticket, "emergency": ask.emergency,
        },
        "emergencyPossible": explanation.emergency.as_ref().map(Result::is_ok),
        "allowed": explanation.is_yes(),
        "status": explanation.status.as_ref().map(to_value).transpose()?,
        "rules": rules,
        "policies": {
            "applied": policies.judgement.as_ref().map(|it| &it.policies),
            "refused": policies.permits(ask.asked()).err().map(|why| why.to_string()),
            "unknown": policies.unknown,
        },
        "approval": policies.missing,
        "requestViolations": list(&explanation.request_violations),
        "templateViolations": list(&explanation.template_violations),
        "until": explanation.window.as_ref().map(|window| window.until.to_string()),
        "plan": match &explanation.plan {
            Planned::Plan(plan) => to_value(plan)?,
            Planned::Unknown(_) => Value::Null,
        },
        "configuration": source_value(&explanation.configuration),
        "planUnknown": match &explanation.plan {
            Planned::Plan(_) => None,
            Planned::Unknown(why) => Some(why.to_string()),
        },
    }))
}

/// Returns the name of a child, for a line of a plan.
fn child_name(child: &oz_core::controller::Reference) -> &str {
    child.name.as_deref().unwrap_or("without a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_requester_are_shown_if_there_are_any() {
        let requester = Requester {
            user: "alice".to_owned(),
            groups: vec!["devs".to_owned()],
            ..Requester::default()
        };
        let plain = json!({"user": "alice", "groups": ["devs"]});
        assert_eq!(requester_value(&requester, &Extra::new()), plain);
        assert!(attributes(&Extra::new()).is_empty());
        let values = vec!["mfa".to_owned(), "a\u{1b}[31m\nb".to_owned()];
        let extra = Extra::from([("acr".to_owned(), values.clone())]);
        let value = requester_value(&requester, &extra);
        assert_eq!(value["extra"], json!({"acr": values}));
        let lines = attributes(&extra);
        assert!(
            lines[0].starts_with("  extra      acr: mfa, a"),
            "{lines:?}"
        );
        assert!(!lines[0].contains(['\u{1b}', '\n']), "{lines:?}");
    }
}
