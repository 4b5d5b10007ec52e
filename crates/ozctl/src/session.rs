//! One command in a container, connected to the streams of ozctl. On a terminal, the session passes
//! on every key and every change of size, and shows the remaining time in the title.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use futures::SinkExt;
use futures::channel::mpsc::Sender;
use futures::future::try_join;
use kube::api::{AttachedProcess, TerminalSize};
use oz_api::Phase;
use oz_client::pods::{self, Command, ending};
use oz_client::request;
use oz_core::kinds::AccessRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};

use crate::access::Granted;
use crate::cluster::Cluster;
use crate::context::unwritten;
use crate::exit::Exit;
use crate::failure::Result;
use crate::steps::Share;
use crate::terminal::{self, Raw};

/// The times before expiry at which a session on a terminal gets a warning.
const WARNINGS: [Duration; 3] = [
    Duration::from_secs(5 * 60),
    Duration::from_secs(60),
    Duration::from_secs(10),
];
const BUFFER: usize = 64 * 1024;
/// The end of a session within this time of expiry is attributed to the expiry.
const AT_THE_END: Duration = Duration::from_secs(2);
/// The exit code that a shell reports for a program with a closed output pipe.
const BROKEN_PIPE: Exit = Exit::code(141);

/// Runs the command until it exits or the access ends.
pub(crate) async fn run(cluster: &Cluster, granted: &Granted, command: &Command) -> Result<Exit> {
    let mut process = open(cluster, granted, command).await?;
    granted.steps.done("connection", Share::Kubernetes);
    let status = process.take_status();
    let terminal = command.tty.then(Raw::enter).transpose()?;
    let sizes = process.terminal_size();
    let input = process.stdin();
    let (stdout, stderr) = (process.stdout(), process.stderr());

    // Neither task ends the session: the keyboard may be silent, the window may never change.
    let feeding = tokio::spawn(feed(input));
    let sizing = tokio::spawn(follow_size(sizes));
    let output = async {
        // The first output without a reader ends both.
        try_join(
            copy(stdout, tokio::io::stdout()),
            copy(stderr, tokio::io::stderr()),
        )
        .await
    };
    let finished = async {
        match output.await {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(BROKEN_PIPE),
            Err(error) => return Err(unwritten(&error)),
            Ok(_) => {}
        }
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        Ok(ending(status, &command.words)?)
    };
    let result = tokio::select! {
        result = finished => result.map(|exit| at_the_end(granted, exit)),
        () = watch_the_end(granted, terminal.as_ref()) => Ok(Exit::ENDED),
    };
    feeding.abort();
    sizing.abort();
    drop(terminal);
    if matches!(result, Ok(Exit::ENDED)) {
        say_over(granted);
    }
    result
}

/// Opens the command with streams other than those of ozctl, for the verbs that copy.
pub(crate) async fn open(
    cluster: &Cluster,
    granted: &Granted,
    command: &Command,
) -> Result<AttachedProcess> {
    let access = &granted.access;
    pods::exec(cluster, &access.pod, access.container.as_deref(), command).await
}

