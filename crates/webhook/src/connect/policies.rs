//! The evaluation of command policies, so that no text of a template's author can crash or stall
//! the webhook: policies are bounded before parsing and again before evaluation, and are evaluated
//! on a separate thread with its own stack, with a timeout, and few at once. An evaluation without
//! a result is a denial.

use std::time::{Duration, Instant};

use oz_cel::{COMMAND, CelError, Expression, Expressions, STACK, Value};
use oz_core::connect::policy::{bounded, is_bounded};
use oz_core::connect::{Attempt, Policed};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::evaluation_slots::{BACKOFF, EvaluationSlots};

/// The timeout of one evaluation, and of the wait for its slot.
pub(crate) const POLICY_TIMEOUT: Duration = Duration::from_millis(300);
/// The time after which no further policy is evaluated for the same connection.
pub(crate) const ALL_POLICIES_TIMEOUT: Duration = Duration::from_millis(300);
/// The evaluator of command policies.
#[derive(Default)]
pub(crate) struct Policies {
    slots: EvaluationSlots,
    expressions: Expressions,
}

/// The command for which a policy is evaluated.
struct Command {
    argv: Vec<String>,
    tty: bool,
    stdin: bool,
    container: String,
}

impl Policies {
    /// Evaluates the policy for a command.
    pub(super) async fn ask(
        &self,
        policy: &str,
        attempt: &Attempt<'_>,
        container: Option<&str>,
    ) -> Policed {
        let container = container.unwrap_or_default();
        if !is_bounded(attempt.argv, container) {
            return Policed::Failed("the command is too large".to_owned());
        }
        let command = Command {
            argv: attempt.argv.to_vec(),
            tty: attempt.tty,
            stdin: attempt.stdin,
            container: container.to_owned(),
        };
        match self.evaluate(attempt.namespace, policy, command).await {
            Ok(Value::Bool(true)) => Policed::Allowed,
            Ok(Value::Bool(false)) => Policed::Refused,
            Ok(_) => Policed::Failed("the expression does not return true or false".to_owned()),
            Err(why) => Policed::Failed(why.to_string()),
        }
    }

    /// Checks a policy of a template in this namespace: succeeds if it can be evaluated for a plain
    /// command. A failure for other commands cannot be predicted.
    pub(crate) async fn check(&self, namespace: &str, policy: &str) -> Result<(), PolicyError> {
        let command = Command {
            argv: vec!["sh".to_owned()],
            tty: true,
            stdin: true,
            container: "app".to_owned(),
        };
        match self.evaluate(namespace, policy, command).await {
            Ok(Value::Bool(_)) => Ok(()),
            Ok(_) => Err(PolicyError::NotBoolean),
            // Other commands may have the missing argument.
            Err(PolicyError::Cel(CelError::Evaluation { line }))
                if line.starts_with("Index out of bounds") =>
            {
                Ok(())
            }
            Err(why) => Err(why),
        }
    }

    async fn evaluate(
        &self,
        namespace: &str,
        policy: &str,
        command: Command,
    ) -> Result<Value, PolicyError> {
        bounded(policy).map_err(CelError::from)?;
        let (asked, until) = (policy.to_owned(), Instant::now() + POLICY_TIMEOUT);
        let work = move |expressions: &Expressions| {
            let compile = |text: &str| Expression::compile(text, &COMMAND);
            let expression = expressions.get_or_compile(&asked, compile);
            let expression = expression.as_ref().as_ref().map_err(Clone::clone)?;
            let variables = [
                ("argv", command.argv.into()),
                ("tty", Value::Bool(command.tty)),
                ("stdin", Value::Bool(command.stdin)),
                ("container", command.container.into()),
            ];
            expression.evaluate(variables, until)
        };
        Ok(self.in_turn(namespace, policy, work).await??)
    }

    /// Evaluates a text of a template's author in this namespace, once a slot is available.
    pub(crate) async fn in_turn<T: Send + 'static>(
        &self,
        namespace: &str,
        policy: &str,
        work: impl FnOnce(&Expressions) -> T + Send + 'static,
    ) -> Result<T, PolicyError> {
        if self.slots.in_backoff(namespace, policy, Instant::now()) {
            return Err(PolicyError::BackedOff);
        }
        let Ok(Some(slot)) = timeout(POLICY_TIMEOUT, self.slots.take(namespace)).await else {
            return Err(PolicyError::Busy);
        };
        match apart(slot, self.expressions.clone(), work).await {
            Err(Late::Timeout) => {
                self.slots.back_off(namespace, policy, Instant::now());
                Err(Late::Timeout.into())
            }
            answer => Ok(answer?),
        }
    }
}

