//! The script that ends every process of a grant in a container, run by the operator when a grant
//! ends. It needs a shell and `/proc`, and writes nothing to disk.
//!
//! A process belongs to the grant if it was started with the grant's mark in its environment; if its
//! parent does, or one in its session (of setsid); or if a pipe or terminal is open in it that the
//! grant's session began with. What drops its environment, session, parents and streams cannot be told
//! from the application.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::cut::MARK;

/// The script; `$1` is the grant's id, `$2` how many seconds ago it was granted. Writes `ended N left
/// M`, where what is left is what could not be ended, and what began since and nobody can tell whose
/// it is: orphans whose environment cannot be read, or that hold a stream that no one else does.
///
/// Never touched: PID 1 and what began outside of the container (parent 0) without the mark, which
/// are the application and the sessions of others; and whatever this script itself runs under. By a
/// stream nothing is found that began long before the grant, that is in a session of these, or whose stream
/// these hold or was opened by its name, as a user does who looks into the streams of others.
///
/// The cost is bounded by reading everything once in a round: there may be hundreds of processes on
/// either side. Who makes it take too long makes it fail, which is said, and does not hide by that.
const SCRIPT: &str = include_str!("end_sessions.sh");

/// What the script writes at each of its rounds.
const GOES_ON: &str = ".";

/// The shell that runs the script.
const SHELL: &str = "/bin/sh";

/// Runs the script for one grant after the other, by the shell that is its name: what each answer is
/// about goes before it. None breaks off because nobody reads what it says any more. Those first of which a process
/// says that it is theirs: where hundreds of grants end, few have one. Who says so of others wins nothing by it, and a
/// shell without such a grep takes them as they come.
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

/// A grant whose processes are to be ended.
#[derive(Clone, Copy, Debug)]
pub struct Ending<'a> {
    /// Its id.
    pub grant: &'a str,
    /// How long ago it was granted.
    pub age: SignedDuration,
}

/// The command that ends the processes of these grants.
#[must_use]
pub fn command(grants: &[Ending<'_>]) -> Vec<String> {
    in_turn(SCRIPT, grants)
}

/// The command that runs a script for each of these grants.
pub(super) fn in_turn(script: &str, grants: &[Ending<'_>]) -> Vec<String> {
    let [each, script] = [EACH, script].map(|text| text.replace("@MARK@", MARK));
    let start = [SHELL, "-c", &each, SHELL, &script].map(str::to_owned);
    let grants = grants
        .iter()
        .flat_map(|Ending { grant, age }| [(*grant).to_owned(), age.as_secs().max(0).to_string()]);
    start.into_iter().chain(grants).collect()
}

/// What the script did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many processes were ended.
    pub ended: u32,
    /// How many could not be.
    pub left: u32,
}

/// What the scripts' answers say, by the ids of the grants; none of those for which it did not get to
/// its end.
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
