//! Bounds for command policies: the text of a template's author is checked before a parser reads it, since
//! deep expressions overflow the stack of a parser and nested loops have unbounded cost. Pure text; the
//! webhook, which evaluates a policy, computes its further cost from the parsed expression.

/// The maximum length of a policy, in bytes.
pub const MAX_BYTES: usize = 1024;
/// The maximum nesting of brackets.
pub const MAX_DEPTH: usize = 16;
/// The maximum number of successive unary operators, as in `!!!a`.
const MAX_UNARY: usize = 4;
/// The maximum number of arguments of a command for which a policy is evaluated.
pub const MAX_ARGUMENTS: usize = 1024;
/// The maximum size of a command for which a policy is evaluated, in bytes.
pub const MAX_COMMAND: usize = 64 * 1024;

/// The maximum number of copies of the command that one value of a policy may hold.
pub const MAX_COPIES: usize = 4;
/// The maximum number of successive loops.
pub const MAX_LOOPS: usize = 8;
/// The maximum number of regular expressions.
pub const MAX_PATTERNS: usize = 8;

/// Macros that loop.
const LOOPS: [&str; 6] = ["all", "exists", "exists_one", "existsOne", "filter", "map"];

/// The reason why a policy is not parsed, or not evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// The policy is too long.
    #[error("must be at most {most} bytes")]
    TooLarge {
        /// The maximum length, in bytes.
        most: usize,
    },
    /// The policy is nested too deeply.
    #[error("must not nest brackets, conditions and signs deeper than {MAX_DEPTH}")]
    TooDeep,
    /// A loop is nested in a loop.
    #[error("must not have a loop (all, exists, exists_one, filter) within another")]
    NestedLoops,
    /// The policy has too many loops.
    #[error("must not have more than {MAX_LOOPS} loops")]
    Loops,
    /// The policy has a loop that creates a list of arbitrary values.
    #[error("must not use map: write the condition with all, exists or filter")]
    Map,
    /// The policy has values that grow.
    #[error("must not combine more than {MAX_COPIES} copies of its variables, by + or in a list")]
    Copies,
    /// The policy has a regular expression that depends on the command.
    #[error("must contain regular expressions as literals, as in x.matches('^[a-z]+$')")]
    PatternNotWritten,
    /// The policy has too many regular expressions.
    #[error("must not have more than {MAX_PATTERNS} regular expressions")]
    Patterns,
}

/// Checks that the evaluation of `policy` is bounded, for any content.
///
/// # Errors
/// The bound that the policy exceeds.
pub fn bounded(policy: &str) -> Result<(), Excess> {
    bounded_within(policy, MAX_BYTES)
}

/// Does the same as [`bounded`], for a text of at most `most` bytes.
///
/// # Errors
/// The bound that the text exceeds.
pub fn bounded_within(policy: &str, most: usize) -> Result<(), Excess> {
    if policy.len() > most {
        return Err(Excess::TooLarge { most });
    }
    let mut scan = Scan::default();
    let mut letters = policy.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' | '\'' => {
                skip_string(letter, scan.is_raw(), &mut letters);
                scan.word.clear();
                scan.unary = 0;
            }
            '/' if letters.peek() == Some(&'/') => {
                // A comment lasts to the end of its line.
                for letter in letters.by_ref() {
                    if letter == '\n' {
                        break;
                    }
                }
            }
            _ => scan.take(letter)?,
        }
    }
    Ok(())
}

/// Checks whether a command, and the name of its container, are small enough for the evaluation of a policy.
#[must_use]
pub fn is_bounded(argv: &[String], container: &str) -> bool {
    let bytes = argv.iter().map(String::len).sum::<usize>() + container.len();
    argv.len() <= MAX_ARGUMENTS && bytes <= MAX_COMMAND
}

#[derive(Default)]
struct Scan {
    word: String,
    /// Whether each open bracket belongs to a loop.
    open: Vec<bool>,
    /// Number of successive conditions `? :`, which nest to the right.
    conditions: usize,
    unary: usize,
    /// Whether a space follows the word.
    spaced: bool,
}

impl Scan {
    fn is_raw(&self) -> bool {
        matches!(
            self.word.as_str(),
            "r" | "R" | "br" | "rb" | "bR" | "Rb" | "BR" | "RB" | "Br" | "rB"
        )
    }