/// Waits until the access ends, by its expiry or earlier with its request, and prints that. The API server cuts
/// neither a log nor a forwarded port when it ends.
pub(crate) async fn end_of<R: AccessRequest>(granted: &Granted) {
    let name = &granted.access.request;
    let request = async {
        match request::end::<R>(&granted.cluster, name).await {
            Ok(status) => status,
            // Users who may not read the request learn of its expiry only.
            Err(_) => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        () = watch_the_end(granted, None) => return say_over(granted),
        ended = request => ended,
    };
    match ended {
        Some(status) if status.phase == Phase::Expired => say_over(granted),
        Some(status) => {
            let why = request::why_not(&status).map_or(String::new(), |why| format!(": {why}"));
            say(granted, &format!("was revoked{why}"));
        }
        None => say(granted, &format!("was revoked: request {name} was deleted")),
    }
}

fn say_over(granted: &Granted) {
    say(granted, "has expired");
}

/// Prints what became of the access, and the next step.
fn say(granted: &Granted, what: &str) {
    let (pod, verb) = (&granted.access.pod, granted.verb);
    let _ = writeln!(
        std::io::stderr(),
        "oz: access to {pod} {what}; `ozctl {verb}` creates a new request"
    );
}

/// Passes on the input of ozctl, until it ends.
async fn feed(input: Option<impl AsyncWrite + Unpin>) {
    if let Some(mut input) = input {
        let mut stdin = tokio::io::stdin();
        let mut buffer = vec![0; BUFFER];
        while let Ok(count) = stdin.read(&mut buffer).await {
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            if input.write_all(bytes).await.is_err() {
                return;
            }
        }
        let _ = input.shutdown().await;
    }
}

async fn follow_size(sizes: Option<Sender<TerminalSize>>) {
    let Some(mut sizes) = sizes else { return };
    let Ok(mut changed) = signal(SignalKind::window_change()) else {
        return;
    };
    loop {
        if let Some(size) = terminal::size()
            && sizes.send(size).await.is_err()
        {
            return;
        }
        changed.recv().await;
    }
}

/// Passes on a stream of the command; an error means that the reader closed its end.
async fn copy(
    from: Option<impl AsyncRead + Unpin>,
    mut to: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        match buffer.get(..count) {
            Some(bytes) if !bytes.is_empty() => to.write_all(bytes).await?,
            _ => break,
        }
        to.flush().await?;
    }
    Ok(())
}

/// Waits until the access ends, and shows a title and warnings until then.
async fn watch_the_end(granted: &Granted, terminal: Option<&Raw>) {
    let access = &granted.access;
    let Some(until) = access.until else {
        return std::future::pending().await;
    };
    let mut left = access.clock.left(until);
    let mut warnings: Vec<Duration> = WARNINGS.into_iter().filter(|&at| at < left).collect();
    warnings.reverse();
    while !left.is_zero() {
        if let Some(terminal) = terminal {
            terminal.title(&format!(
                "{} · {} left",
                granted.access.pod,
                remaining(left)
            ));
            if let Some(&at) = warnings.last()
                && left <= at
            {
                warnings.pop();
                terminal.notice(&format!(
                    "access to {} expires in {}; `ozctl extend {}` extends it",
                    granted.access.pod,
                    remaining(at),
                    granted.access.request
                ));
            }
        }
        tokio::time::sleep(until_change(left)).await;
        left = access.clock.left(until);
    }
}

/// Returns the time until the shown remaining time changes: the last two minutes show seconds.
fn until_change(left: Duration) -> Duration {
    const SECONDS_COUNT: Duration = Duration::from_secs(120);
    let step: u64 = if left > SECONDS_COUNT { 60 } else { 1 };
    let nanos = left.as_nanos() % Duration::from_secs(step).as_nanos();
    let rest = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    if rest.is_zero() {
        Duration::from_secs(step)
    } else {
        rest
    }
}

fn remaining(left: Duration) -> String {
    let seconds = left.as_secs() + u64::from(left.subsec_millis() >= 500);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds.div_ceil(60)),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn at_the_end(granted: &Granted, exit: Exit) -> Exit {
    let over = granted.access.left().is_some_and(|left| left <= AT_THE_END);
    if over && exit != Exit::SUCCESS {
        Exit::ENDED
    } else {
        exit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_shown_until_it_changes() {
        let seconds = Duration::from_secs;
        assert_eq!(remaining(seconds(3600)), "60m");
        assert_eq!(remaining(seconds(90)), "90s");
        assert_eq!(remaining(seconds(7260)), "2h01m");
        assert_eq!(until_change(seconds(3600)), seconds(60));
        assert_eq!(until_change(seconds(3610)), seconds(10));
        assert_eq!(
            until_change(Duration::from_millis(1500)),
            Duration::from_millis(500)
        );
    }
}
