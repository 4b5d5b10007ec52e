//! Containers of every kind, together in one pod: with another shell and another `timeout` than busybox has, without
//! either, with a read-only root, with a user who is not root. A session that can be made to end automatically does;
//! otherwise oz reports that, or denies access.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::SignedDuration;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use oz_api::{Operation, Sessions, TargetKind, conditions};
use oz_e2e::{
    GrantedRequest, Options, Scene, Session, System, exec_request, exec_template, on_a_terminal,
    records_in, run, running_grants,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, Image, eventually, fixtures};
use oz_trail::Action;
use serde_json::json;

use crate::alone;
use crate::exec::exec;

const BUSYBOX: &str = "/bin/busybox";
/// The containers in which a session can be made to end.
const ABLE: [&str; 4] = ["app", "gnu", "readonly", "nonroot"];
/// The containers in which a session cannot be made to end.
const UNABLE: [&str; 2] = ["shellless", "timeoutless"];

/// Adds a program of this machine to an image, with the libraries that it needs.
fn with_program(mut image: Image, path: &str, program: &str) -> Result<Image> {
    let mut ldd = Command::new("ldd");
    ldd.arg(program);
    for library in run(ldd)?
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        let inside = library.trim_start_matches('/');
        image = image.file(inside, 0o755, &std::fs::read(library)?)?;
    }
    image.file(path, 0o755, &std::fs::read(Path::new(program))?)
}

/// Imports images without a shell, and with the shell of this machine, with and without its `timeout`.
fn import(cluster: &Cluster) -> Result<()> {
    let busybox = |image: Image| image.file(&BUSYBOX[1..], 0o755, &std::fs::read(BUSYBOX)?);
    let wait = [BUSYBOX, "sleep", "86400"];
    cluster.import_image(busybox(Image::new("example.test/shellless:1", &wait))?)?;
    let shell = |image| with_program(image, "bin/sh", "/bin/sh");
    let timeoutless = Image::new("example.test/timeoutless:1", &wait);
    cluster.import_image(shell(busybox(timeoutless)?)?)?;
    let gnu = shell(Image::busybox("example.test/gnu:1")?)?;
    cluster.import_image(with_program(gnu, "bin/timeout", "/usr/bin/timeout")?)
}

/// Creates a pod with one of each.
async fn zoo(scene: &Scene) -> Result<()> {
    let container = |name: &str, image: &str| json!({ "name": name, "image": image });
    let mut readonly = container("readonly", fixtures::IMAGE);
    readonly["securityContext"] = json!({ "readOnlyRootFilesystem": true });
    let mut nonroot = container("nonroot", fixtures::IMAGE);
    nonroot["securityContext"] = json!({ "runAsUser": 1000, "runAsGroup": 1000 });
    let containers = [
        container("app", fixtures::IMAGE),
        container("gnu", "example.test/gnu:1"),
        container("shellless", "example.test/shellless:1"),
        container("timeoutless", "example.test/timeoutless:1"),
        readonly,
        nonroot,
    ];
    fixtures::deployment_of(&scene.admin, scene.name(), "zoo", &containers).await?;
    for sessions in [Sessions::BestEffort, Sessions::Required] {
        let name = format!("{sessions:?}").to_lowercase();
        let mut template = exec_template(&name, TargetKind::Deployment, "zoo");
        let config = &mut template.spec.access_config;
        config.sessions = sessions;
        if sessions == Sessions::BestEffort {
            // A template cannot require the end of operations that oz cannot cut.
            config.operations = vec![Operation::Exec, Operation::Attach, Operation::PortForward];
        }
        scene.template(&template).await?;
    }
    Ok(())
}

#[tokio::test]
async fn sessions_end_where_possible_and_rest_is_reported_or_refused() -> Result<()> {
    let Some((_turn, cluster)) = alone().await? else {
        return Ok(());
    };
    let mut system = System::start_with(cluster, &Options::default().cutting()).await?;
    import(cluster)?;
    let scene = Scene::empty(cluster, "zoo").await?;
    zoo(&scene).await?;
    scene.enforce().await?;

    let alice = scene.requests("alice").await?;
    // If a busy machine runs a probe for longer than its timeout, the container counts as unable for the grant. Another
    // grant probes it again after half a minute.
    let mut number = 0;
    let asked = eventually("a grant with all probes", CONDITION_TIMEOUT, async || {
        number += 1;
        let request = exec_request(&format!("best-{number}"), "besteffort", "10m");
        let asked = alice.granted(&request).await?;
        let status = asked.status();
        let cut = conditions::find(&status.conditions, conditions::SESSION_TERMINATION)
            .context("no condition")?;
        ensure!((cut.status.as_str(), cut.reason.as_str()) == ("False", "ProbeFailed"));
        let unable = format!("Sessions in {} have no timeout", UNABLE.join(", "));
        if !cut.message.starts_with(&unable) {
            let name = asked.request.name_any();
            alice.api().delete(&name, &Default::default()).await?;
            bail!("{}", cut.message);
        }
        Ok(Some(asked))
    })
    .await?;
    let pod = asked.pod();
    let bob = scene.requests("bob").await?;
    bob.granted(&exec_request("strict", "required", "10m"))
        .await?;

    let enter = |user: &str, container: &str, command: &[&str]| {
        let arguments = [&["-c", container, &pod, "--"], command].concat();
        exec(cluster, user, scene.name(), &arguments).output()
    };
    for container in ABLE {
        for user in ["alice", "bob"] {
            let said = enter(
                user,
                container,
                &["sh", "-c", "echo ${OZ_GRANT:-none}; exit 5"],
            )?;
            assert_eq!(said.status.code(), Some(5), "{container}");
            assert_ne!(said.stdout, b"none\n", "{container}");
        }
    }
    for container in UNABLE {
        let said = enter("alice", container, &[BUSYBOX, "echo", "a b", ""])?;
        assert_eq!(String::from_utf8(said.stdout)?, "a b \n", "{container}");
        let refused = enter("bob", container, &[BUSYBOX, "true"])?;
        let why = String::from_utf8(refused.stderr)?;
        assert!(
            why.contains("requires that sessions end"),
            "{container}: {why}"
        );
    }
    streams(&system, &scene, &pod).await?;
    marked_alone(&scene, &asked).await?;
    by_themselves(&mut system, &scene).await
}

