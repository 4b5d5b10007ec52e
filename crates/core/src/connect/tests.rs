//! Table tests of the connections that grants permit.

use jiff::SignedDuration;
use k8s_openapi::api::rbac::v1::Subject;
use oz_api::Timeout;
use oz_api::duration::GoDuration;
use oz_trail::{PodRef, RequestRef};

use super::cut::{Cut, MARK, probed, session, wrapped};
use super::script::answers;
use super::*;
use crate::access::grant::{OwnPod, SessionTerms};
use crate::access::window::Window;
use crate::gate::GateAccount;

const START: &str = "2026-01-01T12:00:00Z";

pub(crate) fn timestamp(seconds: i64) -> Timestamp {
    START.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

pub(crate) fn user(name: &str, groups: &[&str]) -> Requester {
    Requester {
        user: name.into(),
        uid: String::new(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
    }
}

fn subject(kind: &str, name: &str) -> Subject {
    Subject {
        kind: kind.into(),
        name: name.into(),
        namespace: (kind == "ServiceAccount").then(|| "ci".to_owned()),
        api_group: None,
    }
}

/// Returns a grant with which alice may exec into db-0 for five minutes.
pub(crate) fn grant() -> Grant {
    let five = GoDuration::from_secs(300);
    Grant {
        request: RequestRef {
            kind: "ExecAccessRequest".into(),
            namespace: "shop".into(),
            name: "debug".into(),
            uid: "0a1b2c3d-0000-4000-8000-000000000001".into(),
        },
        requester: user("alice", &["devs"]),
        subjects: vec![subject("User", "alice")],
        pod: PodRef {
            name: "db-0".into(),
            uid: "pod-uid".into(),
            container: None,
        },
        not_ready: false,
        operations: vec![Operation::Exec],
        window: Window::new(timestamp(0), Some(five), five, five),
        granted_at: timestamp(0),
        template: "shell".into(),
        template_digest: String::new(),
        revoke_on_template_change: false,
        access_message: String::new(),
        reason: None,
        following: None,
        sessions: SessionTerms {
            of_pod: vec!["app".into(), "sidecar".into()],
            ..SessionTerms::default()
        },
        own_pod: None,
        stamp: None,
        role: None,
        approvals: Vec::new(),
        on_call: None,
        policies: Vec::new(),
        ticket: None,
        emergency: None,
        rules: None,
    }
}

/// A row: the differences from alice's exec into her pod.
struct Row {
    who: Requester,
    namespace: &'static str,
    pod: &'static str,
    pod_now: Named<'static>,
    way: ConnectionKind,
    container: Option<&'static str>,
    now: Timestamp,
    ended: bool,
    past: Option<Phase>,
    grants: Vec<Grant>,
}

impl Row {
    fn plain() -> Self {
        Self {
            who: user("alice", &["devs"]),
            namespace: "shop",
            pod: "db-0",
            pod_now: Named::Pod("pod-uid"),
            way: ConnectionKind::Exec,
            container: None,
            now: timestamp(10),
            ended: false,
            past: None,
            grants: vec![grant()],
        }
    }

    fn reason(&self) -> Option<&'static str> {
        let ended = self.ended;
        let standings: Vec<GrantState> = self
            .grants
            .iter()
            .cloned()
            .map(|grant| GrantState {
                grant: Arc::new(grant),
                ended,
            })
            .collect();
        let known = ConnectionFacts {
            pod: self.pod_now,
            standings: &standings,
            past: self.past.map(|phase| Past {
                request: "old".into(),
                template: "shell".into(),
                phase,
            }),
        };
        let attempt = Attempt {
            now: self.now,
            user: &self.who,
            namespace: self.namespace,
            pod: self.pod,
            way: self.way,
            container: self.container,
            argv: &[],
            tty: false,
            stdin: false,
            ticket: None,
        };
        let refusal = matching(&attempt, &known).err()?;
        // Each refusal contains the next step.
        let helps = ["ozctl ", " -c", "try again"];
        let helped = helps.iter().any(|help| refusal.message.contains(help));
        assert!(helped, "{}", refusal.message);
        Some(refusal.reason)
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn every_row_of_who_may_connect() {
    type Change = fn(&mut Row);
    let rows: [(&str, Change, Option<&str>); 45] = [
        ("active", |_| (), None),
        (
            "the last nanosecond",
            |row| row.now = timestamp(300) - SignedDuration::from_nanos(1),
            None,
        ),
        ("expired", |row| row.now = timestamp(300), Some("Expired")),
        (
            "long expired",
            |row| row.now = timestamp(90_000),
            Some("Expired"),
        ),
        ("revoked", |row| row.ended = true, Some("Revoked")),
        (
            "revoked, then expired",
            |row| (row.ended, row.now) = (true, timestamp(301)),
            Some("Expired"),
        ),
        ("other pod", |row| row.pod = "db-1", Some("PodMismatch")),
        (
            "same name, other UID",
            |row| row.pod_now = Named::Pod("another"),
            Some("PodReplaced"),
        ),
        (
            "no such pod",
            |row| row.pod_now = Named::Nothing,
            Some("PodNotFound"),
        ),
        (
            "which pod is not known",
            |row| row.pod_now = Named::Unread("no answer"),
            Some("PodLookupFailed"),
        ),
        (
            "other namespace",
            |row| row.namespace = "bank",
            Some("NoGrant"),
        ),
        (
            "other user",
            |row| row.who = user("bob", &["devs"]),
            Some("NoGrant"),
        ),
        (
            "a user named like a group",
            |row| row.who = user("devs", &[]),
            Some("NoGrant"),
        ),
        (
            "a user named alike",
            |row| row.who = user("Alice", &[]),
            Some("NoGrant"),
        ),
        ("nobody", |row| row.who = user("", &[]), Some("NoGrant")),
        (
            "a group named like the user",
            |row| row.who = user("bob", &["alice"]),
            Some("NoGrant"),
        ),
        (
            "service account",
            |row| row.who = user("system:serviceaccount:ci:alice", &[]),
            Some("NoGrant"),
        ),
        (
            "service account with a grant",
            |row| {
                row.who = user("system:serviceaccount:ci:bot", &[]);
                row.grants[0].subjects = vec![subject("ServiceAccount", "bot")];
            },
            None,
        ),
        (
            "the service account of that name elsewhere",
            |row| {
                row.who = user("system:serviceaccount:shop:bot", &[]);
                row.grants[0].subjects = vec![subject("ServiceAccount", "bot")];
            },
            Some("NoGrant"),
        ),
        (
            "bound by group",
            |row| {
                row.who = user("bob", &["devs"]);
                row.grants[0].subjects = vec![subject("Group", "devs")];
            },
            None,
        ),
        ("no grant", |row| row.grants.clear(), Some("NoGrant")),
        (
            "a grant that is over and gone",
            |row| {
                row.grants.clear();
                row.past = Some(Phase::Expired);
            },
            Some("Expired"),
        ),
        (
            "a grant that was revoked and is gone",
            |row| {
                row.grants.clear();
                row.past = Some(Phase::Revoked);
            },
            Some("Revoked"),
        ),
        (
            "attach without it",
            |row| row.way = ConnectionKind::Attach,
            Some("OperationNotGranted"),
        ),
        (
            "port-forward without it",
            |row| row.way = ConnectionKind::PortForward,
            Some("OperationNotGranted"),
        ),
        (
            "attach with it",
            |row| {
                row.way = ConnectionKind::Attach;
                row.grants[0].operations = vec![Operation::Attach];
            },
            None,
        ),
        (
            "port-forward with it",
            |row| {
                row.way = ConnectionKind::PortForward;
                row.grants[0].operations = vec![Operation::PortForward];
            },
            None,
        ),
        (
            "exec where only logs are granted",
            |row| row.grants[0].operations = vec![Operation::Log],
            Some("OperationNotGranted"),
        ),
        (
            "a proxy without port-forward",
            |row| row.way = ConnectionKind::Proxy,
            Some("OperationNotGranted"),
        ),
        (
            "a proxy where port-forward is granted, whatever the containers",
            |row| {
                row.way = ConnectionKind::Proxy;
                row.grants[0].operations = vec![Operation::PortForward];
                row.grants[0].sessions.containers = vec!["app".into()];
            },
            None,
        ),
        (
            "a proxy to another pod",
            |row| {
                row.way = ConnectionKind::Proxy;
                row.pod = "db-1";
                row.grants[0].operations = vec![Operation::PortForward];
            },
            Some("PodMismatch"),
        ),
        (
            "a proxy to a service that is called like the pod",
            |row| {
                row.way = ConnectionKind::ServiceProxy;
                row.grants[0].operations = vec![Operation::PortForward];
            },
            Some("ServiceProxyNotGranted"),
        ),
        (
            "another image in the pod, whatever is granted",
            |row| row.way = ConnectionKind::Image,
            Some("ImageNotGranted"),
        ),
        (
            "other limits for the pod, whatever is granted",
            |row| row.way = ConnectionKind::Resize,
            Some("ResizeNotGranted"),
        ),
        (
            "an ephemeral container, whatever is granted",
            |row| row.way = ConnectionKind::EphemeralContainer,
            Some("EphemeralContainersNotGranted"),
        ),
        (
            "a container, where all are granted",
            |row| row.container = Some("sidecar"),
            None,
        ),
        (
            "a listed container",
            |row| {
                row.grants[0].sessions.containers = vec!["app".into()];
                row.container = Some("app");
            },
            None,
        ),
        (
            "a container that is not listed",
            |row| {
                row.grants[0].sessions.containers = vec!["app".into()];
                row.container = Some("sidecar");
            },
            Some("ContainerNotGranted"),
        ),
        (
            "no container named among several",
            |row| row.grants[0].sessions.containers = vec!["app".into()],
            Some("ContainerNotNamed"),
        ),
        (
            "no container named where there is one",
            |row| {
                row.grants[0].sessions.containers = vec!["app".into()];
                row.grants[0].sessions.of_pod = vec!["app".into()];
            },
            None,
        ),
        (
            "another container than the request asked for",
            |row| {
                row.grants[0].pod.container = Some("app".into());
                row.container = Some("sidecar");
            },
            Some("ContainerNotGranted"),
        ),
        (
            "an empty container name is none",
            |row| {
                row.grants[0].pod.container = Some("app".into());
                row.container = Some("");
            },
            Some("ContainerNotNamed"),
        ),
        (
            "ports are not a container's",
            |row| {
                row.way = ConnectionKind::PortForward;
                row.grants[0].operations = vec![Operation::PortForward];
                row.grants[0].sessions.containers = vec!["app".into()];
            },
            None,
        ),
        (
            "one grant over, another not",
            |row| {
                let mut longer = grant();
                let ten = GoDuration::from_secs(600);
                longer.window = Window::new(timestamp(0), Some(ten), ten, ten);
                row.grants.push(longer);
                row.now = timestamp(400);
            },
            None,
        ),
        (
            "the nearest grant gives the reason",
            |row| {
                let mut other = grant();
                other.pod.name = "db-1".into();
                row.grants.insert(0, other);
                row.now = timestamp(400);
            },
            Some("Expired"),
        ),
    ];
    for (name, change, reason) in rows {
        let mut row = Row::plain();
        change(&mut row);
        assert_eq!(row.reason(), reason, "{name}");
    }
}

#[test]
fn a_policy_that_cannot_be_evaluated_refuses_as_one_that_says_no() {
    let reason = |answer| {
        policed(&grant(), answer)
            .err()
            .map(|refusal| refusal.reason)
    };
    assert_eq!(reason(Policed::Allowed), None);
    assert_eq!(reason(Policed::Refused), Some("CommandNotAllowed"));
    assert_eq!(
        reason(Policed::Failed("too large".into())),
        Some("CommandPolicyFailed")
    );
}

#[test]
fn arguments_that_the_api_server_mangled_are_refused() {
    assert!(unmangled(&["echo".into(), "ü 漢 \n".into(), String::new()]).is_ok());
    let refusal = unmangled(&["echo".into(), "a\u{FFFD}".into()]).unwrap_err();
    assert_eq!(refusal.reason, "ArgumentsNotUtf8");
    assert!(
        refusal.message.contains("argument 1"),
        "{}",
        refusal.message
    );
}

fn attempt<'a>(
    user: &'a Requester,
    way: ConnectionKind,
    container: Option<&'a str>,
    argv: &'a [String],
) -> Attempt<'a> {
    Attempt {
        now: timestamp(10),
        user,
        namespace: "shop",
        pod: "db-0",
        way,
        container,
        argv,
        tty: false,
        stdin: false,
        ticket: None,
    }
}

#[test]
fn grant_through_gate_admits_gate_with_session_token_only() {
    let gate: GateAccount = "oz-system/oz-gate".parse().unwrap();
    let mut through = grant();
    through.sessions.gate = Some(gate.clone());
    let (alice, itself) = (user("alice", &["devs"]), user(&gate.user(), &[]));
    let ticket = Ticket::new(&through, &alice, timestamp(10));
    let others = Ticket {
        request: "another".into(),
        ..ticket.clone()
    };
    let bound = through.bound();
    assert!(binds(&bound, &itself) && !binds(&bound, &alice));
    let standings = [GrantState {
        grant: Arc::new(through),
        ended: false,
    }];
    let known = ConnectionFacts {
        pod: Named::Pod("pod-uid"),
        standings: &standings,
        past: None,
    };
    let stranger = user("system:serviceaccount:ci:oz-gate", &[]);
    for (who, ticket, expected) in [
        (&itself, Some(&ticket), None),
        (&itself, None, Some("NoGrant")),
        (&itself, Some(&others), Some("NoGrant")),
        (&alice, None, Some("GateRequired")),
        (&alice, Some(&ticket), Some("GateRequired")),
        (&stranger, Some(&ticket), Some("NoGrant")),
    ] {
        let attempt = Attempt {
            ticket,
            ..attempt(who, ConnectionKind::Exec, Some("app"), &[])
        };
        let reason = matching(&attempt, &known).err().map(|why| why.reason);
        assert_eq!(reason, expected, "{} {ticket:?}", who.user);
        if expected.is_none() {
            // The audit record names the person, with all that is known of them.
            assert_eq!(attempt.person_of(&standings[0].grant), alice);
        }
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn a_container_is_added_and_entered_by_the_gate_alone_with_a_grant_that_has_debug() {
    let gate: GateAccount = "oz-system/oz-gate".parse().unwrap();
    let (alice, itself) = (user("alice", &["devs"]), user(&gate.user(), &[]));
    let mut grant = grant();
    grant.sessions.containers = vec!["app".into()];
    grant.operations = vec![Operation::Debug];
    let mut through = grant.clone();
    through.sessions.gate = Some(gate);
    let mut without = through.clone();
    without.operations = vec![Operation::Exec];
    let ticket = Ticket::new(&through, &alice, timestamp(10));
    let entering = ticket.clone().to(Some("debugger-1"));
    let (adds, attaches, execs) = (
        ConnectionKind::EphemeralContainer,
        ConnectionKind::Attach,
        ConnectionKind::Exec,
    );
    let (direct, other) = (
        Some("EphemeralContainersNotGranted"),
        Some("OperationNotGranted"),
    );
    for (grant, who, ticket, way, container, expected) in [
        (&through, &itself, Some(&ticket), adds, "debugger-1", None),
        (&through, &itself, None, adds, "debugger-1", direct),
        (&through, &alice, None, adds, "debugger-1", direct),
        (&grant, &alice, None, adds, "debugger-1", direct),
        (
            &grant,
            &alice,
            Some(&ticket),
            adds,
            "debugger-1",
            Some("GateRequired"),
        ),
        (&without, &itself, Some(&ticket), adds, "debugger-1", other),
        (
            &through,
            &itself,
            Some(&entering),
            attaches,
            "debugger-1",
            None,
        ),
        (
            &through,
            &itself,
            Some(&entering),
            attaches,
            "debugger-2",
            other,
        ),
        (&through, &itself, Some(&entering), attaches, "app", other),
        (
            &through,
            &itself,
            Some(&ticket),
            attaches,
            "debugger-1",
            other,
        ),
        (
            &through,
            &itself,
            Some(&entering),
            execs,
            "debugger-1",
            other,
        ),
        (
            &through,
            &alice,
            Some(&entering),
            attaches,
            "debugger-1",
            Some("GateRequired"),
        ),
        (
            &without,
            &itself,
            Some(&entering),
            attaches,
            "debugger-1",
            other,
        ),
    ] {
        let standings = [GrantState {
            grant: Arc::new(grant.clone()),
            ended: false,
        }];
        let known = ConnectionFacts {
            pod: Named::Pod("pod-uid"),
            standings: &standings,
            past: None,
        };
        let attempt = Attempt {
            ticket,
            ..attempt(who, way, Some(container), &[])
        };
        let reason = matching(&attempt, &known).err().map(|why| why.reason);
        assert_eq!(
            reason, expected,
            "{} {way:?} {container} {ticket:?}",
            who.user
        );
    }
}

#[test]
fn only_a_probed_container_is_wrapped_and_only_best_effort_lets_others_in() {
    let alice = user("alice", &[]);
    let mut grant = grant();
    grant
        .sessions
        .timeouts
        .insert("app".into(), Timeout::default());
    let argv = ["ls".to_owned()];
    let how =
        |grant: &Grant, way, container| session(&attempt(&alice, way, container, &argv), grant);
    assert!(matches!(
        how(&grant, ConnectionKind::Exec, Some("app")),
        Ok(Cut::ByItself(_))
    ));
    for (way, container) in [
        (ConnectionKind::Exec, Some("sidecar")),
        (ConnectionKind::Exec, None),
        (ConnectionKind::Attach, Some("app")),
        (ConnectionKind::PortForward, None),
    ] {
        grant.sessions.required = false;
        assert!(
            matches!(how(&grant, way, container), Ok(Cut::Not(_))),
            "{way:?} {container:?}"
        );
        grant.sessions.required = true;
        let refusal = how(&grant, way, container).unwrap_err();
        assert_eq!(
            refusal.reason, "SessionNotTerminable",
            "{way:?} {container:?}"
        );
    }
    // With a shell alone, the operator can still find the processes that it must end.
    grant.sessions.shells = vec!["sidecar".into()];
    let refusal = how(&grant, ConnectionKind::Exec, Some("sidecar")).unwrap_err();
    assert_eq!(refusal.reason, "SessionNotTerminable");
    grant.sessions.required = false;
    let Ok(Cut::Marked(command, _)) = how(&grant, ConnectionKind::Exec, Some("sidecar")) else {
        panic!("not marked");
    };
    assert!(command[2].starts_with("OZ_GRANT="), "{command:?}");
    assert_eq!(command[4..], argv);
    // A dedicated pod ends as a whole.
    grant.own_pod = Some(OwnPod::default());
    assert_eq!(how(&grant, ConnectionKind::Attach, None), Ok(Cut::WithPod));
}

#[test]
fn the_wrapped_command_has_the_mark_the_end_and_every_argument_as_it_was() {
    let argv: Vec<String> = ["-sh", "", "a b", "'\"$x`", "line\nfeed", "--"]
        .map(str::to_owned)
        .to_vec();
    let all = Timeout {
        foreground: true,
        kill_after: true,
        fractions: true,
    };
    let script = |timeout: &Timeout, left: i64, tty| {
        let until = timestamp(0) + SignedDuration::from_millis(left);
        let command = wrapped(timeout, "id-1", timestamp(0), until, tty, &argv);
        assert_eq!(command[..2], ["/bin/sh", "-c"]);
        assert_eq!(command[3], "oz");
        assert_eq!(command[4..], argv);
        let script = command[2]
            .strip_prefix("OZ_GRANT=id-1; export OZ_GRANT; oz_left=")
            .unwrap();
        let (left, script) = script.split_once("; ").unwrap();
        let (_, words) = script.split_once("; exec ").unwrap();
        let words = words.strip_suffix(" \"$oz_left\" \"$@\"").unwrap();
        format!("{words} {left}")
    };
    let plain = Timeout {
        foreground: false,
        ..all
    };
    let whole = Timeout {
        fractions: false,
        ..plain
    };
    for (timeout, left, tty, expected) in [
        (all, 5500, true, "timeout --foreground -k 1 -s HUP 4.500"),
        (all, 5500, false, "timeout -k 1 -s HUP 4.500"),
        (plain, 5500, true, "timeout -k 1 -s HUP 4.500"),
        (whole, 5900, false, "timeout -k 1 -s HUP 4"),
        (
            Timeout {
                kill_after: false,
                ..whole
            },
            5900,
            false,
            "timeout -s KILL 5",
        ),
        // Too late for a notice.
        (plain, 1500, false, "timeout -s KILL 1.500"),
        // Zero would mean no limit.
        (plain, 0, false, "timeout -s KILL 0.001"),
        (plain, -5000, false, "timeout -s KILL 0.001"),
        (whole, 200, false, "timeout -s KILL 1"),
    ] {
        assert_eq!(script(&timeout, left, tty), expected);
    }
}

/// The user did not type `timeout`.
#[test]
fn a_command_that_is_not_there_is_reported_by_its_own_name_alone() {
    let able = Timeout {
        foreground: true,
        kill_after: true,
        fractions: true,
    };
    let run = |word: &str| {
        let until = timestamp(0) + SignedDuration::from_mins(5);
        let argv = [word.to_owned(), "argument".to_owned()];
        let command = wrapped(&able, "id-1", timestamp(0), until, false, &argv);
        let output = std::process::Command::new(&command[0])
            .args(&command[1..])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said.trim_end().to_owned())
    };
    for (word, said) in [
        (
            "no-such-command",
            "exec: \"no-such-command\": executable file not found in $PATH",
        ),
        (
            "/no/such/command",
            "exec: \"/no/such/command\": stat /no/such/command: no such file or directory",
        ),
    ] {
        assert_eq!(run(word), (Some(127), said.to_owned()));
    }
    for word in ["echo", "/bin/echo"] {
        assert_eq!(run(word), (Some(0), String::new()));
    }
}

/// The order matters since few grants have a session where hundreds end.
#[test]
fn grants_with_processes_are_ended_before_those_without() {
    let process = std::process::id();
    let ids = ["a", "b", "c", "d"].map(|which| format!("{which}-{process}"));
    let theirs = |id: &String| {
        let mut command = std::process::Command::new("sleep");
        command.arg("60").env(MARK, id).spawn().unwrap()
    };
    let mut running = [&ids[1], &ids[3]].map(theirs);
    let age = SignedDuration::from_secs(5);
    let endings = ids.iter().map(|grant| script::Ending { grant, age });
    let endings: Vec<_> = endings.collect();
    let command = script::in_turn("echo \"ended $2 left 0\"", &endings);
    let output = std::process::Command::new(&command[0])
        .args(&command[1..])
        .output();
    for child in &mut running {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    let order: Vec<&str> = said
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(order, [&*ids[1], &*ids[3], &*ids[0], &*ids[2]]);
    let ended = script::Ended { ended: 5, left: 0 };
    assert!(script::answers(&said).values().all(|one| *one == ended));
}

/// Runs the wrapped command in a shell, with functions that replace `timeout` and `date`.
#[test]
fn a_session_that_is_opened_late_ends_no_later_for_it() {
    let run = |timeout: Option<&Timeout>, left: i64, date: &str| {
        let until = timestamp(0) + SignedDuration::from_millis(left);
        let argv = ["echo".to_owned(), "a b".to_owned()];
        let command = match timeout {
            Some(timeout) => wrapped(timeout, "id-1", timestamp(0), until, false, &argv),
            None => {
                let user = user("alice", &[]);
                let mut grant = grant();
                grant.window.until = until;
                grant.sessions.shells = vec!["app".into()];
                match session(
                    &attempt(&user, ConnectionKind::Exec, Some("app"), &argv),
                    &grant,
                ) {
                    Ok(Cut::Marked(command, _)) => command,
                    other => panic!("{other:?}"),
                }
            }
        };
        // The shell runs only the functions and no program: `exec` would not find them.
        let script = command[2].replace("exec ", "");
        let functions = format!("date() {{ {date}; }}; timeout() {{ echo \"$@\"; }}; ");
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &(functions + &script), "oz"])
            .args(&command[4..])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), said.trim_end().to_owned())
    };
    let able = Timeout {
        foreground: true,
        kill_after: true,
        fractions: true,
    };
    let second = timestamp(0).as_second();
    let date = |later: i64| format!("echo {}", second + later);
    let ran = |words: &str| (Some(0), words.to_owned());
    let over = (Some(137), String::new());
    for (later, expected) in [
        (date(0), ran("-k 1 -s HUP 29.500 echo a b")),
        // A clock that is behind does not extend the session.
        (date(-90), ran("-k 1 -s HUP 29.500 echo a b")),
        (date(20), ran("-k 1 -s HUP 10 echo a b")),
        (date(30), over.clone()),
        (date(35), over.clone()),
        // No session starts this late: the clock is wrong.
        (date(500), ran("-k 1 -s HUP 29.500 echo a b")),
        ("return 127".to_owned(), ran("-k 1 -s HUP 29.500 echo a b")),
        ("echo June".to_owned(), ran("-k 1 -s HUP 29.500 echo a b")),
    ] {
        assert_eq!(run(Some(&able), 30_500, &later), expected, "{later}");
    }
    // Too late for a notice.
    assert_eq!(
        run(Some(&able), 500, &date(0)),
        ran("-s KILL 0.500 echo a b")
    );
    assert_eq!(run(Some(&able), 500, &date(2)), over);
    // Marked only.
    assert_eq!(run(None, 30_500, &date(20)), ran("a b"));
    assert_eq!(run(None, 30_500, &date(31)), over);
    assert_eq!(run(None, 30_500, &date(500)), ran("a b"));
}

