//! One command in a container, connected to the streams of ozctl. On a terminal, the session passes
//! on every key and every change of size, and shows the remaining time in the title.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use futures::SinkExt;
use futures::channel::mpsc::Sender;
use futures::future::try_join;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess, TerminalSize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::access::Granted;
use crate::cluster::Cluster;
use crate::context::unwritten;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::steps::Share;
use crate::terminal::{self, Raw};

/// The times before expiry at which a session on a terminal gets a warning.
const WARNINGS: [Duration; 3] = [
    Duration::from_secs(5 * 60),
    Duration::from_secs(60),
    Duration::from_secs(10),
];
/// The maximum time until a binding reaches the API server's authorizer.
const EFFECTIVE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
const BUFFER: usize = 64 * 1024;
/// The end of a session within this time of expiry is attributed to the expiry.
const AT_THE_END: Duration = Duration::from_secs(2);
/// The exit code that a shell reports for a program with a closed output pipe.
const BROKEN_PIPE: Exit = Exit::code(141);

/// The command to run.
pub(crate) struct Command {
    pub(crate) words: Vec<String>,
    /// The command runs on a terminal. Input must then be a terminal: the end of input, which only
    /// another kind of file has, hangs up the terminal in the container, and the later output of
    /// the command is lost.
    pub(crate) tty: bool,
    pub(crate) stdin: bool,
}

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
        ending(status, &command.words)
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
    let pods: Api<Pod> = cluster.api();
    let failed = format!("failed to open a session in pod {}", granted.pod);
    let mut parameters = AttachParams {
        container: granted.container.clone(),
        stdin: command.stdin,
        stdout: true,
        // A terminal has both in one stream.
        stderr: !command.tty,
        tty: command.tty,
        max_stdin_buf_size: Some(BUFFER),
        max_stdout_buf_size: Some(BUFFER),
        max_stderr_buf_size: Some(BUFFER),
    };
    let opened =
        once_effective(async || pods.exec(&granted.pod, &command.words, &parameters).await);
    match opened.await {
        Err(failure) if failure.message().contains("container name must be") => {
            parameters.container = Some(main_container(&pods, &granted.pod).await?);
            let answer = pods.exec(&granted.pod, &command.words, &parameters).await;
            answer.map_err(|error| Failure::from(error).during(&failed))
        }
        opened => opened.map_err(|failure| failure.during(&failed)),
    }
}

/// Retries an operation until its grant is effective. The binding exists when a request is ready,
/// but the API server's authorizer learns of it from a separate watch: until then a denial is not
/// final.
pub(crate) async fn once_effective<T>(
    mut attempt: impl AsyncFnMut() -> kube::Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + EFFECTIVE;
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt().await {
            Err(kube::Error::Api(status))
                if status.code == 403
                    && status.message.contains(" cannot ")
                    && Instant::now() < deadline =>
            {
                tokio::time::sleep(pause).await;
                pause = (pause * 3 / 2).min(LONGEST_PAUSE);
            }
            answer => return Ok(answer?),
        }
    }
}

/// Waits until the access ends, and prints that.
pub(crate) async fn end_of(granted: &Granted) {
    watch_the_end(granted, None).await;
    say_over(granted);
}

fn say_over(granted: &Granted) {
    let _ = writeln!(
        std::io::stderr(),
        "oz: access to {} is over; `ozctl {}` asks anew",
        granted.pod,
        granted.verb
    );
}

