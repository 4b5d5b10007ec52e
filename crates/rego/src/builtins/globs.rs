//! `glob.*` and `regex.globs_match`.

use regorus::Value;

use super::bounds::{Excess, MAX_ITEMS};
use super::operand::{Answer, Failure, bounded, failed, kind, text, texts};
use super::pattern::build;

/// Implements `glob.match`.
pub(super) fn is_match(values: &[Value]) -> Answer {
    let glob = text(values, 0)?;
    let delimiters = match values.get(1) {
        Some(Value::Null) => String::new(),
        Some(Value::Array(items)) if items.is_empty() => ".".to_owned(),
        Some(Value::Array(_)) => delimiters(&texts(values, 1)?)?,
        other => {
            let got = other.map_or("nothing", kind);
            return failed(format!(
                "operand 2 must be one of {{array, null}} but got {got}"
            ));
        }
    };
    let value = text(values, 2)?;
    let pattern = Glob::pattern(glob, &delimiters)?;
    Ok(Value::from(build(&pattern)?.is_match(value)))
}

fn delimiters(texts: &[std::sync::Arc<str>]) -> Result<String, Failure> {
    let one = texts.iter().find(|text| text.chars().count() != 1);
    match one {
        Some(text) => failed(format!(
            "operand 2 must be array of characters but got {text:?}"
        )),
        None => Ok(texts.iter().map(|text| &**text).collect()),
    }
}

/// Implements `glob.quote_meta`.
pub(super) fn quote_meta(values: &[Value]) -> Answer {
    let mut quoted = String::new();
    for c in text(values, 0)?.chars() {
        if matches!(c, '*' | '?' | '\\' | '[' | ']' | '{' | '}') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    bounded(quoted)
}

/// The translation of a glob to a regular expression.
struct Glob<'a> {
    rest: &'a str,
    /// The class of all characters that are no delimiters.
    single: String,
    out: String,
    depth: usize,
}

impl<'a> Glob<'a> {
    fn pattern(glob: &'a str, delimiters: &str) -> Result<String, Failure> {
        let single = match delimiters {
            "" => ".".to_owned(),
            _ => format!("[^{}]", escaped(delimiters)),
        };
        let mut glob = Self {
            rest: glob,
            single,
            out: String::from("(?s)^"),
            depth: 0,
        };
        while let Some(c) = glob.next() {
            glob.read(c)?;
        }
        if glob.depth > 0 {
            return failed("unexpected end of input: a brace is not closed");
        }
        glob.out.push('$');
        Ok(glob.out)
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn read(&mut self, c: char) -> Result<(), Failure> {
        match c {
            '*' => match self.rest.strip_prefix('*') {
                Some(rest) => {
                    self.rest = rest;
                    self.out.push_str(".*");
                }
                None => self.out.push_str(&format!("{}*", self.single)),
            },
            '?' => self.out.push_str(&self.single.clone()),
            '[' => self.class()?,
            '{' => {
                self.depth += 1;
                self.out.push_str("(?:");
            }
            '}' if self.depth > 0 => {
                self.depth -= 1;
                self.out.push(')');
            }
            ',' if self.depth > 0 => self.out.push('|'),
            '\\' => {
                let c = self.next().map(String::from).unwrap_or_default();
                self.out.push_str(&escaped(&c));
            }
            c => self.out.push_str(&escaped(c.encode_utf8(&mut [0; 4]))),
        }
        Ok(())
    }

    /// Reads `[abc]`, `[a-z]`, and their negations with `!`.
    fn class(&mut self) -> Result<(), Failure> {
        self.out.push('[');
        if let Some(rest) = self.rest.strip_prefix('!') {
            self.rest = rest;
            self.out.push('^');
        }
        let mut members = Vec::new();
        loop {
            match self.next() {
                None => return failed("unexpected end of input: a bracket is not closed"),
                Some(']') => break,
                Some('\\') => members.extend(self.next()),
                Some(c) => members.push(c),
            }
        }
        match members.as_slice() {
            [] => return failed("a class is empty"),
            [from, '-', to] if from > to => return failed("hi character must be greater than lo"),
            [from, '-', to] => {
                let (from, to) = (escaped(&from.to_string()), escaped(&to.to_string()));
                self.out.push_str(&format!("{from}-{to}"));
            }
            members => self
                .out
                .push_str(&escaped(&members.iter().collect::<String>())),
        }
        self.out.push(']');
        Ok(())
    }
}

/// Escapes characters, within classes as well.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            out.push_str(&format!("\\x{{{:x}}}", c as u32));
        } else {
            out.push(c);
        }
    }
    out
}

