//! Sessions on a real node: the visible effects of oz on a session, and its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use oz_api::{Phase, conditions, labels};
use oz_e2e::{
    GrantedRequest, Options, Scene, System, TEMPLATE, Terminal, exec_request, on_a_terminal,
    records_in,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::{Action, Record};
use serde_json::json;

use crate::alone;
use crate::exec::{exec, with_input};

/// Processes that hide from a script that ends sessions, as a user may start them. All keep the session's streams
/// except the one with a file. The shell waits until two of them have left the session: when the shell leaves a
/// terminal, the hangup would end the process with the mark, and no stream would lead to the process without it.
const HIDDEN: &str = "nohup sleep 7001 >/tmp/out 2>&1 & setsid sleep 7002 & marked=$!; \
     env -i setsid sleep 7003 & bare=$!; env -u OZ_GRANT sleep 7004 & (sleep 7005 &) & sleep 7006 & \
     for p in $marked $bare; do until grep -q ^sleep /proc/$p/cmdline; do :; done; done;";

/// A script that kills the process that is to end the session, which has the session's mark.
const FIGHT: &str = "trap '' HUP TERM INT; killed=; for p in /proc/[0-9]*; do \
     case $(tr '\\0' ' ' <$p/cmdline) in timeout*) \
     if tr '\\0' '\\n' <$p/environ | grep -qx OZ_GRANT=$OZ_GRANT; \
     then kill -9 ${p#/proc/} && killed=1; fi;; esac; done 2>/dev/null; \
     [ $killed ] && echo here; while :; do sleep 1; done";

/// Returns the command lines of the processes of the pod that contain this text.
fn running(scene: &Scene, pod: &str, what: &str) -> Result<Vec<String>> {
    let listed = exec(
        scene.cluster,
        "admin",
        scene.name(),
        &[pod, "--", "ps", "-o", "args"],
    )
    .output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let lines = listed
        .lines()
        .filter(|line| line.contains(what) && !line.contains("grep"));
    Ok(lines.map(ToOwned::to_owned).collect())
}

/// Returns a value once no process of a session is left.
fn none_runs(scene: &Scene, pod: &str) -> Result<Option<()>> {
    let left = running(scene, pod, "sleep 700")?;
    anyhow::ensure!(left.is_empty(), "{left:#?}");
    Ok(Some(()))
}

pub(crate) fn session(scene: &Scene, arguments: &[&str]) -> Command {
    exec(scene.cluster, "alice", scene.name(), arguments)
}

/// Starts a session and waits until it reports its start.
fn open(mut command: Command) -> Result<Child> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    said(&mut child)?;
    Ok(child)
}

pub(crate) fn said(child: &mut Child) -> Result<()> {
    let mut output = BufReader::new(child.stdout.take().context("no standard output")?);
    let mut line = String::new();
    while !line.contains("here") {
        line.clear();
        anyhow::ensure!(output.read_line(&mut line)? > 0, "the session ended");
    }
    child.stdout = Some(output.into_inner());
    Ok(())
}

/// Creates a grant with sessions that end automatically.
pub(crate) async fn granted(scene: &Scene, name: &str, duration: &str) -> Result<GrantedRequest> {
    let alice = scene.requests("alice").await?;
    let asked = alice
        .granted(&exec_request(name, TEMPLATE, duration))
        .await?;
    let status = asked.status();
    let cut = conditions::find(&status.conditions, conditions::SESSION_TERMINATION)
        .context("not said")?;
    anyhow::ensure!(cut.status == "True", "{}", cut.message);
    Ok(asked)
}

pub(crate) async fn gone(child: &mut Child) -> Result<Timestamp> {
    eventually("the session to end", CONDITION_TIMEOUT, async || {
        Ok(child.try_wait()?.map(|_| Timestamp::now()))
    })
    .await
}