    fn take(&mut self, letter: char) -> Result<(), Excess> {
        match letter {
            '(' | '[' | '{' => {
                let is_loop = letter == '(' && LOOPS.contains(&self.word.as_str());
                if is_loop && self.open.contains(&true) {
                    return Err(Excess::NestedLoops);
                }
                self.open.push(is_loop);
            }
            ')' | ']' | '}' => {
                self.open.pop();
            }
            '?' => self.conditions += 1,
            '!' | '-' => self.unary += 1,
            _ => {}
        }
        if self.open.len() + self.conditions > MAX_DEPTH || self.unary > MAX_UNARY {
            return Err(Excess::TooDeep);
        }
        if letter.is_alphanumeric() || letter == '_' {
            self.unary = 0;
            if std::mem::take(&mut self.spaced) {
                self.word.clear();
            }
            self.word.push(letter);
        } else if letter.is_whitespace() {
            self.spaced = true;
        } else {
            self.word.clear();
            if !matches!(letter, '!' | '-') {
                self.unary = 0;
            }
        }
        Ok(())
    }
}

fn skip_string(quote: char, raw: bool, letters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    // Three quotes begin a text that three quotes end.
    let mut rest = letters.clone();
    let triple = rest.next() == Some(quote) && rest.next() == Some(quote);
    if triple {
        letters.next();
        letters.next();
    }
    let mut row = 0;
    while let Some(letter) = letters.next() {
        if letter == '\\' && !raw {
            letters.next();
            row = 0;
        } else if letter == quote {
            row += 1;
            if !triple || row == 3 {
                return;
            }
        } else {
            row = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_policies_are_within_bounds() {
        for policy in [
            "true",
            "argv[0] == 'ls'",
            "argv.all(a, !a.contains('rm'))",
            "argv.exists(a, a == 'x') && argv.all(a, a != 'y')",
            "argv.filter(a, a.startsWith('-')).all(a, a in ['-l', '-a'])",
            "container == 'app' && !tty && (stdin ? argv[0] == 'tar' : true)",
            "argv[0] == '((((((((((((((((((((((((((((((((' // ((((((((((((((((((((((((((((((",
            "argv[0].matches(r'\\(\\(\\(') || argv[0] == \"it's all(map(\"",
            "size(argv) - 1 > -1",
            "'''it's ( fine ''' == argv[0]",
        ] {
            assert_eq!(bounded(policy), Ok(()), "{policy}");
        }
    }

    #[test]
    fn costly_connection_policy_is_rejected_before_parsing() {
        for (policy, excess) in [
            (
                "x".repeat(MAX_BYTES + 1),
                Excess::TooLarge { most: MAX_BYTES },
            ),
            ("(".repeat(500), Excess::TooDeep),
            ("[".repeat(MAX_DEPTH + 1), Excess::TooDeep),
            (format!("{}true", "!".repeat(900)), Excess::TooDeep),
            (format!("{}1 > 0", "-".repeat(900)), Excess::TooDeep),
            (format!("{}true", "! ".repeat(400)), Excess::TooDeep),
            (
                format!("true{}", " ? true : true".repeat(20)),
                Excess::TooDeep,
            ),
            (
                "argv.all(a, argv.all(b, a == b))".into(),
                Excess::NestedLoops,
            ),
            (
                "argv.all(a, [1].map (b, b) == [1])".into(),
                Excess::NestedLoops,
            ),
            (
                "argv.all(a, argv.existsOne(b, a == b))".into(),
                Excess::NestedLoops,
            ),
            (
                "argv.map(a, (argv.filter(b, true)))".into(),
                Excess::NestedLoops,
            ),
            (
                "'' == r'\\' && argv.all(a, argv.all(b, true))".into(),
                Excess::NestedLoops,
            ),
        ] {
            assert_eq!(bounded(&policy), Err(excess), "{policy}");
        }
    }

    #[test]
    fn a_command_that_is_too_large_is_not_put_to_a_policy() {
        let large = "x".repeat(MAX_COMMAND + 1);
        assert!(is_bounded(&vec![String::new(); MAX_ARGUMENTS], "app"));
        assert!(!is_bounded(&vec![String::new(); MAX_ARGUMENTS + 1], "app"));
        assert!(!is_bounded(std::slice::from_ref(&large), "app"));
        assert!(!is_bounded(&[], &large), "nobody checked that there is one");
    }
}