/// The reason why a policy gives no decision.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error("the policy did not respond in time, and is not evaluated for {BACKOFF:?}")]
    BackedOff,
    #[error("other policies took longer than {POLICY_TIMEOUT:?}; try again")]
    Busy,
    #[error("must return true or false")]
    NotBoolean,
    #[error(transparent)]
    Late(#[from] Late),
    /// It exceeds a bound, does not compile, or fails.
    #[error(transparent)]
    Cel(#[from] CelError),
}

/// The reason why an evaluation has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Late {
    #[error("failed to start its thread: {0}")]
    NoThread(std::io::Error),
    #[error("its evaluation failed")]
    Failed,
    #[error("no response within {POLICY_TIMEOUT:?}")]
    Timeout,
}

/// Evaluates on a separate thread, which holds its slot until it is done.
pub(crate) async fn apart<T: Send + 'static>(
    slot: impl Send + 'static,
    expressions: Expressions,
    work: impl FnOnce(&Expressions) -> T + Send + 'static,
) -> Result<T, Late> {
    let (done, answer) = oneshot::channel();
    std::thread::Builder::new()
        .name("policy".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            // A panic ends only this thread; the receiver sees the closed channel.
            let _ = done.send(work(&expressions));
            drop(slot);
        })
        .map_err(Late::NoThread)?;
    match timeout(POLICY_TIMEOUT, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) => Err(Late::Failed),
        Err(_) => Err(Late::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use oz_api::Requester;
    use oz_core::connect::ConnectionKind;

    use super::*;

    async fn asked(policy: &str, argv: &[&str]) -> Policed {
        let argv: Vec<String> = argv.iter().map(|&one| one.to_owned()).collect();
        let user = Requester::default();
        let attempt = Attempt {
            now: jiff::Timestamp::UNIX_EPOCH,
            user: &user,
            namespace: "shop",
            pod: "web",
            way: ConnectionKind::Exec,
            container: None,
            argv: &argv,
            tty: true,
            stdin: false,
            ticket: None,
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
    async fn any_connection_policy_gives_result() {
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
    async fn oversized_or_deep_policy_is_refused_before_parsing() {
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
    async fn doubling_policy_is_refused_before_evaluation() {
        for policy in [
            format!("[argv[0]]{}.size() == 1", ".map(a,a+a)".repeat(60)),
            format!("[argv]{}.size() == 1", ".map(a,[a,a])".repeat(60)),
            format!("size(argv[0]{}) > 0", " + argv[0]".repeat(80)),
        ] {
            let answer = asked(&policy, &["sh"]).await;
            let Policed::Failed(why) = answer else {
                panic!("{policy}: {answer:?}");
            };
            assert!(why.starts_with("must not"), "{policy}: {why}");
        }
    }

    #[tokio::test]
    async fn a_regular_expression_costs_once_and_not_too_much() {
        let argv = vec!["x"; 1000];
        let large = asked(
            "argv.all(a, !a.matches('(((x{40}){40}y{40}){30})z'))",
            &argv,
        )
        .await;
        assert!(
            matches!(&large, Policed::Failed(why) if why.contains("size")),
            "{large:?}"
        );
        let argv = vec!["x"; 200];
        let often = "argv.all(a, a.matches('^[a-z0-9./-]{1,20}$') && !a.matches('secret'))";
        assert_eq!(asked(often, &argv).await, Policed::Allowed);
        let word = r"argv.all(a, a.matches(r'^[\w./-]{1,20}$'))";
        assert_eq!(asked(word, &argv).await, Policed::Allowed);
    }

    #[tokio::test]
    async fn timed_out_policy_is_not_reevaluated_and_others_are_evaluated() {
        let policies = Policies::default();
        let command = || Command {
            argv: vec!["sh".to_owned()],
            tty: true,
            stdin: true,
            container: "app".to_owned(),
        };
        policies.slots.back_off("shop", "true", Instant::now());
        let refused = policies.evaluate("shop", "true", command()).await;
        assert!(refused.unwrap_err().to_string().contains("in time"));
        for (namespace, policy) in [("bank", "true"), ("shop", "tty")] {
            let answer = policies.evaluate(namespace, policy, command()).await;
            assert_eq!(answer.unwrap(), Value::Bool(true));
        }
        // An evaluation that exceeds its timeout blocks its own namespace, and no other.
        let slot = policies.slots.take("shop").await;
        let refused = policies.evaluate("shop", "tty", command()).await;
        assert!(refused.unwrap_err().to_string().contains("other policies"));
        assert!(policies.evaluate("bank", "tty", command()).await.is_ok());
        drop(slot);
    }

    #[tokio::test]
    async fn invalid_connection_policy_is_rejected_when_written() {
        let policies = Policies::default();
        for (policy, right) in [
            ("argv[0] == 'ls'", true),
            ("argv[3] == 'x'", true),
            ("argv", false),
            ("nobody == 'x'", false),
            ("argv[0] ==", false),
        ] {
            assert_eq!(
                policies.check("shop", policy).await.is_ok(),
                right,
                "{policy}"
            );
        }
    }
}
