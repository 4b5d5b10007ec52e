//! Questions to the user at a terminal: the choice between several templates, and the reason for
//! access.

use std::io::{BufRead, IsTerminal};

use oz_core::kinds::AccessTemplate;

use crate::context::Context;
use crate::failure::{Failure, Result};

/// Returns the index of the template that the user chooses; `None` without a terminal.
pub(crate) fn ask_which<T: AccessTemplate>(
    context: &Context,
    templates: &[&T],
) -> Option<Result<usize>> {
    can_be_asked().then(|| which(context, templates))
}

/// Returns the line that the user types, which is `None` at the end of input; `None` without a terminal.
fn line(context: &Context, question: &str) -> Option<Result<Option<String>>> {
    can_be_asked().then(|| answer(context, question))
}

fn can_be_asked() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Reads a line and trims it; returns `None` at the end of input.
fn answer(context: &Context, question: &str) -> Result<Option<String>> {
    context.say_on(question);
    let mut line = String::new();
    let count = std::io::stdin().lock().read_line(&mut line)?;
    Ok((count > 0).then(|| line.trim().to_owned()))
}

fn which<T: AccessTemplate>(context: &Context, templates: &[&T]) -> Result<usize> {
    context.say("Several templates grant you access:");
    for (number, template) in templates.iter().enumerate() {
        let config = template.config();
        context.say(&format!(
            "  {}  {}  for {}, at most {}{}",
            number + 1,
            template.name(),
            config.default_duration,
            config.max_duration,
            if template.is_ready() {
                ""
            } else {
                "  (not ready)"
            },
        ));
    }
    loop {
        let question = format!("Which one (1-{})? ", templates.len());
        let Some(answer) = answer(context, &question)? else {
            return Err(Failure::new("no template was chosen").next("name one with --template"));
        };
        let number = answer
            .parse::<usize>()
            .ok()
            .and_then(|number| number.checked_sub(1));
        let at = number.filter(|&at| at < templates.len()).or_else(|| {
            let mut templates = templates.iter();
            templates.position(|template| template.name() == answer)
        });
        if let Some(at) = at {
            return Ok(at);
        }
    }
}

/// Returns the change ticket of the command line. If the template requires one, asks the user at a
/// terminal.
pub(crate) fn ticket<T: AccessTemplate>(
    context: &Context,
    template: &T,
    given: Option<&str>,
) -> Result<Option<String>> {
    if template.config().ticket.is_none() || given.is_some_and(|given| !given.is_empty()) {
        return Ok(given.map(ToOwned::to_owned));
    }
    let missing = || {
        let name = template.name();
        Failure::new(format!("template {name} requires a ticket")).next("name one with --ticket")
    };
    let ticket = line(context, "By which ticket? ").ok_or_else(missing)??;
    let ticket = ticket.filter(|ticket| !ticket.is_empty());
    ticket.ok_or_else(missing).map(Some)
}

/// Returns the reason of the command line. If the template requires one, asks the user at a
/// terminal.
pub(crate) fn reason<T: AccessTemplate>(
    context: &Context,
    template: &T,
    given: Option<&str>,
) -> Result<Option<String>> {
    let is_given = given.is_some_and(|given| !given.trim().is_empty());
    if !template.config().require_reason || is_given {
        return Ok(given.map(ToOwned::to_owned));
    }
    let missing = || {
        let name = template.name();
        Failure::new(format!("template {name} requires a reason"))
            .next("give a reason with --reason, such as --reason INC-42")
    };
    let reason = line(context, "Why is access needed? ").ok_or_else(missing)??;
    let reason = reason.filter(|reason| !reason.is_empty());
    reason.ok_or_else(missing).map(Some)
}
