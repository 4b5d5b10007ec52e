//! What of a command line may be kept. Arguments carry passwords, so by default only the program's
//! name is; where a template asks for the arguments, what looks like a secret is masked.

/// What stands in place of a secret.
const MASK: &str = "***";
/// How many arguments are kept, and how long each may be.
const MANY: usize = 64;
const LONG: usize = 256;

/// Words in the name of a flag or variable that make its value a secret.
const SECRET: [&str; 13] = [
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
    "cookie",
];
/// How well-known secrets begin.
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

/// The command line `argv` as it may be kept: the program's name, and with `record` its arguments,
/// without what looks like a secret.
#[must_use]
pub fn arguments(argv: &[String], record: bool) -> Vec<String> {
    let Some((program, arguments)) = argv.split_first() else {
        return Vec::new();
    };
    let mut kept = vec![short(&masked(program))];
    if !record {
        match arguments.len() {
            0 => {}
            1 => kept.push("(1 argument)".to_owned()),
            several => kept.push(format!("({several} arguments)")),
        }
        return kept;
    }
    let mut secret_follows = false;
    for argument in arguments.iter().take(MANY) {
        if std::mem::take(&mut secret_follows) {
            kept.push(MASK.to_owned());
            continue;
        }
        // A script is a command line of its own.
        let words: Vec<&str> = argument.split(' ').collect();
        if words.len() > 1 {
            let mut line = Vec::with_capacity(words.len());
            for word in words {
                if std::mem::take(&mut secret_follows) {
                    line.push(MASK.to_owned());
                } else {
                    secret_follows = announces(word);
                    line.push(masked(word));
                }
            }
            secret_follows = false;
            kept.push(short(&line.join(" ")));
            continue;
        }
        secret_follows = announces(argument);
        kept.push(short(&masked(argument)));
    }
    if arguments.len() > MANY {
        kept.push(format!("(and {} more)", arguments.len() - MANY));
    }
    kept
}

/// Whether the word after this one is a secret.
fn announces(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'']);
    let name = word.strip_prefix('-');
    match name {
        // mysql -p takes its value in the same word; curl's and ldap's -u, -w in the next.
        Some("u" | "w" | "-user" | "H" | "-header") => true,
        Some(name) => !name.contains('=') && is_secret(name),
        None => word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic"),
    }
}

fn masked(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    let bare = lower.trim_start_matches(['"', '\'']);
    if BEGINNINGS.iter().any(|begin| bare.starts_with(begin)) {
        return MASK.to_owned();
    }
    if let Some(attached) = word.strip_prefix("-p")
        && !attached.is_empty()
        && !word.starts_with("--")
        && !attached.chars().all(|c| c.is_ascii_digit())
    {
        return format!("-p{MASK}");
    }
    for separator in ['=', ':'] {
        if let Some((name, value)) = word.split_once(separator)
            && !value.is_empty()
            && is_secret(name)
        {
            return format!("{name}{separator}{MASK}");
        }
    }
    without_password(word)
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

/// `scheme://user:***@host` of `scheme://user:password@host`.
fn without_password(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some(at) = rest[..host].rfind('@') else {
        return word.to_owned();
    };
    let user = rest[..at].split(':').next().unwrap_or_default();
    format!("{scheme}://{user}:{MASK}{}", &rest[at..])
}

fn short(text: &str) -> String {
    if text.len() <= LONG {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(LONG)])
}
