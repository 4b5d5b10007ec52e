//! Regular expressions as Go reads them. The crate `regex` has the same syntax, with other classes: its `\w`, `\d`,
//! `\s` and `\b` are Unicode's, and Go's are ASCII's. A pattern is rewritten for it.
//! See <https://pkg.go.dev/regexp/syntax>.

use std::cell::RefCell;
use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};

use super::operand::{Failure, failed};

/// The maximum size of a compiled pattern, in bytes.
const MAX_COMPILED: usize = 4 << 20;
/// The maximum number of compiled patterns that a thread keeps.
const MAX_KEPT: usize = 64;
/// The maximum count of a repetition, as in Go.
const MAX_REPEAT: u32 = 1000;

thread_local! {
    static KEPT: RefCell<BTreeMap<String, Regex>> = const { RefCell::new(BTreeMap::new()) };
}

/// Compiles a pattern; the last ones are kept.
pub(super) fn compile(pattern: &str) -> Result<Regex, Failure> {
    let kept = KEPT.with_borrow(|kept| kept.get(pattern).cloned());
    if let Some(regex) = kept {
        return Ok(regex);
    }
    let regex = build(&translated(pattern)?)?;
    KEPT.with_borrow_mut(|kept| {
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(pattern.to_owned(), regex.clone());
    });
    Ok(regex)
}

/// Compiles a pattern in the syntax of the crate.
pub(super) fn build(pattern: &str) -> Result<Regex, Failure> {
    let mut builder = RegexBuilder::new(pattern);
    builder
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED);
    builder
        .build()
        .map_err(|error| Failure::Failed(format!("error parsing regexp: {error}")))
}

/// Returns a pattern of Go's in the syntax of the crate.
fn translated(pattern: &str) -> Result<String, Failure> {
    let mut translator = Translator {
        rest: pattern,
        out: String::new(),
    };
    while let Some(c) = translator.next() {
        match c {
            '\\' => translator.escape(false)?,
            '[' => translator.class()?,
            '(' => translator.group()?,
            '{' => translator.repetition()?,
            c => translator.out.push(c),
        }
    }
    Ok(translator.out)
}

struct Translator<'a> {
    rest: &'a str,
    out: String,
}

impl Translator<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn escape(&mut self, in_class: bool) -> Result<(), Failure> {
        let Some(c) = self.next() else {
            return failed("error parsing regexp: trailing backslash at end of expression");
        };
        let class = match c {
            'd' => "0-9",
            'D' => "^0-9",
            'w' => "0-9A-Za-z_",
            'W' => "^0-9A-Za-z_",
            's' => r"\t\n\f\r ",
            'S' => r"^\t\n\f\r ",
            'Q' => {
                let (quoted, rest) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
                self.out.push_str(&regex::escape(quoted));
                self.rest = rest;
                return Ok(());
            }
            'b' | 'B' if !in_class => {
                self.out
                    .push_str(if c == 'b' { r"(?-u:\b)" } else { r"(?-u:\B)" });
                return Ok(());
            }
            // An octal number; the crate has none.
            '0'..='7' if c == '0' || self.rest.starts_with(|c: char| ('0'..='7').contains(&c)) => {
                return self.octal(c);
            }
            'p' | 'P' | 'x' | 'a' | 'f' | 't' | 'n' | 'r' | 'v' => {
                self.out.push('\\');
                self.out.push(c);
                if matches!(c, 'p' | 'P' | 'x')
                    && self.rest.starts_with('{')
                    && let Some(end) = self.rest.find('}')
                {
                    self.out.push_str(&self.rest[..=end]);
                    self.rest = &self.rest[end + 1..];
                }
                return Ok(());
            }
            'A' | 'z' if !in_class => {
                self.out.push('\\');
                self.out.push(c);
                return Ok(());
            }
            c if c.is_ascii_punctuation() => {
                self.out
                    .push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
                return Ok(());
            }
            c => {
                return failed(format!(
                    "error parsing regexp: invalid escape sequence: `\\{c}`"
                ));
            }
        };
        self.out.push('[');
        self.out.push_str(class);
        self.out.push(']');
        Ok(())
    }

    fn octal(&mut self, first: char) -> Result<(), Failure> {
        let mut code = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else {
                break;
            };
            code = code * 8 + digit;
            self.next();
        }
        self.out.push_str(&format!("\\x{{{code:x}}}"));
        Ok(())
    }

    /// Reads a class. Operators of the crate that Go does not have, such as `[a&&b]`, are escaped.
    fn class(&mut self) -> Result<(), Failure> {
        self.out.push('[');
        if self.eat("^") {
            self.out.push('^');
        }
        if self.eat("]") {
            self.out.push_str(r"\]");
        }
        loop {
            if self.rest.starts_with("[:")
                && let Some((name, rest)) = self.rest.split_once(":]")
            {
                self.out.push_str(name);
                self.out.push_str(":]");
                self.rest = rest;
                continue;
            }
            match self.next() {
                None => return failed("error parsing regexp: missing closing ]"),
                Some(']') => {
                    self.out.push(']');
                    return Ok(());
                }
                Some('\\') => self.escape(true)?,
                Some('-')
                    if self.rest.starts_with(['-', ']']) || self.out.ends_with(['[', '^']) =>
                {
                    self.out.push_str(r"\-");
                }
                Some(c @ ('[' | '&' | '~')) => {
                    self.out.push('\\');
                    self.out.push(c);
                }
                Some(c) => self.out.push(c),
            }
        }
    }

    /// Reads the flags of a group: Go has `i`, `m`, `s` and `U`.
    fn group(&mut self) -> Result<(), Failure> {
        self.out.push('(');
        if !self.rest.starts_with('?') {
            return Ok(());
        }
        let end = self.rest.find([')', ':', '<']).unwrap_or(self.rest.len());
        let flags = &self.rest[1..end];
        if !flags
            .chars()
            .all(|c| matches!(c, 'i' | 'm' | 's' | 'U' | '-' | 'P'))
        {
            return failed("error parsing regexp: invalid or unsupported Perl syntax");
        }
        Ok(())
    }

    /// Reads a repetition; other braces are text in Go.
    fn repetition(&mut self) -> Result<(), Failure> {
        let inner = self.rest.split_once('}').map(|(inner, _)| inner);
        let counts: Option<Vec<u32>> = inner.and_then(|inner| {
            let (least, most) = inner.split_once(',').unwrap_or((inner, inner));
            let is_count =
                |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let valid = is_count(least) && (most.is_empty() || is_count(most));
            let counts = [least, most].into_iter().filter(|text| !text.is_empty());
            valid.then(|| {
                counts
                    .map(|text| text.parse().unwrap_or(u32::MAX))
                    .collect()
            })
        });
        match counts {
            None => self.out.push_str(r"\{"),
            Some(counts) if counts.iter().any(|count| *count > MAX_REPEAT) => {
                return failed("error parsing regexp: invalid repeat count");
            }
            Some(_) => self.out.push('{'),
        }
        Ok(())
    }
}
