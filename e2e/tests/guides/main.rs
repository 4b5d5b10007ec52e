//! The guides, followed command by command as they are written, on a real node: a command that fails, or that prints
//! another text than the guide shows, fails the test. The tests require root and Debian packages.

mod location;
mod shell;
mod shown;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use oz_e2e::Terminal;
use oz_e2e::guides::document::{self, Block, Content, Step};
use oz_e2e::guides::{ON_A_CLUSTER, QUICKSTART, read, read_section};
use oz_testkit::Node;

use location::Location;
use shell::Shell;
use shown::is_shown;

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_does_what_it_says() -> Result<()> {
    if !Node::Real.is_possible()? {
        return Ok(());
    }
    let place = Location::without_a_cluster()?;
    let mut reader = Reader::new(QUICKSTART, "admin", &place);
    reader.follow(&read(QUICKSTART)?).await?;
    ensure!(reader.wrong.is_empty(), "{}", reader.wrong.join("\n\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn guides_work_as_described_on_cluster() -> Result<()> {
    if !Node::Real.is_possible()? {
        return Ok(());
    }
    let place = Location::with_a_cluster().await?;
    let mut wrong = Vec::new();
    for (guide, section, user) in ON_A_CLUSTER {
        let blocks = read_section(guide, section)?;
        let mut reader = Reader::new(guide, user, &place);
        reader.follow(&blocks).await?;
        wrong.extend(reader.wrong);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

/// A reader who follows a guide.
struct Reader<'a> {
    guide: &'a str,
    user: &'a str,
    place: &'a Location,
    shells: BTreeMap<String, Shell>,
    wrong: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(guide: &'a str, user: &'a str, place: &'a Location) -> Self {
        Self {
            guide,
            user,
            place,
            shells: BTreeMap::new(),
            wrong: Vec::new(),
        }
    }

    /// Follows the whole guide. Records the differences and continues, as long as a shell exists.
    async fn follow(&mut self, blocks: &[Block]) -> Result<()> {
        for user in document::users(blocks) {
            ensure!(
                self.place.knows(user),
                "{}: nobody is called {user}",
                self.guide
            );
        }
        for block in blocks {
            let at = format!("docs/guides/{}:{}", self.guide, block.line);
            match &block.content {
                Content::NotTested(_) => {}
                Content::File { name, text } => self.place.write(name, text)?,
                Content::Script(script) => {
                    let outcome = self.shell(None)?.script(script);
                    outcome.with_context(|| format!("{at}: {script}"))?;
                }
                Content::Console(steps) => {
                    // A block without any output is a list of commands.
                    let is_list = steps.iter().all(|step| step.shows.is_empty());
                    for step in steps {
                        let told = self.step(step, is_list).await;
                        let told = told.with_context(|| format!("{at}: $ {}", step.command))?;
                        self.wrong
                            .extend(told.map(|wrong| format!("{at}: {wrong}")));
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs one command, and returns the difference between its output and the guide.
    async fn step(&mut self, step: &Step, is_list: bool) -> Result<Option<String>> {
        let command = &step.command;
        eprintln!("{}$ {command}", step.user.as_deref().unwrap_or(self.user));
        if !step.inner.is_empty() {
            return self.session(step).await;
        }
        let outcome = self.shell(step.user.as_deref())?.run(command)?;
        eprintln!("{}", outcome.printed.trim_end());
        let may_fail = step.shows.iter().any(|line| is_error(line));
        let printed = &outcome.printed;
        if outcome.code != 0 && !may_fail {
            let code = outcome.code;
            return Ok(Some(format!("`{command}` ended with {code}: {printed}")));
        }
        if is_list || is_shown(&step.shows, printed) {
            return Ok(None);
        }
        let shown = step.shows.join("\n");
        Ok(Some(format!(
            "`{command}` printed\n{printed}\nand the guide shows\n{shown}"
        )))
    }

    /// Runs a command that opens a session, and then types into that.
    async fn session(&mut self, step: &Step) -> Result<Option<String>> {
        let mut bash = self.place.bash(step.user.as_deref().unwrap_or(self.user))?;
        bash.args(["-c", &step.command]);
        let mut terminal = Terminal::start(&bash, 24, 100)?;
        let mut seen = 0;
        for inner in &step.inner {
            if let Err(error) = terminal.shows_after(seen, &inner.prompt).await {
                return Ok(Some(format!("`{}`: {error:#}", step.command)));
            }
            seen = terminal.screen().len();
            terminal.keys(&format!("{}\r", inner.keys))?;
        }
        let code = terminal.code().await?;
        let screen = terminal.screen();
        if code != 0 {
            return Ok(Some(format!(
                "`{}` ended with {code}: {screen}",
                step.command
            )));
        }
        // A terminal also shows the input, and draws it in any way; so the test searches for the lines.
        let mut lines = screen.lines().map(|line| line.trim_end_matches('\r'));
        let shown = step.inner.iter().flat_map(|inner| &inner.shows);
        for line in shown {
            if !lines.any(|on_screen| is_shown(&[line], on_screen)) {
                let command = &step.command;
                return Ok(Some(format!(
                    "`{command}` does not show {line:?}:\n{screen}"
                )));
            }
        }
        Ok(None)
    }

    fn shell(&mut self, user: Option<&str>) -> Result<&mut Shell> {
        let user = user.unwrap_or(self.user);
        if !self.shells.contains_key(user) {
            let shell = Shell::start(self.place.bash(user)?)?;
            self.shells.insert(user.to_owned(), shell);
        }
        self.shells.get_mut(user).context("no shell")
    }
}

/// Checks whether a line of a guide shows the expected failure of a command.
fn is_error(line: &str) -> bool {
    line.to_lowercase().starts_with("error")
}
