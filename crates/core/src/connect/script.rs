//! The script that ends every process of a grant in a container, run by the operator when a grant ends. It
//! needs a shell and `/proc`, and writes nothing to disk.
//!
//! A process belongs to the grant if it was started with the grant's mark in its environment; if its parent
//! does, or one in its session (of setsid); or if a pipe or terminal is open in it that the grant's session
//! began with. A process that drops its environment, session, parents and streams cannot be distinguished
//! from the application.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::cut::MARK;

/// The script; `$1` is the grant's id, `$2` how many seconds ago it was granted. Writes `ended N left M`. The
/// processes that are left are those that could not be ended, and those that began since and have an unknown
/// owner: orphans of which the environment cannot be read, or that hold a stream that no other process holds.
///
/// The script never ends PID 1 and the processes that began outside of the container (parent 0) without the
/// mark, which are the application and the sessions of others, nor the processes under which the script
/// itself runs. By a stream it finds no process that began long before the grant, that is in a session of
/// these, or that holds a stream which these hold or which was opened by its name, as a user does who
/// inspects the streams of others.
///
/// The cost is bounded because each round reads everything once: there may be hundreds of processes on either
/// side. A user who delays the script makes it fail, which is reported; the delay does not hide the
/// processes.
const SCRIPT: &str = include_str!("end_sessions.sh");

/// The word that the script writes at each of its rounds.
const GOES_ON: &str = ".";

/// The shell that runs the script.
const SHELL: &str = "/bin/sh";

/// The outer script, which runs the script for one grant after the other, by the shell that is its name, and
/// writes the id of the grant before each output. No run stops because the reader has closed the output. The
/// grants that a process names in its environment come first: where hundreds of grants end, few have a
/// process. A process that names the grants of others gains nothing, and a shell without such a grep takes
/// the grants in their order.
const EACH: &str = r#"trap '' PIPE
script=$1; shift
seen=$(grep -hosz '^@MARK@=[0-9A-Za-z-]\{1,64\}' /proc/[0-9]*/environ 2>/dev/null | tr '\0' ' ' 2>/dev/null)
each() {
  while [ $# -gt 1 ]; do
    case $seen in *"@MARK@=$1"*) turn=first;; *) turn=later;; esac
    if [ $turn = $now ]; then printf '%s ' "$1"; $shell -c "$script" oz "$1" "$2"; fi
    shift 2
  done
}
shell=$0 now=first; each "$@"; now=later; each "$@"
"#;

/// A grant of which the processes must end.
#[derive(Clone, Copy, Debug)]
pub struct Ending<'a> {
    /// Id of the grant.
    pub grant: &'a str,
    /// Time since it was granted.
    pub age: SignedDuration,
}

/// Returns the command that ends the processes of these grants.
#[must_use]
pub fn command(grants: &[Ending<'_>]) -> Vec<String> {
    in_turn(SCRIPT, grants)
}

/// Returns the command that runs a script for each of these grants.
pub(super) fn in_turn(script: &str, grants: &[Ending<'_>]) -> Vec<String> {
    let [each, script] = [EACH, script].map(|text| text.replace("@MARK@", MARK));
    let start = [SHELL, "-c", &each, SHELL, &script].map(str::to_owned);
    let grants = grants
        .iter()
        .flat_map(|Ending { grant, age }| [(*grant).to_owned(), age.as_secs().max(0).to_string()]);
    start.into_iter().chain(grants).collect()
}

/// The result of the script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Number of ended processes.
    pub ended: u32,
    /// Number of processes that could not be ended.
    pub left: u32,
}

/// Parses the outputs of the scripts, by the ids of the grants; a grant for which the script did not complete
/// is absent.
#[must_use]
pub fn answers(text: &str) -> BTreeMap<String, Ended> {
    let words = text.split_whitespace().filter(|word| *word != GOES_ON);
    let words: Vec<&str> = words.collect();
    let answers = words.windows(5).filter_map(|words| match words {
        [grant, "ended", ended, "left", left] => Some((
            (*grant).to_owned(),
            Ended {
                ended: ended.parse().ok()?,
                left: left.parse().ok()?,
            },
        )),
        _ => None,
    });
    answers.collect()
}
