//! Command policies, evaluated so that nothing which a template's author writes can crash or stall
//! the webhook: bounded before they are parsed, on a thread with a stack of their own, one moment
//! at most, and few at once. What does not come to an answer is a refusal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube_cel::cel::{Context, Program, Value};
use oz_core::connect::policy::{bounded, is_bounded};
use oz_core::connect::{Attempt, Policed};
use tokio::sync::{Semaphore, oneshot};

/// How long one evaluation may take, with its wait for a place.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
/// After how long no further policy is asked about the same connection.
pub(crate) const ALTOGETHER: Duration = Duration::from_millis(300);
/// Evaluations at once. One that takes for ever keeps its place until it is done.
const AT_ONCE: usize = 8;
/// Far more than a bounded expression takes.
const STACK: usize = 16 * 1024 * 1024;
/// Compiled policies that are kept.
const KEPT: usize = 512;

type Compiled = Arc<Result<Program, String>>;

/// Asks policies.
pub(crate) struct Policies {
    places: Arc<Semaphore>,
    compiled: Arc<Mutex<HashMap<String, Compiled>>>,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            compiled: Arc::default(),
        }
    }
}

/// The command that a policy is asked about.
struct Command {
    argv: Vec<String>,
    tty: bool,
    stdin: bool,
    container: String,
}

impl Policies {
    /// What the policy says of a command.
    pub(super) async fn ask(
        &self,
        policy: &str,
        attempt: &Attempt<'_>,
        container: Option<&str>,
    ) -> Policed {
        if !is_bounded(attempt.argv) {
            return Policed::Failed("the command is too large".to_owned());
        }
        let command = Command {
            argv: attempt.argv.to_vec(),
            tty: attempt.tty,
            stdin: attempt.stdin,
            container: container.unwrap_or_default().to_owned(),
        };
        match self.evaluate(policy, command).await {
            Ok(Value::Bool(true)) => Policed::Allowed,
            Ok(Value::Bool(false)) => Policed::Refused,
            Ok(_) => Policed::Failed("it gives no true or false".to_owned()),
            Err(why) => Policed::Failed(why),
        }
    }

    /// What is wrong with a policy that somebody writes; nothing if it can be asked about a plain
    /// command. That it fails for others cannot be known.
    pub(crate) async fn check(&self, policy: &str) -> Result<(), String> {
        let command = Command {
            argv: vec!["sh".to_owned()],
            tty: true,
            stdin: true,
            container: "app".to_owned(),
        };
        match self.evaluate(policy, command).await {
            Ok(Value::Bool(_)) => Ok(()),
            Ok(_) => Err("it must give true or false".to_owned()),
            // Other commands may have the argument that this one lacks.
            Err(why) if why.starts_with("Index out of bounds") => Ok(()),
            Err(why) => Err(why),
        }
    }

    async fn evaluate(&self, policy: &str, command: Command) -> Result<Value, String> {
        bounded(policy).map_err(|excess| excess.to_string())?;
        let (done, answer) = oneshot::channel();
        let (policy, compiled) = (policy.to_owned(), Arc::clone(&self.compiled));
        let places = Arc::clone(&self.places);
        let waited = async move {
            let place = places
                .acquire_owned()
                .await
                .map_err(|_| "closed".to_owned())?;
            std::thread::Builder::new()
                .name("policy".to_owned())
                .stack_size(STACK)
                .spawn(move || {
                    // A panic ends this thread alone; whoever waits is told by the broken channel.
                    let _ = done.send(run(&policy, &compiled, command));
                    drop(place);
                })
                .map_err(|error| format!("no thread for it: {error}"))?;
            answer
                .await
                .unwrap_or_else(|_| Err("its evaluation failed".to_owned()))
        };
        tokio::time::timeout(PATIENCE, waited)
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
    }
}

fn run(
    policy: &str,
    compiled: &Mutex<HashMap<String, Compiled>>,
    command: Command,
) -> Result<Value, String> {
    let known = || compiled.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known().get(policy).cloned();
    let program = found.unwrap_or_else(|| {
        let program = Program::compile(policy).map_err(|errors| first_line(&errors.to_string()));
        let program = Arc::new(program);
        let mut known = known();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(policy.to_owned(), Arc::clone(&program));
        program
    });
    let program = program.as_ref().as_ref().map_err(Clone::clone)?;
    let mut context = Context::default();
    context.add_variable_from_value("argv", command.argv);
    context.add_variable_from_value("tty", command.tty);
    context.add_variable_from_value("stdin", command.stdin);
    context.add_variable_from_value("container", command.container);
    program
        .execute(&context)
        .map_err(|error| first_line(&error.to_string()))
}

