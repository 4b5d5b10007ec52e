//! Automatic termination of a session: the command is wrapped so that its process carries the grant's id and
//! its own deadline. This applies only to containers that were probed and found capable: wrapping breaks
//! every exec into an image that has no shell or no `timeout`.

use jiff::{SignedDuration, Timestamp};
use oz_api::{SessionProbe, Timeout};

use super::{Attempt, ConnectionKind, Refusal};
use crate::access::grant::Grant;

/// The environment variable that identifies the processes of a grant.
pub const MARK: &str = "OZ_GRANT";

/// The time before the expiry at which a session receives a hang-up as a notice.
const NOTICE: SignedDuration = SignedDuration::from_secs(1);

/// The maximum delay of the start of a command after its permission, in seconds: a little more than the
/// container runtime waits for a client's streams.
const LATEST_START: u8 = 40;

/// The script that detects the capabilities of a container. It writes one word for each.
pub const PROBE: &str = r#"echo shell
t() { "$@" </dev/null >/dev/null 2>&1; }
if t timeout --foreground -k 1 -s HUP 2 /bin/sh -c :; then echo foreground killafter
elif t timeout -k 1 -s HUP 2 /bin/sh -c :; then echo plain killafter
elif t timeout -s KILL 2 /bin/sh -c :; then echo plain
fi
if t timeout -s KILL 1.5 /bin/sh -c :; then echo fractions; fi
exit 0
"#;

/// Parses the output of [`PROBE`] for a container.
#[must_use]
pub fn probed(container: &str, image_id: &str, answer: &str) -> SessionProbe {
    let has = |word: &str| answer.split_whitespace().any(|one| one == word);
    let timeout = (has("plain") || has("foreground")).then(|| Timeout {
        foreground: has("foreground"),
        kill_after: has("killafter"),
        fractions: has("fractions"),
    });
    SessionProbe {
        container: container.to_owned(),
        image_id: image_id.to_owned(),
        shell: has("shell"),
        timeout,
    }
}

/// The way in which a session will end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The session ends automatically: this command runs instead of the requested one.
    ByItself(Vec<String>),
    /// The session does not end automatically, for this reason; but this command, which runs instead of the
    /// requested one, carries the mark by which the operator finds it.
    Marked(Vec<String>, String),
    /// The session ends with its pod, which exists for this grant only.
    WithPod,
    /// The session does not end automatically, for this reason.
    Not(String),
}

/// Decides how a session by `grant` will end.
///
/// # Errors
/// A refusal where the template requires that sessions end, and this one would not.
pub fn session(attempt: &Attempt<'_>, grant: &Grant) -> Result<Cut, Box<Refusal>> {
    if grant.own_pod.is_some() {
        return Ok(Cut::WithPod);
    }
    let mut marked = None;
    let not = match attempt.way {
        ConnectionKind::Exec => {
            let name = grant.container(attempt.container);
            let timeout = name.and_then(|name| grant.sessions.timeouts.get(name));
            match timeout {
                // The API server rejects it, which must stay so.
                Some(_) if attempt.argv.is_empty() => "there is no command".to_owned(),
                Some(timeout) => {
                    let command = wrapped(
                        timeout,
                        &grant.request.uid,
                        attempt.now,
                        grant.window.until,
                        attempt.tty,
                        attempt.argv,
                    );
                    return Ok(Cut::ByItself(command));
                }
                None => {
                    let shell = name.is_some_and(|name| grant.sessions.has_shell(name));
                    marked = (shell && !attempt.argv.is_empty()).then(|| {
                        let (grant, until) = (&grant.request.uid, grant.window.until);
                        let left = seconds(until.duration_since(attempt.now), false);
                        command(grant, until, &left, None, attempt.argv)
                    });
                    format!(
                        "container {} has no shell or no timeout, as far as is known",
                        name.unwrap_or("(not named)")
                    )
                }
            }
        }
        ConnectionKind::EphemeralContainer => {
            "a debug container stays until its pod ends".to_owned()
        }
        way => format!("{} on a shared pod cannot be ended", way.title()),
    };
    if grant.sessions.required {
        return Err(Box::new(Refusal::new(
            "SessionNotTerminable",
            format!(
                "template {} requires that sessions end with their grant, and this one would not: \
                 {not}; use another container or template, or a dedicated pod: ozctl create pod \
                 TEMPLATE -n {}",
                grant.template, attempt.namespace
            ),
        )));
    }
    Ok(match marked {
        Some(command) => Cut::Marked(command, not),
        None => Cut::Not(not),
    })
}

