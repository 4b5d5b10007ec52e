//! Validation of change tickets, and of the requirements of templates and access policies for them.

use oz_api::{MAX_TICKET, TicketConfig};
use regex::{Regex, RegexBuilder};

use super::{Found, Violation, name};

/// The maximum length of a pattern, in bytes.
const MAX_PATTERN: usize = 256;
/// The maximum size of a compiled pattern, in bytes.
const MAX_COMPILED: usize = 256 * 1024;

/// The reason why a text cannot be a change ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// The text is empty or too long.
    #[error("must be 1 to {MAX_TICKET} characters")]
    Length,
    /// The text has a character that is not allowed.
    #[error("must be printable ASCII without spaces")]
    Letters,
    /// The text would name another path in a URL.
    #[error("must have no part between slashes that is . or ..")]
    Dots,
}

/// The reason why a text is not a pattern of change tickets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is empty or too long.
    #[error("must be 1 to {MAX_PATTERN} bytes")]
    Length,
    /// The text is not a regular expression, or costs too much; the reason in one line.
    #[error("must be a regular expression: {0}")]
    Expression(String),
}

/// Returns the violations of the requirement for change tickets in the field at `place`.
#[must_use]
pub fn ticket_config(place: &str, config: &TicketConfig) -> Vec<Violation> {
    let mut found = Found::default();
    check(place, config, &mut found);
    found.0
}

/// Adds the violations of the requirements for change tickets in this field.
pub(super) fn check(field: &str, config: &TicketConfig, found: &mut Found) {
    if let Some(pattern) = &config.pattern {
        let field = format!("{field}.pattern");
        found.check(&field, pattern, matching(pattern));
    }
    if let Some(check) = &config.check {
        found.check(&format!("{field}.check"), check, name::dns_label(check));
    }
}

/// Checks that a text can be a change ticket: it becomes part of a URL, and appears in messages, audit
/// records and tables.
///
/// # Errors
/// The requirement that the text violates.
pub fn ticket(text: &str) -> Result<(), TicketError> {
    if text.is_empty() || text.len() > MAX_TICKET {
        return Err(TicketError::Length);
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TicketError::Letters);
    }
    if text
        .split(['/', '\\'])
        .any(|part| matches!(part, "." | ".."))
    {
        return Err(TicketError::Dots);
    }
    Ok(())
}

/// Returns the expression that must match a whole change ticket. The engine takes time in proportion to the
/// ticket, for each pattern.
///
/// # Errors
/// The reason why the pattern is not a regular expression, in one line.
pub fn matching(pattern: &str) -> Result<Regex, PatternError> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return Err(PatternError::Length);
    }
    // The pattern alone is compiled first: an incomplete pattern could close the group around it.
    compiled(pattern)?;
    compiled(&format!(r"\A(?:{pattern})\z"))
}

fn compiled(pattern: &str) -> Result<Regex, PatternError> {
    let built = RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .build();
    built.map_err(|error| {
        let text = error.to_string();
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        let why = last.map_or(text.as_str(), str::trim);
        let why = why.strip_prefix("error: ").unwrap_or(why);
        PatternError::Expression(why.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_one_word_that_leads_nowhere_else() {
        let long = "x".repeat(MAX_TICKET);
        for fine in [
            "INC-42", "#7", "=1+1", "a?b#c{d}", "..x", "x..", "a/b", "%2e%2e", &long,
        ] {
            assert_eq!(ticket(fine), Ok(()), "{fine}");
        }
        let longer = "x".repeat(MAX_TICKET + 1);
        let huge = "x".repeat(1 << 20);
        for wrong in [
            "",
            " ",
            "INC 42",
            "INC\n42",
            "INC\u{202e}42",
            "\u{e4}",
            "\0",
            ".",
            "..",
            "../x",
            "x/..",
            "x/../y",
            r"x\..\y",
            "a/./b",
            &longer,
            &huge,
        ] {
            assert!(ticket(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_pattern_is_about_the_whole_ticket() {
        for (pattern, text, holds) in [
            ("INC-[0-9]+", "INC-42", true),
            ("INC-[0-9]+", "INC-42x", false),
            ("INC-[0-9]+", "xINC-42", false),
            ("INC|CHG", "INCx", false),
            ("INC|INC-1", "INC-1", true),
            ("(?i)inc-1", "INC-1", true),
            ("(?m)^INC$", "INC\nx", false),
        ] {
            let found = matching(pattern).unwrap().is_match(text);
            assert_eq!(found, holds, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_that_is_none_or_costs_too_much_is_refused_in_one_line() {
        let long = "x".repeat(MAX_PATTERN + 1);
        for pattern in [
            "",
            "(",
            "a)|(b",
            "x{1000}{1000}",
            r"\w{999}{99}",
            r"(a)\1",
            "(?=x)",
            "(?x)a#",
            &long,
        ] {
            let why = matching(pattern).unwrap_err().to_string();
            assert!(!why.contains('\n') && why.len() < 300, "{pattern}: {why}");
        }
        // A pattern that takes exponential time in other engines takes no time here.
        assert!(
            !matching("(a+)+(a+)+b")
                .unwrap()
                .is_match(&"a".repeat(MAX_TICKET))
        );
    }
}
