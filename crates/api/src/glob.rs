//! Shell globs over names: `*` for any text, `?` for one character, `[a-z]` for one of several and `[^a-z]` for any
//! other, a backslash before a literal character. The syntax is that of Go's `path.Match`; since names have no `/`, `*`
//! and `?` match everything.

/// A parsed glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Any text, the empty one included.
    Any,
    /// Exactly one character.
    One,
    /// This character.
    Literal(char),
    /// A character inside these ranges, or outside all of them.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// The reason why a text is not a glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// The glob matches nothing.
    #[error("must not be empty: * is for any name")]
    Empty,
    /// A class is not closed, or is empty.
    #[error(
        "must be a name with *, ? and [...], each [ closed by a ] after at least one character"
    )]
    Class,
    /// A range has its limits in the wrong order.
    #[error("must have each range in [...] from the lower to the higher character")]
    Range,
    /// A backslash is the last character.
    #[error("must not end in a backslash")]
    Backslash,
}

impl std::str::FromStr for Glob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        if text.is_empty() {
            return Err(GlobError::Empty);
        }
        let mut pieces = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(next) = rest.next() {
            pieces.push(match next {
                '*' if pieces.last() == Some(&Piece::Any) => continue,
                '*' => Piece::Any,
                '?' => Piece::One,
                '\\' => Piece::Literal(rest.next().ok_or(GlobError::Backslash)?),
                '[' => class(&mut rest)?,
                other => Piece::Literal(other),
            });
        }
        Ok(Self(pieces))
    }
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Reads the rest of a class after `[`, including its `]`.
fn class(rest: &mut Rest<'_>) -> Result<Piece, GlobError> {
    let negated = rest.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        if !ranges.is_empty() && rest.next_if_eq(&']').is_some() {
            return Ok(Piece::Class { negated, ranges });
        }
        let low = class_character(rest)?;
        let high = match rest.next_if_eq(&'-') {
            Some(_) => class_character(rest)?,
            None => low,
        };
        if high < low {
            return Err(GlobError::Range);
        }
        ranges.push((low, high));
    }
}

fn class_character(rest: &mut Rest<'_>) -> Result<char, GlobError> {
    match rest.next() {
        None | Some('-' | ']') => Err(GlobError::Class),
        Some('\\') => rest.next().ok_or(GlobError::Class),
        Some(other) => Ok(other),
    }
}

impl Glob {
    /// Checks whether a name matches as a whole. The number of steps is at most the length of the glob times the length
    /// of the name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut piece, mut at) = (0, 0);
        // The position of the last `*`, and the end of its match.
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.0.get(piece) {
                Some(Piece::Any) => {
                    star = Some((piece, at));
                    piece += 1;
                }
                Some(one) if one.takes(name[at]) => {
                    piece += 1;
                    at += 1;
                }
                _ => {
                    let Some((stood, reached)) = star else {
                        return false;
                    };
                    star = Some((stood, reached + 1));
                    (piece, at) = (stood + 1, reached + 1);
                }
            }
        }
        self.0[piece..].iter().all(|piece| *piece == Piece::Any)
    }
}

impl Piece {
    fn takes(&self, next: char) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Literal(one) => *one == next,
            Self::Class { negated, ranges } => {
                let inside = ranges
                    .iter()
                    .any(|(low, high)| (*low..=*high).contains(&next));
                inside != *negated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn matches_what_go_matches() {
        // The cases of Go's own tests that do not concern '/'.
        for (glob, name, matches) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*c", "abc", true),
            ("a*", "a", true),
            ("a*", "abc", true),
            ("a*b*c*d*e*", "axbxcxdxe", true),
            ("a*b*c*d*e*", "axbxcxdxexxx", true),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^b-d]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "a\u{263a}b", true),
            ("a[^a]b", "a\u{263a}b", true),
            ("a???b", "a\u{263a}b", false),
            ("[a-\u{3b6}]*", "\u{3b1}", true),
            ("*[a-\u{3b6}]", "A", false),
            ("[\\]a]", "]", true),
            ("[\\-]", "-", true),
            ("[x\\-]", "x", true),
            ("[x\\-]", "z", false),
            ("[\\-x]", "-", true),
            ("*x", "xxx", true),
            ("claude-*", "claude-code", true),
            ("claude-*", "my-claude-code", false),
            ("claude", "claude-code", false),
            ("**", "", true),
            ("?", "", false),
        ] {
            let read: Glob = glob.parse().unwrap();
            assert_eq!(read.matches(name), matches, "{glob:?} on {name:?}");
        }
    }

    #[test]
    fn invalid_glob_is_rejected_with_cause() {
        for (text, error) in [
            ("", GlobError::Empty),
            ("[]a]", GlobError::Class),
            ("[-]", GlobError::Class),
            ("[x-]", GlobError::Class),
            ("[-x]", GlobError::Class),
            ("[a-b-c]", GlobError::Class),
            ("[", GlobError::Class),
            ("[^", GlobError::Class),
            ("[^bc", GlobError::Class),
            ("a[", GlobError::Class),
            ("[^]", GlobError::Class),
            ("[z-a]", GlobError::Range),
            ("a\\", GlobError::Backslash),
        ] {
            assert_eq!(text.parse::<Glob>(), Err(error), "{text:?}");
        }
    }

    /// Matches by the definition, regardless of the time that it takes.
    fn defined(pieces: &[Piece], name: &[char]) -> bool {
        match (pieces, name) {
            ([], []) => true,
            ([Piece::Any, rest @ ..], _) => {
                (0..=name.len()).any(|taken| defined(rest, &name[taken..]))
            }
            ([piece, rest @ ..], [next, others @ ..]) => {
                piece.takes(*next) && defined(rest, others)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matches_by_the_definition(text in "[ab*?]{1,8}|([ab]|\\*|\\[\\^?a\\]){1,6}", name in "[ab]{0,8}") {
            let glob: Glob = text.parse().unwrap();
            let letters: Vec<char> = name.chars().collect();
            prop_assert_eq!(glob.matches(&name), defined(&glob.0, &letters));
        }

        #[test]
        fn a_name_matches_itself_alone(name in "[a-z0-9.-]{1,20}", other in "[a-z0-9.-]{1,20}") {
            let glob: Glob = name.parse().unwrap();
            prop_assert!(glob.matches(&name));
            prop_assert_eq!(glob.matches(&other), name == other);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}", name in ".{0,40}") {
            let _ = text.parse::<Glob>().map(|glob| glob.matches(&name));
        }
    }

    #[test]
    fn stars_cost_no_more_than_their_number() {
        let glob: Glob = "*a".repeat(120).parse().unwrap();
        assert!(!glob.matches(&format!("{}b", "a".repeat(10_000))));
    }
}
