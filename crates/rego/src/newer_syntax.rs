//! Syntax of OPA 1.6 and later, which the interpreter does not have: it is refused by name.

use crate::error::{CompileError, Reason};
use crate::language::Language;
use crate::tokens::{Kind, Token};

/// The words that OPA accepts as parts of references.
const KEYWORDS: [&str; 17] = [
    "as", "contains", "default", "else", "every", "false", "if", "import", "in", "not", "null",
    "package", "some", "true", "with", "and", "or",
];

/// Finds syntax that the interpreter could misread.
pub(crate) fn refused(file: &str, tokens: &[Token<'_>]) -> Vec<CompileError> {
    let mut errors = Vec::new();
    let wildcard = imports_all_keywords(tokens);
    for (at, token) in tokens.iter().enumerate() {
        let text = |ahead: usize| tokens.get(at + ahead).map_or("", |token| token.text);
        let new_body = wildcard && (token.text, text(1)) == ("not", "{");
        let message = match (token.text, text(1)) {
            ("$", _) if is_template(tokens.get(at + 1)) => {
                "`$\"…\"` is not supported: write `sprintf`"
            }
            ("import", "rego") if text(3) == "v2" => {
                "`import rego.v2` is not supported: write the policy in the language of OPA 1.0, without this import"
            }
            ("import", "future") if text(3) == "keywords" && text(4) == "." => match text(5) {
                "not" => NOT_BODY,
                "and" => AND,
                "or" => OR,
                _ => continue,
            },
            _ if new_body => NOT_BODY,
            _ => continue,
        };
        errors.push(error(file, token, message));
    }
    errors
}

const NOT_BODY: &str =
    "`not { … }` is not supported: write a rule for the body, and `not` in front of its name";
const AND: &str = "`and` is not supported: write the expressions as separate statements";
const OR: &str =
    "`or` is not supported: write a rule with two bodies, or a helper rule for each alternative";

fn is_template(next: Option<&Token<'_>>) -> bool {
    next.is_some_and(|next| next.kind == Kind::Text && !next.apart)
}

/// Checks whether a module has `import future.keywords`, which brings the newest keywords as well.
pub(crate) fn imports_all_keywords(tokens: &[Token<'_>]) -> bool {
    tokens.windows(4).enumerate().any(|(at, four)| {
        let words = [four[0].text, four[1].text, four[2].text, four[3].text];
        let ends = tokens.get(at + 4).is_none_or(|next| next.text != ".");
        words == ["import", "future", ".", "keywords"] && ends
    })
}

/// Finds the syntax that explains why a text could not be read, in that line or before it.
pub(crate) fn explained(
    file: &str,
    tokens: &[Token<'_>],
    language: Language,
) -> Option<CompileError> {
    tokens.iter().enumerate().find_map(|(at, token)| {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let next = tokens.get(at + 1);
        if token.kind != Kind::Word || !KEYWORDS.contains(&token.text) || is_import(tokens, at) {
            return None;
        }
        let before_part = next.is_some_and(|next| {
            !next.apart && (next.text == "." || (next.text == "[" && token.text != "in"))
        });
        let operands = before.is_some_and(Token::ends_operand) && next.is_some();
        match token.text {
            _ if token.after_dot || before_part => {
                let message = format!(
                    "the keyword `{0}` in a reference is not supported: write `[\"{0}\"]` in place of `.{0}`, and \
                     another name for a rule",
                    token.text
                );
                Some(error(file, token, &message))
            }
            "and" if operands => Some(error(file, token, AND)),
            "or" if operands => Some(error(file, token, OR)),
            "not" if next.is_some_and(|next| next.text == "{") && language == Language::V1 => {
                Some(error(file, token, NOT_BODY))
            }
            _ => None,
        }
    })
}

/// Checks whether a token is the last of `import future.keywords.in` or the like.
fn is_import(tokens: &[Token<'_>], at: usize) -> bool {
    let start = at.checked_sub(4).and_then(|start| tokens.get(start..at));
    start.is_some_and(|before| before[0].text == "future" && before[2].text == "keywords")
}

fn error(file: &str, token: &Token<'_>, message: &str) -> CompileError {
    CompileError {
        file: file.to_owned(),
        line: token.line,
        column: token.column,
        reason: Reason::NotSupported,
        message: message.to_owned(),
    }
}
