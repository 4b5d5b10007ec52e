//! The fenced blocks of a guide: the input that it prescribes, and the expected output.
//!
//! - `console`: commands after a prompt, `$ ` or `alice$ `, each with its output. A command continues on the
//!   next line after `\`, in a here-document, and where the shell would request more input. Lines after
//!   `/ # ` or `~ # ` are typed into the session that the command has opened.
//! - `sh`: a script, which does not fail. Its output is ignored.
//! - `yaml`: a file, named by a comment in its first line. Without a name it is an excerpt, for reading only.
//! - `text`: for reading only.
//!
//! A block that begins with the line `# not tested: WHY` is left out.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

const NOT_TESTED: &str = "# not tested: ";
/// The prompts of a shell in a container.
const INNER_PROMPTS: [&str; 2] = ["/ # ", "~ # "];

/// A fenced block that requires an action.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line at which it begins.
    pub line: usize,
    /// The heading above it.
    pub section: String,
    /// The action.
    pub content: Content,
}

/// The action of a block.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// Commands, one after the other.
    Console(Vec<Step>),
    /// A script.
    Script(String),
    /// A file.
    File {
        /// The name, without a path.
        name: String,
        /// The content.
        text: String,
    },
    /// The reason for which the block is left out.
    NotTested(String),
}

/// A command and its output.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The user who types it, if that is not the reader.
    pub user: Option<String>,
    /// The command, with all its lines.
    pub command: String,
    /// The input to the session that it opens, and the output of the session.
    pub inner: Vec<Inner>,
    /// The printed lines.
    pub shows: Vec<String>,
}

/// An input to a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inner {
    /// The prompt of the session.
    pub prompt: String,
    /// The keys after the prompt.
    pub keys: String,
    /// The printed lines.
    pub shows: Vec<String>,
}

/// Returns the blocks of a guide with this text.
///
/// # Errors
/// When a block has no defined action.
pub fn blocks(text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut section = String::new();
    let (mut heading, mut fence) = (false, None);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                heading = true;
                section.clear();
            }
            Event::End(TagEnd::Heading(_)) => heading = false,
            Event::Text(piece) | Event::Code(piece) if heading => section.push_str(&piece),
            Event::Start(Tag::CodeBlock(kind)) => {
                let line = text.get(..range.start).unwrap_or_default().lines().count() + 1;
                fence = Some((line, kind, String::new()));
            }
            Event::Text(piece) => {
                if let Some((_, _, content)) = &mut fence {
                    content.push_str(&piece);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                let Some((line, kind, content)) = fence.take() else {
                    continue;
                };
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                let content = parsed(&language, &content)
                    .with_context(|| format!("the block in line {line}"))?;
                blocks.extend(content.map(|content| Block {
                    line,
                    section: section.clone(),
                    content,
                }));
            }
            _ => {}
        }
    }
    Ok(blocks)
}

/// Returns the action of a block; `None` if it is for reading only.
fn parsed(language: &str, text: &str) -> Result<Option<Content>> {
    if let Some(rest) = text.strip_prefix(NOT_TESTED) {
        let why = rest.lines().next().unwrap_or_default().trim();
        ensure!(!why.is_empty(), "it does not say why it is not tested");
        return Ok(Some(Content::NotTested(why.to_owned())));
    }
    Ok(match language {
        "console" => Some(Content::Console(steps(text)?)),
        "sh" => Some(Content::Script(text.to_owned())),
        "yaml" => {
            let name = text.lines().next().and_then(|line| line.strip_prefix("# "));
            let name = name.filter(|name| name.ends_with(".yaml") && !name.contains([' ', '/']));
            name.map(|name| Content::File {
                name: name.to_owned(),
                text: text.to_owned(),
            })
        }
        "text" => None,
        // The compiler tests these blocks.
        language if language.starts_with("rust") => None,
        other => bail!("unknown kind of block: {other:?}"),
    })
}

fn steps(text: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some((user, begun)) = prompt(line) {
            let mut command = begun.to_owned();
            while is_unfinished(&command)? {
                let next = lines
                    .next()
                    .with_context(|| format!("unfinished: {command}"))?;
                command.push('\n');
                command.push_str(next);
            }
            steps.push(Step {
                user: user.map(ToOwned::to_owned),
                command,
                ..Step::default()
            });
            continue;
        }
        let step = steps.last_mut().context("it begins without a command")?;
        let typed = INNER_PROMPTS
            .iter()
            .find_map(|prompt| Some((*prompt, line.strip_prefix(prompt)?)));
        if let Some((prompt, keys)) = typed {
            step.inner.push(Inner {
                prompt: prompt.to_owned(),
                keys: keys.to_owned(),
                shows: Vec::new(),
            });
        } else {
            let inner = step.inner.last_mut().map(|inner| &mut inner.shows);
            inner.unwrap_or(&mut step.shows).push(line.to_owned());
        }
    }
    ensure!(!steps.is_empty(), "it has no command");
    Ok(steps)
}