#[tokio::test]
async fn any_command_works_as_it_does_without_oz() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start_with(cluster, &Options::default().cutting()).await?;
    let scene = Scene::set(cluster, "any").await?;
    let asked = granted(&scene, "mine", "10m").await?;
    let pod = asked.pod();
    let big = "x".repeat(120_000);
    for argv in [
        &["echo", "plain"][..],
        &["echo", "a b", "'", "\"", "$HOME", "`id`", "\\n", "*"],
        &["printf", "%s|", "", "two\nlines", "", "-n", "--", "ü 漢"],
        &["echo", "-n", "-e", "x"],
        &["sh", "-c", "echo $0 $# \"$@\"; exit 7", "name", "a b", ""],
        &["sh", "-c", "kill -TERM $$"],
        // The API server takes a megabyte in all, and Linux 128 KiB in one.
        &["echo", &big, &big, &big, &big, &big, &big, &big],
        &["env"],
    ] {
        let arguments = [&[pod.as_str(), "--"], argv].concat();
        let ours = session(&scene, &arguments).output()?;
        let plain = exec(cluster, "admin", scene.name(), &arguments).output()?;
        assert_eq!(ours.status.code(), plain.status.code(), "{argv:?}");
        let (ours, plain) = (
            String::from_utf8(ours.stdout)?,
            String::from_utf8(plain.stdout)?,
        );
        if argv == ["env"] {
            assert!(ours.contains("OZ_GRANT=") && !plain.contains("OZ_GRANT="));
        } else {
            assert_eq!(ours, plain, "{argv:?}");
        }
    }
    let missing = session(&scene, &[&pod, "--", "no-such-program"]).output()?;
    assert_eq!(missing.status.code(), Some(127));

    let input: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let echoed = with_input(session(&scene, &["-i", &pod, "--", "cat"]), &input)?;
    assert!(echoed.status.success() && echoed.stdout == input);

    let directory = tempfile::tempdir()?;
    let (there, back) = (
        directory.path().join("there"),
        directory.path().join("back"),
    );
    std::fs::write(&there, &input)?;
    for (from, to) in [
        (there.display().to_string(), format!("{pod}:/tmp/copied")),
        (format!("{pod}:/tmp/copied"), back.display().to_string()),
    ] {
        let mut copy = cluster.kubectl("alice");
        copy.args(["cp", "-n", scene.name(), &from, &to]);
        let copied = copy.output()?;
        assert!(
            copied.status.success(),
            "{}",
            String::from_utf8_lossy(&copied.stderr)
        );
    }
    assert!(std::fs::read(back)? == input);

    let words = "echo here; read line; echo got $line; tty; stty size; exit 4";
    let terminal = session(&scene, &["-ti", &pod, "--", "sh", "-c", words]);
    let mut terminal = open(on_a_terminal(&terminal))?;
    terminal
        .stdin
        .as_mut()
        .context("no standard input")?
        .write_all(b"hello\r")?;
    let mut rest = String::new();
    terminal
        .stdout
        .take()
        .context("no standard output")?
        .read_to_string(&mut rest)?;
    assert!(
        rest.contains("got hello") && rest.contains("/dev/pts/"),
        "{rest}"
    );
    assert_eq!(terminal.wait()?.code(), Some(4));

    let shell = session(&scene, &["-ti", &pod, "--", "sh"]);
    let mut terminal = Terminal::start(&shell, 33, 101)?;
    terminal.is_sized(33, 101).await?;
    terminal.resize(44, 202)?;
    terminal.is_sized(44, 202).await?;
    terminal.interrupts().await?;
    terminal.keys("exit 6\r")?;
    assert_eq!(terminal.code().await?, 6);
    Ok(())
}

