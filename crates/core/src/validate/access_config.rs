//! Validation of `spec.accessConfig`, which both kinds of template share.

use oz_api::duration::GoDuration;
use oz_api::{AccessConfig, Bind, Operation, RecordingConfig, RecordingMode, Sessions};

use super::{Found, Rule, Violation, approval, debug, emergency, name, ticket};
use crate::access_command::AccessCommand;
use crate::connect::policy::bounded;

/// The shortest idle timeout: with less, a session ends while its user reads the output.
const SHORTEST_IDLE: GoDuration = GoDuration::from_secs(10);

/// The parsed texts of an `accessConfig`.
pub(super) struct Parsed {
    pub(super) default: GoDuration,
    pub(super) max: GoDuration,
    pub(super) command: AccessCommand,
}

pub(super) fn check(config: &AccessConfig, found: &mut Found) -> Option<Parsed> {
    principals(config, found);
    let durations = durations(config, found);
    let command = found.check(
        "spec.accessConfig.accessCommand",
        config.access_command.as_str(),
        AccessCommand::parse(&config.access_command),
    );
    operations(config, found);
    idle(config, found);
    for (index, container) in config.containers.iter().enumerate() {
        found.check(
            &format!("spec.accessConfig.containers[{index}]"),
            container,
            name::dns_label(container),
        );
    }
    if let Some(policy) = &config.command_policy {
        let field = "spec.accessConfig.commandPolicy";
        if policy.trim().is_empty() {
            found.add(field, "must not be empty: omit it to allow every command");
        } else if let Err(excess) = bounded(policy) {
            found.add(field, excess.to_string());
        }
    }
    takes_a_gate(config, found);
    debug::check(config, found);
    if let Some(config) = &config.ticket {
        ticket::check("spec.accessConfig.ticket", config, found);
    }
    if let Some(approval) = &config.approval {
        approval::check(approval, found);
    }
    if let Some(emergency) = &config.emergency {
        emergency::check("spec.accessConfig.emergency", emergency, found);
    }
    let ((default, max), command) = durations.zip(command)?;
    Some(Parsed {
        default,
        max,
        command,
    })
}

/// Checks that the template uses the gate if it has settings that only the gate can enforce.
fn takes_a_gate(config: &AccessConfig, found: &mut Found) {
    let records = config
        .recording
        .is_some_and(|one| one.mode != RecordingMode::Off);
    if records && config.sessions != Sessions::Gate {
        let message = "must be Off, or absent, unless spec.accessConfig.sessions is Gate: only the \
                       gate sees the data of a session";
        found.add("spec.accessConfig.recording.mode", message);
    }
    let debugs = config.operations.contains(&Operation::Debug);
    let requires = |one: RecordingConfig| one.mode == RecordingMode::Required;
    if debugs && config.recording.is_some_and(requires) {
        let message = "must not be Required with the operation Debug: a debug container runs its \
                       command even if no user attaches to it, and no session records that; use \
                       BestEffort, or another template for Debug";
        found.add("spec.accessConfig.recording.mode", message);
    }
    let Some(moderation) = &config.moderation else {
        return;
    };
    let field = "spec.accessConfig.moderation";
    if config.sessions != Sessions::Gate {
        let message = "must be omitted unless spec.accessConfig.sessions is Gate: only the gate \
            has viewers";
        found.add(field, message);
    }
    if debugs {
        let message = "must be omitted with the operation Debug: a debug container runs with and \
                       without a viewer";
        found.add(field, message);
    }
    if !(1..=8).contains(&moderation.viewers) {
        found.add(&format!("{field}.viewers"), "must be between 1 and 8");
    }
    if moderation.groups.is_empty() {
        let message = "must name at least one group: without a viewer no session can open";
        found.add(&format!("{field}.groups"), message);
    }
    for (index, group) in moderation.groups.iter().enumerate() {
        if group.trim().is_empty() {
            found.add(&format!("{field}.groups[{index}]"), "must not be empty");
        }
    }
}

/// Checks that the template allows at least one user or group, and that no name is empty.
fn principals(config: &AccessConfig, found: &mut Found) {
    for (field, names) in [
        ("allowedGroups", &config.allowed_groups),
        ("allowedUsers", &config.allowed_users),
    ] {
        for (index, name) in names.iter().enumerate() {
            if name.trim().is_empty() {
                found.add(
                    &format!("spec.accessConfig.{field}[{index}]"),
                    "must not be empty",
                );
            }
        }
    }
    if config.allowed_groups.is_empty() {
        if config.allowed_users.is_empty() {
            found.add(
                "spec.accessConfig.allowedGroups",
                "must name at least one group, unless allowedUsers names a user: otherwise no user \
                 may use the template",
            );
        } else if config.bind == Bind::Groups {
            found.add(
                "spec.accessConfig.bind",
                "must be Requester as long as allowedGroups is empty: otherwise the binding has no \
                    subject",
            );
        }
    }
}

fn durations(config: &AccessConfig, found: &mut Found) -> Option<(GoDuration, GoDuration)> {
    let mut positive = |field: &str, text: &str| {
        let duration = found.duration(field, text)?;
        let result = if duration.is_positive() {
            Ok(duration)
        } else {
            Err("must be greater than zero")
        };
        found.check(field, text, result)
    };
    let field = "spec.accessConfig.defaultDuration";
    let default = positive(field, &config.default_duration);
    let max = positive("spec.accessConfig.maxDuration", &config.max_duration);
    let (default, max) = default.zip(max)?;
    if default > max {
        let message = "must not be greater than maxDuration";
        found.0.push(Violation {
            rule: Rule::DefaultWithinMax,
            ..Violation::of_value(field, message, &config.default_duration)
        });
    }
    Some((default, max))
}

/// Checks the idle timeout. Only the gate detects whether a session is used.
fn idle(config: &AccessConfig, found: &mut Found) {
    let field = "spec.accessConfig.idleTimeout";
    let Some(text) = &config.idle_timeout else {
        return;
    };
    let Some(idle) = found.duration(field, text) else {
        return;
    };
    if idle < SHORTEST_IDLE {
        let wrong = format!("must be at least {SHORTEST_IDLE}");
        found.check(field, text, Err::<(), _>(wrong));
    }
    if config.sessions != Sessions::Gate {
        let wrong = "must be omitted unless sessions is Gate: only the gate detects whether a \
            session is used";
        found.check(field, text, Err::<(), _>(wrong));
    }
}

fn operations(config: &AccessConfig, found: &mut Found) {
    let field = "spec.accessConfig.operations";
    if config.operations.is_empty() {
        found.add(field, "must name at least one operation");
    }
    for (index, operation) in config.operations.iter().enumerate() {
        if config.operations[..index].contains(operation) {
            found.check(
                &format!("{field}[{index}]"),
                operation.to_string(),
                Err::<(), _>("must not be named twice"),
            );
        }
    }
}
