//! Bounds of a text before it is parsed. The parser recurses with the nesting of its input, reads the first element in
//! a bracket twice, and all later steps recurse over the tree: a deeply nested text would overflow a stack, or be read
//! for hours. Therefore a text is measured here, in one walk without recursion.

use crate::builtins::has_large_exponent;
use crate::error::{CompileError, CompileErrors, Reason};

/// The maximum number of modules of one policy.
pub const MAX_MODULES: usize = 256;
/// The maximum size of all modules together, in bytes. A ConfigMap holds no more.
pub const MAX_BYTES: usize = 1 << 20;
/// The maximum depth of one expression: brackets, operators in a row, steps of a reference.
pub const MAX_DEPTH: usize = 100;
/// The maximum depth of all statements together: evaluation may recurse to the same depth, rule by rule.
pub(crate) const MAX_LEVELS: usize = 10_000;
/// The maximum number of tokens that the parser reads, including repeated reads: the first element in a bracket is read
/// twice.
pub(crate) const MAX_TOKENS_READ: u64 = 500_000;

/// Rejects modules that cannot be read within the stack and in bounded time.
pub(crate) fn check(modules: &[(String, String)]) -> Result<(), CompileErrors> {
    let whole = |message: String| CompileErrors::one(CompileError::whole(Reason::Size, message));
    if modules.is_empty() {
        return Err(whole("a policy has one module at least".to_owned()));
    }
    if modules.len() > MAX_MODULES {
        let count = modules.len();
        return Err(whole(format!(
            "{count} modules: a policy has {MAX_MODULES} at most"
        )));
    }
    let bytes: usize = modules.iter().map(|(_, text)| text.len()).sum();
    if bytes > MAX_BYTES {
        return Err(whole(format!(
            "{bytes} bytes: a policy has {MAX_BYTES} at most, all modules together"
        )));
    }
    let mut levels = 0;
    let mut read = 0;
    for (name, text) in modules {
        let mut walk = Walk::new(name, text);
        walk.run().map_err(CompileErrors::one)?;
        levels += walk.levels;
        read += walk.read;
    }
    if levels > MAX_LEVELS {
        return Err(whole(format!(
            "the policy is too large: its statements have {levels} levels together, {MAX_LEVELS} at most"
        )));
    }
    if read > MAX_TOKENS_READ {
        return Err(whole(
            "too much is nested too deeply; give parts rules of their own".to_owned(),
        ));
    }
    Ok(())
}

/// The kind of the previous token, as far as it determines the meaning of the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Operand,
    Other,
}

struct Walk<'a> {
    name: &'a str,
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
    before: Before,
    /// The number of operators and steps in a row, for each open bracket and for the text outside of brackets.
    rows: Vec<usize>,
    /// The number of times that the parser reads the current element, for each open bracket and for the text outside;
    /// and the number for elements behind the first.
    reads: Vec<(u64, u64)>,
    depth: usize,
    /// The maximum depth of the current statement.
    deepest: usize,
    levels: usize,
    read: u64,
}

impl<'a> Walk<'a> {
    fn new(name: &'a str, text: &'a str) -> Self {
        Self {
            name,
            text,
            at: 0,
            line: 1,
            line_start: 0,
            before: Before::Other,
            rows: vec![0],
            reads: vec![(1, 1)],
            depth: 0,
            deepest: 0,
            levels: 0,
            read: 0,
        }
    }

