//! The reference page of the flags of oz's servers, from the declarations of their command lines. The commands of ozctl
//! have their own page, which `cargo xtask pages` writes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use regex::Regex;

/// The page.
pub(super) const PAGE: &str = "docs/reference/flags.md";
/// The sections: the heading, the file, and the structure with the flags.
const SECTIONS: [(&str, &str, &str); 7] = [
    ("All four programs", "crates/runtime/src/args.rs", "Common"),
    (
        "Configuration of all four programs",
        "crates/config/src/args.rs",
        "ConfigArgs",
    ),
    ("oz-operator", "crates/operator/src/args.rs", "Args"),
    (
        "oz-operator uninstall",
        "crates/operator/src/uninstall/mod.rs",
        "Options",
    ),
    ("oz-webhook", "crates/webhook/src/args.rs", "Args"),
    ("oz-gate", "crates/gate/src/args.rs", "Args"),
    ("oz-broker", "crates/broker/src/args.rs", "Args"),
];
const INTRODUCTION: &str = "\
<!-- Generated from the command lines of the programs by `cargo xtask generate`; do not edit. -->

# Flags of operator, webhook, gate and broker

The chart sets these flags; `extraArgs` of a component adds others. Everything else is in the
[configuration](configuration.md). A flag may also be set by the environment variable in its row, and the last value of a
repeated flag applies, except for `--set`. The flags of the original Oz that begin with `--zap-` are accepted without
effect. [ozctl](ozctl.md) has a separate page.
";

/// A flag.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flag {
    name: String,
    value: String,
    default: String,
    variable: String,
    meaning: String,
}

/// Returns the page.
pub(super) fn page(root: &Path) -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    for (heading, file, structure) in SECTIONS {
        let text = fs::read_to_string(root.join(file))
            .with_context(|| format!("failed to read {file}"))?;
        let flags = flags(&text, structure).with_context(|| file.to_owned())?;
        ensure!(!flags.is_empty(), "{file}: {structure} has no flags");
        write!(
            page,
            "\n## {heading}\n\n| flag | default | variable | meaning |\n|---|---|---|---|\n"
        )?;
        for Flag {
            name,
            value,
            default,
            variable,
            meaning,
        } in flags
        {
            writeln!(
                page,
                "| `--{name}{value}` | {default} | {variable} | {} |",
                meaning.replace('|', r"\|")
            )?;
        }
    }
    Ok(page)
}

/// Returns the flags of a structure of a command line, without those that another structure declares.
fn flags(text: &str, structure: &str) -> Result<Vec<Flag>> {
    let start = format!("struct {structure} {{");
    let body = text
        .split(&start)
        .nth(1)
        .with_context(|| format!("no {start}"))?;
    let body = body.split("\n}").next().unwrap_or_default();
    let field = Regex::new(r"^(?:pub(?:\([a-z]+\))? )?([a-z_]+): ")?;
    let (mut flags, mut meaning, mut attributes) = (Vec::new(), Vec::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            meaning.push(comment.trim());
        } else if let Some(field) = field.captures(line).filter(|_| is_complete(&attributes)) {
            flags.extend(flag(&field[1], &attributes, &meaning.join(" "))?);
            meaning.clear();
            attributes.clear();
        } else if !line.starts_with("//") {
            attributes.push_str(line);
            attributes.push(' ');
        }
    }
    Ok(flags)
}

/// Checks whether every bracket is closed.
fn is_complete(attributes: &str) -> bool {
    let count = |letter| attributes.matches(letter).count();
    count('[') == count(']') && count('(') == count(')')
}

/// Returns the flag of a field; `None` for a hidden one, and for another structure.
fn flag(field: &str, attributes: &str, meaning: &str) -> Result<Option<Flag>> {
    let is =
        |word: &str| Regex::new(&format!(r"\b{word}\b")).map(|found| found.is_match(attributes));
    if is("flatten")? || is("subcommand")? || attributes.contains("hide = true") {
        return Ok(None);
    }
    ensure!(is("long")?, "{field} is no flag");
    ensure!(!meaning.is_empty(), "{field} has no description");
    let text = |key: &str| -> Result<Option<String>> {
        let found = Regex::new(&format!(r#"\b{key} = "([^"]*)""#))?.captures(attributes);
        Ok(found.map(|found| found[1].to_owned()))
    };
    let code = |text: Option<String>| text.map_or_else(String::new, |text| format!("`{text}`"));
    let default = match text("default_value")? {
        Some(text) => Some(text),
        None => {
            match Regex::new(r"\bdefault_value(?:_t)? = ([A-Za-z0-9_:]+)")?.captures(attributes) {
                Some(constant) => Some(match &constant[1] {
                    "names::OPERATOR" => oz_api::names::OPERATOR.to_owned(),
                    "names::WEBHOOK" => oz_api::names::WEBHOOK.to_owned(),
                    other if other.contains("::") => {
                        bail!("the default {other} of {field} is unknown")
                    }
                    other => other.to_owned(),
                }),
                None => None,
            }
        }
    };
    Ok(Some(Flag {
        name: text("long")?.unwrap_or_else(|| field.replace('_', "-")),
        value: text("value_name")?.map_or_else(String::new, |value| format!("={value}")),
        default: code(default),
        variable: code(text("env")?),
        meaning: meaning.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_default_variable_and_meaning_and_hidden_ones_are_left_out() {
        let source = r#"
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    /// Namespace that oz runs in:
    /// its Secrets.
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "oz-system",
        value_name = "NAME"
    )]
    pub namespace: String,

    /// Compete.
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", value_name = "BOOL")]
    leader_elect: bool,

    #[arg(long, hide = true)]
    zap_devel: Option<bool>,

    #[command(subcommand)]
    task: Option<Task>,
}
"#;
        let of = |name: &str, value: &str, default: &str, variable: &str, meaning: &str| Flag {
            name: name.to_owned(),
            value: value.to_owned(),
            default: default.to_owned(),
            variable: variable.to_owned(),
            meaning: meaning.to_owned(),
        };
        assert_eq!(
            flags(source, "Args").unwrap(),
            [
                of(
                    "namespace",
                    "=NAME",
                    "`oz-system`",
                    "`POD_NAMESPACE`",
                    "Namespace that oz runs in: its Secrets."
                ),
                of("leader-elect", "=BOOL", "`false`", "", "Compete."),
            ]
        );
    }

    #[test]
    fn flag_without_description_is_an_error() {
        assert!(flags("struct Args {\n    #[arg(long)]\n    a: u32,\n}\n", "Args").is_err());
    }
}
