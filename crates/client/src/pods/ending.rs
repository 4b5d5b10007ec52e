//! The end of a command in a container.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

use crate::exit::Exit;
use crate::failure::Failure;

/// The reason why a command has no exit code.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndingError {
    /// The connection was lost.
    #[error("the connection was lost before the command ended")]
    Lost,
    /// The container does not have the program.
    #[error("there is no such command in the container: {message}")]
    Missing {
        /// The message of the container runtime.
        message: String,
        /// True if the program is a shell.
        is_shell: bool,
    },
    /// The program is not executable.
    #[error("the command may not be run: {message}")]
    NotPermitted {
        /// The message of the container runtime.
        message: String,
    },
    /// The command was not run for another reason.
    #[error("the command was not run: {message}")]
    NotRun {
        /// The message of the container runtime.
        message: String,
    },
}

impl From<EndingError> for Failure {
    fn from(error: EndingError) -> Self {
        let failure = Self::new(error.to_string());
        // The exit codes 126 and 127, as in a shell.
        match error {
            EndingError::Lost => failure
                .next("try again; `ozctl requests` shows whether your access is still active")
                .with(Exit::NOT_RUN),
            EndingError::Missing { is_shell, .. } => failure
                .next(match is_shell {
                    true => {
                        "the image may have no shell: name a program of it after --, or another \
                         container with -c"
                    }
                    false => "name an existing program after --, such as `-- /bin/sh`",
                })
                .with(Exit::code(127)),
            EndingError::NotPermitted { .. } => failure.with(Exit::code(126)),
            EndingError::NotRun { .. } => failure.with(Exit::NOT_RUN),
        }
    }
}

/// Returns the exit code of a command, from the status that the kubelet reports.
///
/// # Errors
/// The command did not run, or its end is not known.
pub fn ending(status: Option<Status>, words: &[String]) -> Result<Exit, EndingError> {
    let status = status.ok_or(EndingError::Lost)?;
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
        None => Err(not_started(status.message.unwrap_or_default(), words)),
    }
}

fn not_started(message: String, words: &[String]) -> EndingError {
    if message.contains("no such file or directory") || message.contains("not found in $PATH") {
        let is_shell = words.first().is_some_and(|word| basename(word) == "sh");
        return EndingError::Missing { message, is_shell };
    }
    match message.contains("permission denied") {
        true => EndingError::NotPermitted { message },
        false => EndingError::NotRun { message },
    }
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
            ("/bin/sh", "may have no shell"),
        ] {
            let error = ending(status(missing.clone()), &[command.to_owned()]).unwrap_err();
            let failure = Failure::from(error);
            assert_eq!(failure.exit(), Exit::code(127));
            let said = failure.next_step().unwrap();
            assert!(said.contains(next), "{said}");
        }
        let lost = Failure::from(ending(None, &[]).unwrap_err());
        assert_eq!(lost.exit(), Exit::NOT_RUN);
    }
}
