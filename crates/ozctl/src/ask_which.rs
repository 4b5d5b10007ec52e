//! Asking at a terminal which of several templates is meant.

use std::io::{BufRead, IsTerminal, Write};

use oz_core::kinds::AccessTemplate;

use crate::context::Context;
use crate::failure::{Failure, Result};

/// The index of the template that somebody chooses; `None` if there is no terminal to ask at.
pub(crate) fn ask_which<T: AccessTemplate>(
    context: &Context,
    templates: &[&T],
) -> Option<Result<usize>> {
    let can_be_asked = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    can_be_asked.then(|| ask(context, templates))
}

fn ask<T: AccessTemplate>(context: &Context, templates: &[&T]) -> Result<usize> {
    context.say("Several templates let you in:");
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
        context.say_on(&format!("Which one (1-{})? ", templates.len()));
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Err(Failure::new("no template was chosen").next("name one with --template"));
        }
        let answer = line.trim();
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