#[tokio::test]
async fn sessions_end_with_grant_despite_user_resistance() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let system = System::start_with(cluster, &Options::default().cutting()).await?;
    let scene = Scene::set(cluster, "cut").await?;
    let asked = granted(&scene, "mine", "25s").await?;
    let (pod, until) = (asked.pod(), asked.status().expires_at.context("no end")?);
    let stubborn = "trap '' HUP TERM INT; echo here; while :; do sleep 1; done";
    let leaving = format!("{HIDDEN} echo here; exit 0");
    let waiting = format!("{HIDDEN} echo here; sleep 7007");
    let mut sessions = Vec::new();
    for words in ["echo here; sleep 7000", stubborn, &leaving, &waiting] {
        let plain = session(&scene, &["-i", &pod, "--", "sh", "-c", words]);
        sessions.push(open(plain)?);
        let terminal = session(&scene, &["-ti", &pod, "--", "sh", "-c", words]);
        sessions.push(open(on_a_terminal(&terminal))?);
    }
    let alice = scene.requests("alice").await?;
    alice.phase("mine", Phase::Expired).await?;
    for session in &mut sessions {
        let ended = gone(session).await?;
        assert!(
            ended >= until - SignedDuration::from_secs(2),
            "{ended} is before {until}"
        );
    }
    eventually("the processes to be gone", CONDITION_TIMEOUT, async || {
        none_runs(&scene, &pod)
    })
    .await?;
    let cut = eventually("the end to be on record", CONDITION_TIMEOUT, async || {
        let mut records = records_in(&system.operator.process)?.into_iter();
        Ok(records.find(|one| one.action == Action::SessionTerminated))
    })
    .await?;
    assert!(cut.details["ended"].parse::<u32>()? > 0, "{cut:?}");
    assert_eq!(cut.details["left"], "0", "{cut:?}");
    Ok(())
}

#[tokio::test]
async fn session_ends_although_user_killed_terminating_process() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let system = System::start_with(cluster, &Options::default().cutting()).await?;
    let scene = Scene::set(cluster, "fight").await?;
    let asked = granted(&scene, "mine", "25s").await?;
    let (pod, until) = (asked.pod(), asked.status().expires_at.context("no end")?);
    let plain = session(&scene, &["-i", &pod, "--", "sh", "-c", FIGHT]);
    let terminal = session(&scene, &["-ti", &pod, "--", "sh", "-c", FIGHT]);
    let mut sessions = [open(plain)?, open(on_a_terminal(&terminal))?];
    for session in &mut sessions {
        let ended = gone(session).await?;
        assert!(ended >= until, "{ended} is before {until}");
    }
    eventually("the end to be on record", CONDITION_TIMEOUT, async || {
        let records = records_in(&system.operator.process)?;
        let mut cut = records
            .iter()
            .filter(|one| one.action == Action::SessionTerminated);
        Ok(cut.any(|one| one.details["ended"] != "0").then_some(()))
    })
    .await
}

