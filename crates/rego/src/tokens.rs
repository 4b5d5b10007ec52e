//! The tokens of a text, as far as this crate reads it itself before the interpreter's parser does.

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Number,
    Text,
    Sign,
}

/// A token, and its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) start: usize,
    /// The line, from 1.
    pub(crate) line: u32,
    /// The column, from 1, in bytes.
    pub(crate) column: u32,
    /// True if a blank, a line break or a comment precedes it.
    pub(crate) apart: bool,
    /// True if a line break precedes it.
    pub(crate) on_new_line: bool,
    /// True if it is a part of a reference, behind a dot.
    pub(crate) after_dot: bool,
}

impl Token<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Checks whether an operand ends with this token.
    pub(crate) fn ends_operand(&self) -> bool {
        match self.kind {
            Kind::Word => self.after_dot || !is_operator(self.text),
            Kind::Number | Kind::Text => true,
            Kind::Sign => matches!(self.text, ")" | "]" | "}"),
        }
    }
}

/// Checks whether an operand follows a word.
fn is_operator(word: &str) -> bool {
    matches!(
        word,
        "in" | "not"
            | "some"
            | "every"
            | "if"
            | "contains"
            | "else"
            | "default"
            | "with"
            | "as"
            | "import"
            | "package"
    )
}

/// Splits a text into tokens, without comments and blanks.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut reader = Reader {
        text,
        at: 0,
        line: 1,
        line_start: 0,
        apart: true,
        on_new_line: true,
        tokens: Vec::new(),
    };
    while let Some(c) = text[reader.at..].chars().next() {
        reader.read(c);
    }
    reader.tokens
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
    apart: bool,
    on_new_line: bool,
    tokens: Vec<Token<'a>>,
}

impl Reader<'_> {
    fn read(&mut self, c: char) {
        let rest = &self.text[self.at..];
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let (kind, len) = match c {
            '\n' => {
                self.at += 1;
                self.line += 1;
                self.line_start = self.at;
                self.apart = true;
                self.on_new_line = true;
                return;
            }
            c if c.is_whitespace() => {
                self.at += c.len_utf8();
                self.apart = true;
                return;
            }
            '#' => {
                self.at += rest.find('\n').unwrap_or(rest.len());
                self.apart = true;
                return;
            }
            '"' => (Kind::Text, quoted(rest)),
            '`' => {
                let end = rest[1..].find('`');
                (Kind::Text, end.map_or(rest.len(), |end| end + 2))
            }
            c if c.is_ascii_digit() => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.';
                (
                    Kind::Number,
                    rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
                )
            }
            c if is_part(c) => (Kind::Word, rest.find(|c| !is_part(c)).unwrap_or(rest.len())),
            c => {
                let pairs = [":=", "==", "!=", "<=", ">="];
                let pair = pairs.iter().any(|pair| rest.starts_with(pair));
                (Kind::Sign, if pair { 2 } else { c.len_utf8() })
            }
        };
        self.push(kind, len);
    }

    fn push(&mut self, kind: Kind, len: usize) {
        let text = &self.text[self.at..self.at + len];
        let after_dot = !self.apart && self.tokens.last().is_some_and(|last| last.text == ".");
        self.tokens.push(Token {
            kind,
            text,
            start: self.at,
            line: self.line,
            column: u32::try_from(self.at - self.line_start + 1).unwrap_or(u32::MAX),
            apart: self.apart,
            on_new_line: self.on_new_line,
            after_dot,
        });
        let breaks = text.bytes().filter(|byte| *byte == b'\n').count();
        self.line = self
            .line
            .saturating_add(u32::try_from(breaks).unwrap_or(u32::MAX));
        self.at += len;
        if let Some(last) = text.rfind('\n') {
            self.line_start = self.at - (text.len() - last - 1);
        }
        self.apart = false;
        self.on_new_line = false;
    }
}

/// Returns the length of a text in quotes; it ends with its line at the latest.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '\n' => return at,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}