/// Errors of the library can be pages long, and hold the command.
fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use oz_core::access::stamp::Requester;
    use oz_core::connect::Way;

    use super::*;

    async fn asked(policy: &str, argv: &[&str]) -> Policed {
        let argv: Vec<String> = argv.iter().map(|&one| one.to_owned()).collect();
        let user = Requester::default();
        let attempt = Attempt {
            now: jiff::Timestamp::UNIX_EPOCH,
            user: &user,
            namespace: "shop",
            pod: "web",
            way: Way::Exec,
            container: None,
            argv: &argv,
            tty: true,
            stdin: false,
        };
        Policies::default().ask(policy, &attempt, Some("app")).await
    }

    fn fails(answer: &Policed) -> bool {
        matches!(answer, Policed::Failed(_))
    }

    #[tokio::test]
    async fn a_policy_sees_the_command_and_says_yes_or_no() {
        for (policy, argv, answer) in [
            ("argv[0] == 'ls'", &["ls", "-l"][..], Policed::Allowed),
            ("argv[0] == 'ls'", &["rm"], Policed::Refused),
            (
                "argv.all(a, !a.contains('secret'))",
                &["cat", "/secret"],
                Policed::Refused,
            ),
            (
                "tty && !stdin && container == 'app'",
                &["sh"],
                Policed::Allowed,
            ),
            (
                "size(argv) == 3 && argv[1] == ''",
                &["a", "", "ü\n"],
                Policed::Allowed,
            ),
            ("argv[0].matches('^(ls|cat)$')", &["cats"], Policed::Refused),
        ] {
            assert_eq!(asked(policy, argv).await, answer, "{policy}");
        }
    }

    #[tokio::test]
    async fn whatever_an_author_writes_gives_an_answer() {
        for policy in [
            "",
            "argv",
            "1 / 0 == 1",
            "argv[7] == 'x'",
            "nobody == 'x'",
            "nobody()",
            "argv[0] ==",
            "argv[-1] == argv[0]",
            "'\\ud800' == argv[0]",
            "\u{0}",
            "9223372036854775807 + 1 > 0",
            "-9223372036854775808 / -1 > 0",
            "-9223372036854775808 % -1 > 0",
            "argv[0].matches('(((((((((((a{1000}){1000}){1000}')",
            "argv[0].matches('[')",
            "int('x') == 1",
            "size(1) == 1",
            "{'a': argv}.a.b.c == 1",
            "argv.map(a, argv).all(b, b == b) && 1 + 'a' == 2",
        ] {
            let answer = asked(policy, &["sh"]).await;
            assert!(
                fails(&answer) || answer == Policed::Refused,
                "{policy}: {answer:?}"
            );
        }
    }

    #[tokio::test]
    async fn what_is_too_large_or_too_deep_is_refused_before_it_is_parsed() {
        for policy in [
            format!("{}true{}", "(".repeat(400), ")".repeat(400)),
            format!("{}true", "!".repeat(1000)),
            format!("'{}' == argv[0]", "x".repeat(1024)),
            "argv.all(a, argv.all(b, argv.all(c, a == b)))".to_owned(),
        ] {
            assert!(fails(&asked(&policy, &["sh"]).await), "{policy}");
        }
        let many = vec!["x"; 5000];
        assert!(fails(&asked("true", &many).await));
    }

    #[tokio::test]
    async fn what_takes_too_long_is_refused_and_others_are_answered() {
        // Each argument compiles a large expression.
        let slow = "argv.all(a, !a.matches('(((x{40}){40}y{40}){30})z'))";
        let argv = vec!["x"; 1000];
        let answer = asked(slow, &argv).await;
        assert!(fails(&answer), "{answer:?}");
        assert_eq!(asked("true", &["sh"]).await, Policed::Allowed);
    }

    #[tokio::test]
    async fn what_can_never_be_asked_is_known_when_it_is_written() {
        let policies = Policies::default();
        for (policy, right) in [
            ("argv[0] == 'ls'", true),
            ("argv[3] == 'x'", true),
            ("argv", false),
            ("nobody == 'x'", false),
            ("argv[0] ==", false),
        ] {
            assert_eq!(policies.check(policy).await.is_ok(), right, "{policy}");
        }
    }
}