/// A character of `regex.globs_match`, and how often it may appear.
struct Token {
    /// The ranges of characters; none for any character.
    ranges: Option<Vec<(char, char)>>,
    optional: bool,
    repeated: bool,
}

impl Token {
    fn meets(&self, other: &Self) -> bool {
        match (&self.ranges, &other.ranges) {
            (Some(a), Some(b)) => a.iter().any(|a| b.iter().any(|b| a.0 <= b.1 && b.0 <= a.1)),
            (Some(some), None) | (None, Some(some)) => !some.is_empty(),
            (None, None) => true,
        }
    }
}

/// Implements `regex.globs_match`: a text exists which both globs match.
pub(super) fn globs_match(values: &[Value]) -> Answer {
    let (a, b) = (tokens(text(values, 0)?)?, tokens(text(values, 1)?)?);
    if (a.len() + 1).saturating_mul(b.len() + 1) > MAX_ITEMS {
        return Err(Excess::Elements.into());
    }
    let width = b.len() + 1;
    let mut reached = vec![false; (a.len() + 1) * width];
    reached[0] = true;
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if !reached[i * width + j] {
                continue;
            }
            let (left, right) = (a.get(i), b.get(j));
            if left.is_some_and(|token| token.optional) {
                reached[(i + 1) * width + j] = true;
            }
            if right.is_some_and(|token| token.optional) {
                reached[i * width + j + 1] = true;
            }
            let (Some(left), Some(right)) = (left, right) else {
                continue;
            };
            if left.meets(right) {
                reached[(i + 1) * width + j + 1] = true;
                if left.repeated {
                    reached[i * width + j + 1] = true;
                }
                if right.repeated {
                    reached[(i + 1) * width + j] = true;
                }
            }
        }
    }
    Ok(Value::from(reached[a.len() * width + b.len()]))
}

/// Reads the tokens of a glob: characters, `.`, sets, each with `+` or `*`.
fn tokens(glob: &str) -> Result<Vec<Token>, Failure> {
    let mut chars = glob.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(c) = chars.next() {
        let ranges = match c {
            '.' => None,
            '[' => Some(set(&mut chars)?),
            ']' | '+' | '*' => return failed(format!("input:{glob}: unexpected {c}")),
            '\\' => match chars.next() {
                Some(c) => Some(vec![(c, c)]),
                None => return failed(format!("input:{glob}: ends with an escape character")),
            },
            c => Some(vec![(c, c)]),
        };
        let flag = chars.next_if(|c| matches!(c, '+' | '*'));
        tokens.push(Token {
            ranges,
            optional: flag == Some('*'),
            repeated: flag.is_some(),
        });
    }
    Ok(tokens)
}

fn set(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Vec<(char, char)>, Failure> {
    let mut ranges: Vec<(char, char)> = Vec::new();
    let mut previous = None;
    loop {
        let c = match chars.next() {
            None => return failed("found [ without matching ]"),
            Some(']') => return Ok(ranges),
            Some('-') => {
                let to = match chars.next() {
                    Some('\\') => chars.next(),
                    Some(']' | '-') => None,
                    to => to,
                };
                match (previous.take(), to) {
                    (Some(from), Some(to)) if from <= to => ranges.push((from, to)),
                    _ => return failed("invalid range in a set"),
                }
                continue;
            }
            Some('\\') => match chars.next() {
                Some(c) => c,
                None => return failed("input ends with an escape character"),
            },
            Some(c) => c,
        };
        ranges.push((c, c));
        previous = Some(c);
    }
}
