//! Syntax that OPA reads and the interpreter's parser does not, in a form that both read. All lines keep their
//! numbers.

use crate::bounds::MAX_BYTES;
use crate::tokens::{Kind, Token};

/// Returns a text with these changes; `None` if there are none. After the first changes that exceed the maximum size of a
/// policy, the rest of the text is not changed.
///
/// - A line that begins with `(` after an operand begins a statement, and gets a `;` in front.
/// - `-input.a` becomes `(0-input.a)`.
/// - `.5` becomes `0.5`.
/// - A further body of a rule, `p { … } { … }`, becomes a rule with the same head.
pub(crate) fn normalised(text: &str, tokens: &[Token<'_>]) -> Option<String> {
    let mut inserts: Vec<(usize, String)> = Vec::new();
    let mut rules = Rules::default();
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        let after_operand = before.is_some_and(Token::ends_operand);
        match token.text {
            "(" if depth > 0 && token.on_new_line && after_operand => {
                inserts.push((token.start, ";".to_owned()));
            }
            "." if !after_operand && is_fraction(tokens.get(at + 1)) => {
                inserts.push((token.start, "0".to_owned()));
            }
            "-" if !after_operand => {
                if let Some(end) = reference(tokens, at + 1) {
                    inserts.push((token.start, "(0".to_owned()));
                    inserts.push((end, ")".to_owned()));
                }
            }
            _ => {}
        }
        if token.kind != Kind::Sign {
            rules.token(token, before, depth);
            continue;
        }
        match token.text {
            "{" | "[" | "(" => {
                if depth == 0 {
                    rules.open(text, token, before, &mut inserts);
                }
                depth += 1;
            }
            "}" | "]" | ")" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    rules.closed = token.text == "}";
                }
            }
            _ => rules.closed = false,
        }
    }
    if inserts.is_empty() {
        return None;
    }
    inserts.sort_by_key(|(at, _)| *at);
    let mut out = String::with_capacity(text.len() + 64);
    let mut last = 0;
    for (at, insert) in inserts {
        out.push_str(&text[last..at]);
        out.push_str(&insert);
        last = at;
    }
    out.push_str(&text[last..]);
    Some(out)
}

fn is_fraction(next: Option<&Token<'_>>) -> bool {
    next.is_some_and(|next| next.kind == Kind::Number && !next.apart)
}

/// Returns the end of the reference that begins with a token, if one does.
fn reference(tokens: &[Token<'_>], at: usize) -> Option<usize> {
    let first = tokens.get(at)?;
    if first.kind != Kind::Word || !first.ends_operand() {
        return None;
    }
    let mut end = first.end();
    let mut depth = 0_usize;
    for token in &tokens[at + 1..] {
        if depth == 0
            && (token.apart || !(matches!(token.text, "." | "[" | "(") || token.after_dot))
        {
            break;
        }
        match token.text {
            "[" | "(" | "{" => depth += 1,
            "]" | ")" | "}" => depth = depth.checked_sub(1)?,
            _ => {}
        }
        end = token.end();
    }
    Some(end)
}

/// The rules of a module, outside of brackets.
#[derive(Default)]
struct Rules {
    /// The start of the current statement.
    start: usize,
    /// The start and the end of the head of the current rule, when it has a body.
    head: Option<(usize, usize)>,
    /// True if the last token closed braces.
    closed: bool,
    /// The number of bytes of the heads that were inserted.
    inserted: usize,
}

impl Rules {
    fn token(&mut self, token: &Token<'_>, before: Option<&Token<'_>>, depth: usize) {
        if depth > 0 {
            return;
        }
        let continues = !token.after_dot
            && matches!(
                token.text,
                "else" | "if" | "contains" | "in" | "with" | "as"
            );
        let after_operand = before.is_none_or(Token::ends_operand);
        if after_operand && !continues && (token.on_new_line || self.closed) {
            self.start = token.start;
            self.head = None;
        }
        self.closed = false;
    }

    /// Reads an opening brace: of a value, of a body, or of a further body.
    fn open(
        &mut self,
        text: &str,
        token: &Token<'_>,
        before: Option<&Token<'_>>,
        inserts: &mut Vec<(usize, String)>,
    ) {
        if token.text != "{" || self.inserted > MAX_BYTES {
            return;
        }
        let is_body = before.is_some_and(|before| before.text == "if" || before.ends_operand());
        match self.head {
            Some((start, end)) if self.closed && is_body => {
                let head = in_one_line(&text[start..end]) + " ";
                self.inserted += head.len();
                inserts.push((token.start, head));
            }
            _ if is_body => self.head = Some((self.start, token.start)),
            _ => {}
        }
        self.closed = false;
    }
}

/// Returns the tokens of a text in one line.
fn in_one_line(text: &str) -> String {
    let mut line = String::new();
    for token in crate::tokens::tokens(text) {
        if token.apart && !line.is_empty() {
            line.push(' ');
        }
        line.push_str(token.text);
    }
    line
}