/// Checks that a session without `timeout` still has the mark by which the operator finds and ends it.
async fn marked_alone(scene: &Scene, asked: &GrantedRequest) -> Result<()> {
    let pod = asked.pod();
    let words = format!("echo here; {BUSYBOX} env -i {BUSYBOX} setsid {BUSYBOX} sleep 7001; :");
    let arguments = ["-c", "timeoutless", &pod, "--", "/bin/sh", "-c", &words];
    let session = Session::open(exec(scene.cluster, "alice", scene.name(), &arguments))?;
    let alice = scene.requests("alice").await?;
    let name = asked.request.name_any();
    alice.api().delete(&name, &DeleteParams::default()).await?;
    session.ended(CONDITION_TIMEOUT)?;
    Ok(())
}

/// Checks that operations that oz cannot end are allowed where the template accepts that.
async fn streams(system: &System, scene: &Scene, pod: &str) -> Result<()> {
    let streaming = |user: &str, words: &[&str]| {
        let mut command = scene.cluster.kubectl(user);
        command.args(words).args(["-n", scene.name()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut forward = streaming("alice", &["port-forward", pod, ":80"]).spawn()?;
    let mut line = String::new();
    let output = forward.stdout.take().context("no standard output")?;
    BufReader::new(output).read_line(&mut line)?;
    forward.kill()?;
    forward.wait()?;
    ensure!(line.starts_with("Forwarding from"), "{line}");
    let mut attach = streaming("alice", &["attach", "-c", "app", pod]).spawn()?;
    eventually("alice to be attached", CONDITION_TIMEOUT, async || {
        let records = records_in(&system.webhook.process)?;
        let attached = records.iter().any(|record| {
            record.action == Action::SessionOpened
                && record.details.get("way").is_some_and(|way| way == "attach")
                && record
                    .details
                    .get("ends")
                    .is_some_and(|how| how.contains("cannot be ended"))
        });
        Ok(attached.then_some(()))
    })
    .await?;
    attach.kill()?;
    attach.wait()?;
    Ok(())
}

/// Checks that with the operator down every kind of shell and `timeout` ends its command, on a terminal and without
/// one.
async fn by_themselves(system: &mut System, scene: &Scene) -> Result<()> {
    scene.cluster.issue_kubeconfig("carol", &["devs"])?;
    let carol = scene.requests("carol").await?;
    let asked = carol
        .granted(&exec_request("brief", "besteffort", "60s"))
        .await?;
    let (pod, until) = (asked.pod(), asked.status().expires_at.context("no end")?);
    let grant = asked.request.uid().context("no UID")?;
    let mut sessions = Vec::new();
    for container in ABLE {
        for streams in ["-i", "-ti"] {
            let words = "trap '' HUP; echo here; while :; do sleep 1; done";
            let arguments = [streams, "-c", container, &pod, "--", "sh", "-c", words];
            let mut command = exec(scene.cluster, "carol", scene.name(), &arguments);
            if streams == "-ti" {
                command = on_a_terminal(&command);
            }
            let session =
                Session::open(command).with_context(|| format!("{container} {streams}"))?;
            sessions.push((container, streams, session));
        }
    }
    system.operator.process.kill9();
    for (container, streams, session) in sessions {
        let until_end = Duration::try_from(until.duration_since(jiff::Timestamp::now()));
        let ended = session.ended(until_end.unwrap_or_default() + CONDITION_TIMEOUT);
        let ended = ended.with_context(|| format!("{container} {streams}"))?;
        let early = SignedDuration::from_secs(2);
        ensure!(
            ended >= until - early,
            "{container} {streams}: {ended} is before {until}"
        );
    }
    eventually("the last process to end", CONDITION_TIMEOUT, async || {
        Ok((!running_grants()?.contains(&grant)).then_some(()))
    })
    .await
}