/// Returns the user and the command in this line, if it has a prompt.
fn prompt(line: &str) -> Option<(Option<&str>, &str)> {
    let (user, command) = line.split_once("$ ")?;
    let name = |user: &str| user.bytes().all(|byte| byte.is_ascii_lowercase());
    name(user).then_some(((!user.is_empty()).then_some(user), command))
}

/// Checks whether the shell would wait for the next line.
fn is_unfinished(command: &str) -> Result<bool> {
    let last = command.lines().next_back().unwrap_or_default();
    if last.ends_with('\\') {
        return Ok(true);
    }
    let read = Command::new("bash")
        .args(["-n", "-c", command])
        .stdin(Stdio::null())
        .output()
        .context("failed to run bash")?;
    // A here-document without its end causes only a warning.
    Ok(!read.status.success() || String::from_utf8_lossy(&read.stderr).contains("here-document"))
}

/// Returns the names of the users who type commands and are not the reader.
#[must_use]
pub fn users(blocks: &[Block]) -> BTreeSet<&str> {
    let steps = blocks.iter().flat_map(|block| match &block.content {
        Content::Console(steps) => steps.as_slice(),
        _ => &[],
    });
    steps.filter_map(|step| step.user.as_deref()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(user: Option<&str>, command: &str, shows: &[&str]) -> Step {
        Step {
            user: user.map(ToOwned::to_owned),
            command: command.to_owned(),
            inner: Vec::new(),
            shows: shows.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_block_of_commands_has_each_with_its_user_and_its_output() {
        let text = "# Guide\n\n## One\n\n```console\n$ one \\\n    two\nout\nalice$ cat <<END\n$ x\nEND\n\
                    $ x |\n  y\n```\n";
        let [block] = blocks(text).unwrap().try_into().unwrap();
        assert_eq!((block.line, block.section.as_str()), (5, "One"));
        let expected = vec![
            step(None, "one \\\n    two", &["out"]),
            step(Some("alice"), "cat <<END\n$ x\nEND", &[]),
            step(None, "x |\n  y", &[]),
        ];
        assert_eq!(users(&[block]), BTreeSet::from(["alice"]));
        let [block] = blocks(text).unwrap().try_into().unwrap();
        assert_eq!(block.content, Content::Console(expected));
    }

    #[test]
    fn session_input_is_separate_from_output() {
        let steps = steps("$ enter\nwelcome\n/ # hostname\nweb\n/ # exit\n").unwrap();
        assert_eq!(steps[0].shows, ["welcome"]);
        assert_eq!(steps[0].inner[0].keys, "hostname");
        assert_eq!(steps[0].inner[0].shows, ["web"]);
        assert_eq!(steps[0].inner[1].keys, "exit");
    }

    #[test]
    fn files_have_names_and_excerpts_have_none() {
        let text = "```yaml\n# a.yaml\nkind: A\n```\n\n1. in a list:\n\n   ```yaml\n   # b.yaml\n   \
                    b: 1\n   ```\n\n```yaml\nexcerpt: true\n```\n";
        let names: Vec<_> = blocks(text).unwrap();
        let [
            Content::File { name, .. },
            Content::File { name: second, text },
        ] = [&names[0].content, &names[1].content]
        else {
            panic!("{names:?}");
        };
        assert_eq!((name.as_str(), second.as_str()), ("a.yaml", "b.yaml"));
        assert_eq!(text, "# b.yaml\nb: 1\n");
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn untested_block_requires_reason_and_unknown_block_is_rejected() {
        let left_out = blocks("```console\n# not tested: takes a registry\n$ push\n```\n").unwrap();
        let why = "takes a registry".to_owned();
        assert_eq!(left_out[0].content, Content::NotTested(why));
        for refused in [
            "```console\n# not tested: \n$ push\n```\n",
            "```console\nno command\n```\n",
            "```\nplain\n```\n",
            "```ruby\nputs\n```\n",
        ] {
            assert!(blocks(refused).is_err(), "{refused}");
        }
    }
}