#[test]
fn nothing_in_an_id_means_anything_to_the_shell() {
    let command = wrapped(
        &Timeout::default(),
        "a;rm -rf $(x)'",
        timestamp(0),
        timestamp(9),
        false,
        &[],
    );
    assert!(
        command[2].starts_with("OZ_GRANT=arm-rfx; "),
        "{}",
        command[2]
    );
}

#[test]
fn a_probe_is_believed_for_what_it_says() {
    let probe = |text: &str| probed("app", "sha256:1", text);
    let busybox = probe("shell\nplain killafter\nfractions\n")
        .timeout
        .unwrap();
    assert!(!busybox.foreground && busybox.kill_after && busybox.fractions);
    let gnu = probe("shell\nforeground killafter\nfractions\n")
        .timeout
        .unwrap();
    assert!(gnu.foreground);
    assert_eq!(
        (probe("shell\n").shell, probe("shell\n").timeout),
        (true, None)
    );
    assert!(!probe("").shell);
}

#[test]
fn an_answer_is_for_the_grant_before_it_and_one_that_did_not_come_is_none() {
    let found = answers("a . . ended 2 left 0\nb c noise\nc ended 0 left 1\nd . ended 7");
    let found: Vec<_> = found
        .iter()
        .map(|(id, it)| (id.as_str(), it.ended, it.left))
        .collect();
    assert_eq!(found, [("a", 2, 0), ("c", 0, 1)]);
    for text in [
        "",
        "ended",
        "ended 1 left 0",
        "a ended x left 0",
        "sh: not found",
    ] {
        assert!(answers(text).is_empty(), "{text}");
    }
}