/// Returns the default container, as kubectl chooses it.
pub(crate) async fn main_container(pods: &Api<Pod>, name: &str) -> Result<String> {
    let pod = pods.get(name).await?;
    let named = pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("kubectl.kubernetes.io/default-container"));
    let first = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    named
        .or(first.map(|container| &container.name))
        .cloned()
        .ok_or_else(|| Failure::new(format!("pod {name} has no container")))
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
    let Some(mut left) = granted.left() else {
        return std::future::pending().await;
    };
    let mut warnings: Vec<Duration> = WARNINGS.into_iter().filter(|&at| at < left).collect();
    warnings.reverse();
    while !left.is_zero() {
        if let Some(terminal) = terminal {
            terminal.title(&format!("{} · {} left", granted.pod, remaining(left)));
            if let Some(&at) = warnings.last()
                && left <= at
            {
                warnings.pop();
                terminal.notice(&format!(
                    "access to {} ends in {}; `ozctl extend {}` asks for more",
                    granted.pod,
                    remaining(at),
                    granted.request
                ));
            }
        }
        tokio::time::sleep(until_change(left)).await;
        left = granted.left().unwrap_or_default();
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
    let over = granted.left().is_some_and(|left| left <= AT_THE_END);
    if over && exit != Exit::SUCCESS {
        Exit::ENDED
    } else {
        exit
    }
}

/// Returns the exit code of the command, from the status that the kubelet reports.
pub(crate) fn ending(status: Option<Status>, words: &[String]) -> Result<Exit> {
    let Some(status) = status else {
        return Err(
            Failure::new("the connection was lost before the command ended")
                .next("try again; `ozctl requests` shows whether your access is still there")
                .with(Exit::NOT_RUN),
        );
    };
    if status.status.as_deref() == Some("Success") {
        return Ok(Exit::SUCCESS);
    }
    let causes = status
        .details
        .as_ref()
        .and_then(|details| details.causes.as_ref());
    let code = causes
        .into_iter()
        .flatten()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .and_then(|cause| cause.message.as_deref()?.parse::<i32>().ok());
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(code) => Ok(Exit::code(code)),
        None => Err(not_started(&status.message.unwrap_or_default(), words)),
    }
}

fn not_started(message: &str, words: &[String]) -> Failure {
    // The exit codes 126 and 127, as in a shell.
    if message.contains("no such file or directory") || message.contains("not found in $PATH") {
        return Failure::new(format!(
            "there is no such command in the container: {message}"
        ))
        .next(match words.first().map_or("", |word| basename(word)) {
            "sh" => {
                "the image seems to have no shell: name a program of it after --, or another \
                     container with -c"
            }
            _ => "name one that is there after --, such as `-- /bin/sh`",
        })
        .with(Exit::code(127));
    }
    if message.contains("permission denied") {
        return Failure::new(format!("the command may not be run: {message}"))
            .with(Exit::code(126));
    }
    Failure::new(format!("the command was not run: {message}")).with(Exit::NOT_RUN)
}

fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: serde_json::Value) -> Option<Status> {
        Some(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn the_commands_exit_code_is_ours() {
        let failed = serde_json::json!({
            "status": "Failure", "reason": "NonZeroExitCode",
            "message": "command terminated with non-zero exit code",
            "details": {"causes": [{"reason": "ExitCode", "message": "42"}]},
        });
        assert_eq!(ending(status(failed), &[]).unwrap(), Exit::code(42));
        let fine = serde_json::json!({"status": "Success"});
        assert_eq!(ending(status(fine), &[]).unwrap(), Exit::SUCCESS);
    }

    #[test]
    fn a_command_that_is_not_there_and_a_lost_connection_are_not_the_commands_failure() {
        let missing = serde_json::json!({
            "status": "Failure", "reason": "InternalError",
            "message": "exec: \"bash\": executable file not found in $PATH: unknown",
        });
        for (command, next) in [
            ("bash", "such as `-- /bin/sh`"),
            ("/bin/sh", "to have no shell"),
        ] {
            let failure = ending(status(missing.clone()), &[command.to_owned()]).unwrap_err();
            assert_eq!(failure.exit(), Exit::code(127));
            let said = failure.next_step().unwrap();
            assert!(said.contains(next), "{said}");
        }
        assert_eq!(ending(None, &[]).unwrap_err().exit(), Exit::NOT_RUN);
    }

    #[test]
    fn what_is_left_is_shown_as_long_as_it_is_true() {
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