    fn run(&mut self) -> Result<(), CompileError> {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    self.line_start = self.at;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'#' => self.skip(|byte| byte != b'\n'),
                b'"' => self.string(),
                b'`' => self.raw_string(),
                b'(' | b'[' | b'{' => {
                    let (outer, _) = self.reads.last().copied().unwrap_or((1, 1));
                    let mut first = outer;
                    if self.before == Before::Operand {
                        self.step()?;
                    }
                    // Calls, and references except over two lines, are read once.
                    if byte == b'{' || (byte == b'[' && !self.follows_directly()) {
                        first = outer.saturating_mul(2);
                    }
                    self.reads.push((first, outer));
                    self.rows.push(0);
                    self.deeper()?;
                    self.at += 1;
                    self.before = Before::Other;
                }
                b')' | b']' | b'}' => self.close(),
                b',' | b';' | b':' => {
                    if byte != b':' {
                        self.next_element();
                    }
                    self.at += 1;
                    self.begin();
                    self.before = Before::Other;
                }
                byte if byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii() => {
                    self.word()?;
                }
                _ => self.operator()?,
            }
        }
        self.levels += self.deepest;
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn skip(&mut self, is_part: impl Fn(u8) -> bool) {
        while self.peek(0).is_some_and(&is_part) {
            self.at += 1;
        }
    }

    fn string(&mut self) {
        self.operand();
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            match byte {
                // A string ends with its line at the latest; the parser reports it.
                b'\n' => return,
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return;
                }
                _ => self.at += 1,
            }
        }
    }

    fn raw_string(&mut self) {
        self.operand();
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.line_start = self.at;
                }
                b'`' => return,
                _ => {}
            }
        }
    }

    fn word(&mut self) -> Result<(), CompileError> {
        let start = self.at;
        self.skip(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii());
        if self.text.as_bytes()[start].is_ascii_digit() {
            return self.number(start);
        }
        if &self.text[start..self.at] == "in" {
            self.step()?;
            self.before = Before::Other;
        } else {
            self.operand();
        }
        Ok(())
    }

    fn number(&mut self, start: usize) -> Result<(), CompileError> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
        self.skip(is_part);
        let exponent_follows = self.text[start..self.at].ends_with(['e', 'E']);
        if exponent_follows && matches!(self.peek(0), Some(b'+' | b'-')) {
            self.at += 1;
            self.skip(is_part);
        }
        if has_large_exponent(&self.text[start..self.at]) {
            return Err(self.error("the exponent of a number has three digits at most".to_owned()));
        }
        self.operand();
        Ok(())
    }

    fn operator(&mut self) -> Result<(), CompileError> {
        let pair = (self.peek(0), self.peek(1));
        if let (Some(b'<' | b'>' | b'=' | b'!'), Some(b'=')) = pair {
            self.at += 1;
        } else if let Some(b'=') = pair.0 {
            self.at += 1;
            self.begin();
            self.before = Before::Other;
            return Ok(());
        }
        self.at += 1;
        self.step()?;
        self.before = Before::Other;
        Ok(())
    }

    /// Reads an operand. Two adjacent operands are two expressions.
    fn operand(&mut self) {
        self.token();
        if self.before == Before::Operand {
            self.next_element();
            self.begin();
        }
        self.before = Before::Operand;
    }

    /// Begins an element that is not the first in its bracket: the parser reads it once.
    fn next_element(&mut self) {
        if let Some((current, behind)) = self.reads.last_mut() {
            *current = *behind;
        }
    }

    /// Begins an expression in the open brackets.
    fn begin(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            self.depth -= std::mem::take(row);
        }
        if self.rows.len() == 1 {
            self.levels += std::mem::take(&mut self.deepest);
        }
    }

    fn step(&mut self) -> Result<(), CompileError> {
        if let Some(row) = self.rows.last_mut() {
            *row += 1;
        }
        self.deeper()
    }

    fn deeper(&mut self) -> Result<(), CompileError> {
        self.token();
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nested too deeply: {MAX_DEPTH} levels at most")));
        }
        Ok(())
    }

    fn error(&self, message: String) -> CompileError {
        CompileError {
            file: self.name.to_owned(),
            line: self.line,
            column: u32::try_from(self.at - self.line_start + 1).unwrap_or(u32::MAX),
            reason: Reason::Size,
            message,
        }
    }

    fn close(&mut self) {
        self.token();
        // The parser reports a surplus bracket.
        if self.rows.len() > 1
            && let Some(row) = self.rows.pop()
        {
            self.depth -= row + 1;
            self.reads.pop();
        }
        self.at += 1;
        self.before = Before::Operand;
    }

    /// Checks whether the next byte follows an operand without a blank.
    fn follows_directly(&self) -> bool {
        let before = self
            .at
            .checked_sub(1)
            .and_then(|at| self.text.as_bytes().get(at));
        self.before == Before::Operand && before.is_some_and(|byte| !byte.is_ascii_whitespace())
    }

    fn token(&mut self) {
        let times = self.reads.last().map_or(1, |(current, _)| *current);
        self.read = self.read.saturating_add(times.min(MAX_TOKENS_READ + 1));
    }
}
