//! The script that ends every process of a grant in a container, run by the operator when a grant
//! ends. It needs a shell and `/proc`, and writes nothing to disk.
//!
//! A process belongs to the grant if it was started with the grant's mark in its environment; if its
//! parent does, or one in its session (of setsid); or if a pipe or terminal is open in it that the
//! grant's session began with. What drops its environment, session, parents and streams cannot be told
//! from the application.

use jiff::SignedDuration;

use super::cut::MARK;

/// The script; `$1` is the grant's id, `$2` how many seconds ago it was granted. Writes `ended N left
/// M`, where what is left is what could not be ended, and what began since and nobody can tell whose
/// it is: orphans whose environment cannot be read, or that hold a stream that no one else does.
///
/// Never touched: PID 1 and what began outside of the container (parent 0) without the mark, which
/// are the application and the sessions of others; and whatever this script itself runs under. By a
/// stream nothing is found that began before the grant, that is in a session of these, or whose stream
/// these hold or was opened by its name, as a user does who looks into the streams of others.
///
/// The cost is bounded by reading everything once in a round: there may be hundreds of processes on
/// either side. Who makes it take too long makes it fail, which is said, and does not hide by that.
const SCRIPT: &str = include_str!("end_sessions.sh");

/// How long it may take until the script runs, in seconds.
const START: i64 = 5;

/// The command that ends the processes of the grant with this id, which was granted so long ago.
#[must_use]
pub fn command(grant: &str, age: SignedDuration) -> Vec<String> {
    // Counted back from when the script runs, which is some seconds later on a busy node.
    let age = age.as_secs().max(0).saturating_add(START);
    vec![
        "/bin/sh".to_owned(),
        "-c".to_owned(),
        SCRIPT.replace("@MARK@", MARK),
        "oz".to_owned(),
        grant.to_owned(),
        age.to_string(),
    ]
}

/// What the script did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many processes were ended.
    pub ended: u32,
    /// How many could not be.
    pub left: u32,
}

/// What the script's answer says; `None` if it did not get to its end.
#[must_use]
pub fn answer(text: &str) -> Option<Ended> {
    let line = text.lines().rfind(|line| line.starts_with("ended "))?;
    let mut words = line.split_whitespace();
    let (_, ended, _, left) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(Ended {
        ended: ended.parse().ok()?,
        left: left.parse().ok()?,
    })
}