#[tokio::test]
async fn revoking_ends_every_process_of_the_grant_and_no_other() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let system = System::start_with(cluster, &Options::default().cutting()).await?;
    let scene = Scene::set(cluster, "revoke").await?;
    let asked = granted(&scene, "mine", "10m").await?;
    let pod = asked.pod();
    let theirs = exec(
        cluster,
        "admin",
        scene.name(),
        &["-i", &pod, "--", "sh", "-c", "echo here; sleep 8001"],
    );
    let mut theirs = open(theirs)?;
    let words = format!("{HIDDEN} echo here; sleep 7007");
    let mut sessions = vec![open(session(
        &scene,
        &["-i", &pod, "--", "sh", "-c", &words],
    ))?];
    let terminal = session(&scene, &["-ti", &pod, "--", "sh", "-c", &words]);
    sessions.push(open(on_a_terminal(&terminal))?);
    // The limit: a process that also drops its streams cannot be distinguished from the application.
    let lost = "env -i setsid sleep 9001 </dev/null >/dev/null 2>&1 & echo here; sleep 7008";
    sessions.push(open(session(
        &scene,
        &["-i", &pod, "--", "sh", "-c", lost],
    ))?);
    assert!(!running(&scene, &pod, "sleep 7003")?.is_empty());

    let alice = scene.requests("alice").await?;
    alice.api().delete("mine", &DeleteParams::default()).await?;
    for session in &mut sessions {
        gone(session).await?;
    }
    eventually("the processes to be gone", CONDITION_TIMEOUT, async || {
        none_runs(&scene, &pod)
    })
    .await?;
    assert!(
        theirs.try_wait()?.is_none(),
        "somebody else's session was ended"
    );
    assert!(!running(&scene, &pod, "sleep 8001")?.is_empty());

    // This session is like one that was allowed before the end, with a client that was slow to open its streams.
    let grant = asked.request.uid().context("no UID")?;
    let words = format!("export OZ_GRANT={grant}; exec sh -c 'echo here; sleep 7009; :'");
    let late = exec(
        cluster,
        "admin",
        scene.name(),
        &["-i", &pod, "--", "sh", "-c", &words],
    );
    gone(&mut open(late)?).await?;
    eventually(
        "the late end to be on record",
        CONDITION_TIMEOUT,
        async || {
            let mut records = records_in(&system.operator.process)?.into_iter();
            let late = |record: &Record| {
                record.action == Action::SessionTerminated
                    && record.message.contains("began after the expiry")
            };
            Ok(records.find(late))
        },
    )
    .await?;
    theirs.kill()?;
    theirs.wait()?;
    Ok(())
}

/// The decision is deleted with the Role: the RoleBinding has it as well, and where that was changed too, the status
/// names the pod.
#[tokio::test]
async fn deleting_the_role_of_a_grant_ends_its_sessions() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let _system = System::start_with(cluster, &Options::default().cutting()).await?;
    let scene = Scene::set(cluster, "roleless").await?;
    let alice = scene.requests("alice").await?;
    for (name, forgotten) in [("bound", false), ("forgotten", true)] {
        let asked = granted(&scene, name, "10m").await?;
        let words = format!("{HIDDEN} echo here; sleep 7007");
        let pod = asked.pod();
        let mut open = open(session(&scene, &["-i", &pod, "--", "sh", "-c", &words]))?;
        let object = asked.object_name();
        if forgotten {
            let change = json!({"metadata": {"annotations": {labels::GRANT: null}}});
            let change = Patch::Merge(&change);
            let bindings = scene.api::<RoleBinding>();
            bindings
                .patch(&object, &PatchParams::default(), &change)
                .await?;
        }
        let roles = scene.api::<Role>();
        roles
            .delete(&asked.role_name(), &DeleteParams::default())
            .await?;
        alice.phase(name, Phase::Revoked).await?;
        gone(&mut open).await?;
        eventually("the processes to be gone", CONDITION_TIMEOUT, async || {
            none_runs(&scene, &pod)
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn without_the_operator_sessions_end_by_themselves() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let mut system = System::start_with(cluster, &Options::default().cutting()).await?;
    let scene = Scene::set(cluster, "alone").await?;
    let asked = granted(&scene, "mine", "20s").await?;
    let (pod, until) = (asked.pod(), asked.status().expires_at.context("no end")?);
    let stubborn = "trap '' HUP TERM INT; echo here; while :; do sleep 1; done";
    let mut sessions = Vec::new();
    for words in ["echo here; exec sleep 7000", stubborn] {
        sessions.push(open(session(
            &scene,
            &["-i", &pod, "--", "sh", "-c", words],
        ))?);
        let terminal = session(&scene, &["-ti", &pod, "--", "sh", "-c", words]);
        sessions.push(open(on_a_terminal(&terminal))?);
    }
    system.operator.process.kill9();
    for session in &mut sessions {
        let ended = gone(session).await?;
        assert!(
            ended >= until - SignedDuration::from_secs(2),
            "{ended} is before {until}"
        );
    }
    Ok(())
}