/// Returns the command that runs `argv`, marked, and ends it: a hang-up a second before `until`, the
/// termination at `until`. The arguments remain arguments, so that the shell interprets nothing in them.
#[must_use]
pub fn wrapped(
    timeout: &Timeout,
    grant: &str,
    now: Timestamp,
    until: Timestamp,
    tty: bool,
    argv: &[String],
) -> Vec<String> {
    let mut left = until.duration_since(now).max(SignedDuration::ZERO);
    let mut first = until;
    let mut words = String::from("timeout");
    // Without this option, GNU's timeout runs the command in the background, where it may not read a
    // terminal; with it, timeout ends the command alone and not the processes that the command started.
    if timeout.foreground && tty {
        words.push_str(" --foreground");
    }
    if timeout.kill_after && left > NOTICE + NOTICE {
        words.push_str(" -k 1 -s HUP");
        left -= NOTICE;
        first -= NOTICE;
    } else {
        words.push_str(" -s KILL");
    }
    let left = seconds(left, timeout.fractions);
    command(grant, first, &left, Some(&words), argv)
}

/// Returns the command that runs `argv`, marked, under these words if there are any and for `left` seconds;
/// it does not run `argv` once it is `end` by the container's own clock. Permission and start may lie apart
/// by as long as the API server waits for a client's streams, which is subtracted from the counted time. A
/// clock that reports a longer delay than is possible is wrong, and is ignored.
fn command(
    grant: &str,
    end: Timestamp,
    left: &str,
    words: Option<&str>,
    argv: &[String],
) -> Vec<String> {
    // The id is the UID of a request: hexadecimal digits and dashes. Any other character would be code.
    let id: String = grant
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-')
        .collect();
    // Rounded up, as `date` rounds down: a command that starts at once has the time that was counted here.
    let end = end.as_second() + i64::from(end.subsec_nanosecond() > 0);
    // The wrapper would report a missing command under its own name, and the runtime would not be asked.
    // Where the shell cannot decide, the command is tried.
    let there = "case $1 in -*) ;; \
         */*) [ -e \"$1\" ] || { echo \"exec: \\\"$1\\\": stat $1: no such file or directory\" >&2; exit 127; };; \
         *) if command -v sh >/dev/null 2>&1 && ! command -v \"$1\" >/dev/null 2>&1; then \
         echo \"exec: \\\"$1\\\": executable file not found in \\$PATH\" >&2; exit 127; fi;; esac";
    let run = match words {
        Some(words) => format!("exec {words} \"$oz_left\" \"$@\""),
        // `exec` takes a word that begins with a dash as an option.
        None => "case $1 in -*) \"$@\";; *) exec \"$@\";; esac".to_owned(),
    };
    let script = format!(
        "{MARK}={id}; export {MARK}; oz_left={left}; oz_now=$(date +%s 2>/dev/null); \
         if [ \"$oz_now\" -gt 0 ] 2>/dev/null; then \
         oz_late=$((${{oz_left%.*}} - {end} + oz_now)); \
         if [ $oz_late -gt 0 ] && [ $oz_late -le {LATEST_START} ]; then \
         oz_left=$(({end} - oz_now)); [ $oz_left -gt 0 ] || exit 137; fi; fi; {there}; {run}"
    );
    let mut command = vec![
        "/bin/sh".to_owned(),
        "-c".to_owned(),
        script,
        "oz".to_owned(),
    ];
    command.extend(argv.iter().cloned());
    command
}

/// Formats seconds for `timeout`, for which zero is no limit. Rounded down: rather early than late.
fn seconds(left: SignedDuration, fractions: bool) -> String {
    if fractions {
        let millis = left.as_millis().max(1);
        format!("{}.{:03}", millis / 1000, millis % 1000)
    } else {
        left.as_secs().max(1).to_string()
    }
}
