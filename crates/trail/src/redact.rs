//! Redaction of command lines. Arguments contain passwords, so by default only the name of the program is recorded; if
//! a template requests the arguments, those that resemble a secret are masked.

/// The mask of a secret.
const MASK: &str = "***";
/// The maximum number of arguments that are recorded, and the maximum length of each, in bytes.
const MANY: usize = 64;
const LONG: usize = 256;

/// Words that, in a name, make the value of that name a secret.
const SECRET: [&str; 17] = [
    "pass",
    "pwd",
    "secret",
    "token",
    "apikey",
    "api-key",
    "api_key",
    "credential",
    "auth",
    "private",
    "access-key",
    "access_key",
    "accesskey",
    "cookie",
    "jwt",
    "bearer",
    "signature",
];
/// Prefixes of well-known secrets.
const BEGINNINGS: [&str; 10] = [
    "eyj",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xox",
    "akia",
    "asia",
    "sk-",
];
/// One-letter flags that a secret follows, in the same word or in the next: those of mysql, curl, ldapsearch,
/// smbclient, sshpass. In other programs these flags have other meanings; their values are masked as well.
const ATTACHED: [char; 5] = ['p', 'u', 'U', 'w', 'H'];
/// Flags that a secret follows in the next word only: redis-cli, curl.
const NEXT: [&str; 6] = ["-a", "-b", "-user", "--user", "-header", "--header"];
/// Characters that precede secrets: after names, in lists of all kinds, in parts of addresses.
const BOUNDARIES: &[char] = &[
    '=', ':', '&', ',', ';', '?', '{', '}', '[', ']', '(', ')', '|', '<', '>', '/', '@', '"', '\'',
    '`', '\\',
];
const QUOTES: [char; 3] = ['"', '\'', '`'];

/// Returns the command line `argv` in its recorded form: the name of the program, and with `record` its arguments with
/// secrets masked. An argument that resembles a secret and is not one is masked as well.
#[must_use]
pub fn arguments(argv: &[String], record: bool) -> Vec<String> {
    let Some((program, arguments)) = argv.split_first() else {
        return Vec::new();
    };
    let mut masking = Masking::default();
    if !record {
        // A user may pass the whole command line as one word.
        let program = program.trim_start();
        let program = program
            .split_once(char::is_whitespace)
            .map_or(program, |(program, _)| program);
        let mut kept = vec![short(&masking.argument(program))];
        match arguments.len() {
            0 => {}
            1 => kept.push("(1 argument)".to_owned()),
            several => kept.push(format!("({several} arguments)")),
        }
        return kept;
    }
    let mut kept: Vec<String> = argv
        .iter()
        .take(MANY + 1)
        .map(|argument| short(&masking.argument(argument)))
        .collect();
    if arguments.len() > MANY {
        kept.push(format!("(and {} more)", arguments.len() - MANY));
    }
    kept
}

/// The state of masking from word to word.
#[derive(Default)]
struct Masking {
    /// The next word is a secret.
    follows: bool,
}

impl Masking {
    /// Masks an argument. A script is a separate command line, so each of its words is checked.
    fn argument(&mut self, text: &str) -> String {
        if self.follows {
            self.follows = goes_on(text);
            return MASK.to_owned();
        }
        let mut kept = String::new();
        let mut rest = text;
        loop {
            let word = rest.trim_start();
            if word.len() < rest.len() {
                kept.push(' ');
            }
            if word.is_empty() {
                return kept;
            }
            rest = word;
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let word = &rest[..end];
            let secret = if self.follows {
                Some(0)
            } else {
                secret_in(word)
            };
            let Some(at) = secret else {
                kept.push_str(&without_passwords(word));
                self.follows = announces(word);
                rest = &rest[end..];
                continue;
            };
            // Masked up to the next space: a password may contain any character.
            let value = &rest[at..];
            let length = quoted(value).unwrap_or(end - at);
            kept.push_str(&without_passwords(&word[..at]));
            kept.push_str(MASK);
            let named = is_flag(word) && !word.contains('=') && announces(word);
            self.follows = named || goes_on(&value[..length]);
            rest = &value[length..];
        }
    }
}

/// Returns the position in a word at which a secret begins.
fn secret_in(word: &str) -> Option<usize> {
    let bare = word.trim_start_matches(QUOTES);
    let mut letters = bare.chars();
    if letters.next() == Some('-')
        && letters
            .next()
            .is_some_and(|letter| ATTACHED.contains(&letter))
        && letters.next().is_some()
    {
        return Some(word.len() - bare.len() + 2);
    }
    let (mut name, mut begins) = (0, true);
    for (at, letter) in word.char_indices() {
        if begins && is_known(&word[at..]) {
            return Some(at);
        }
        begins = BOUNDARIES.contains(&letter);
        if matches!(letter, '=' | ':') {
            let value = at + 1;
            if value < word.len() && is_secret(&word[name..at]) {
                return Some(value);
            }
            name = value;
        }
    }
    None
}

/// Checks whether the word after this one is a secret.
fn announces(word: &str) -> bool {
    let bare = word.trim_matches(QUOTES).trim_end_matches([':', '=']);
    let mut letters = bare.chars();
    let short = letters.next() == Some('-')
        && letters
            .next()
            .is_some_and(|letter| ATTACHED.contains(&letter))
        && letters.next().is_none();
    short || NEXT.contains(&bare) || bare.eq_ignore_ascii_case("basic") || is_secret(bare)
}

/// Checks whether a supposed secret only precedes the secret: `-p` after `sshpass`, `Bearer`, or a name.
fn goes_on(word: &str) -> bool {
    let names = is_flag(word) || word.ends_with([':', '=']);
    let scheme = ["bearer", "basic"];
    names && announces(word) || scheme.iter().any(|one| word.eq_ignore_ascii_case(one))
}

fn is_flag(word: &str) -> bool {
    word.starts_with('-')
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

fn is_known(text: &str) -> bool {
    BEGINNINGS.iter().any(|begin| {
        let start = text.get(..begin.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(begin))
    })
}

/// Returns the length of a quoted value, including its quotes; up to the end if they are never closed. A value with
/// backslashes before the first quote also has them before the last.
fn quoted(value: &str) -> Option<usize> {
    let bare = value.trim_start_matches('\\');
    let escaped = bare.len() < value.len();
    let quote = bare.chars().next().filter(|quote| QUOTES.contains(quote))?;
    let begin = value.len() - bare.len() + 1;
    let mut backslash = false;
    for (at, letter) in value[begin..].char_indices() {
        if letter == quote && (escaped || !backslash) {
            return Some(begin + at + 1);
        }
        backslash = letter == '\\' && !backslash;
    }
    Some(value.len())
}

/// Replaces each `scheme://user:password@host` in a word by `scheme://user:***@host`.
fn without_passwords(word: &str) -> String {
    let mut kept = String::new();
    let mut rest = word;
    while let Some((scheme, address)) = rest.split_once("://") {
        kept.push_str(scheme);
        kept.push_str("://");
        let host = address.find(['/', '?', '#']).unwrap_or(address.len());
        let (authority, path) = address.split_at(host);
        match authority.rsplit_once('@') {
            Some((who, host)) => {
                // An authority without a password may contain the secret as its name.
                if let Some((user, _)) = who.split_once(':') {
                    kept.push_str(user);
                    kept.push(':');
                }
                kept.push_str(MASK);
                kept.push('@');
                kept.push_str(host);
            }
            None => kept.push_str(authority),
        }
        rest = path;
    }
    kept.push_str(rest);
    kept
}

fn short(text: &str) -> String {
    if text.len() <= LONG {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(LONG)])
}
