//! Bounds for command policies: what a template's author may write is checked before anything
//! parses it, since deep expressions overflow the stack of a parser and nested loops cost without
//! end. Pure text; what else a policy may cost is told from the parsed expression, by the webhook,
//! which evaluates it.

/// The longest policy, in bytes.
pub const MAX_BYTES: usize = 1024;
/// The deepest nesting of brackets.
pub const MAX_DEPTH: usize = 16;
/// The most operators in a row that take one side only, as in `!!!a`.
const MAX_UNARY: usize = 4;
/// The most arguments of a command that a policy is asked about.
pub const MAX_ARGUMENTS: usize = 1024;
/// The most bytes of a command that a policy is asked about.
pub const MAX_COMMAND: usize = 64 * 1024;

/// The most copies of the command that one value of a policy may hold.
pub const MAX_COPIES: usize = 4;
/// The most loops, one after another.
pub const MAX_LOOPS: usize = 8;
/// The most regular expressions.
pub const MAX_PATTERNS: usize = 8;

/// Macros that loop.
const LOOPS: [&str; 6] = ["all", "exists", "exists_one", "existsOne", "filter", "map"];

/// Why a policy is not even parsed, or not evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// Too long.
    #[error("must be at most {MAX_BYTES} bytes")]
    TooLarge,
    /// Too deep.
    #[error("must not nest brackets, conditions and signs deeper than {MAX_DEPTH}")]
    TooDeep,
    /// A loop in a loop.
    #[error("must not have a loop (all, exists, exists_one, filter) within another")]
    NestedLoops,
    /// Loop after loop.
    #[error("must not have more than {MAX_LOOPS} loops")]
    Loops,
    /// A loop that makes a list of what it likes.
    #[error("must not use map: say what is to hold of each, by all, exists or filter")]
    Map,
    /// Values that grow.
    #[error(
        "must not put more than {MAX_COPIES} copies of what it is asked about together, by + or in a list"
    )]
    Copies,
    /// A regular expression that is not known before the command is.
    #[error("must write regular expressions out, as in x.matches('^[a-z]+$')")]
    PatternNotWritten,
    /// Too many regular expressions.
    #[error("must not have more than {MAX_PATTERNS} regular expressions")]
    Patterns,
}

/// Checks that evaluating `policy` is bounded, whatever else it says.
///
/// # Errors
/// The bound that it exceeds.
pub fn bounded(policy: &str) -> Result<(), Excess> {
    if policy.len() > MAX_BYTES {
        return Err(Excess::TooLarge);
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

/// Whether a command, and the name of the container that it is for, are small enough to ask a policy
/// about them.
#[must_use]
pub fn is_bounded(argv: &[String], container: &str) -> bool {
    let bytes = argv.iter().map(String::len).sum::<usize>() + container.len();
    argv.len() <= MAX_ARGUMENTS && bytes <= MAX_COMMAND
}

#[derive(Default)]
struct Scan {
    word: String,
    /// For each open bracket, whether it is that of a loop.
    open: Vec<bool>,
    /// Conditions `? :` that follow one another nest to the right.
    conditions: usize,
    unary: usize,
    /// There was a space after the word.
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
    fn what_could_cost_without_end_is_not_even_parsed() {
        for (policy, excess) in [
            ("x".repeat(MAX_BYTES + 1), Excess::TooLarge),
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
