//! The chapter in which a session goes through the gate, is recorded, and ends in the middle of a word.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::PostParams;
use oz_api::{RecordingConfig, RecordingMode};
use oz_core::gate::prefix;
use oz_e2e::{GATED, exec_request, recording_template};
use oz_testkit::eventually;
use serde_json::json;

use super::{STEP_TIMEOUT, Story, clock, until};
use crate::demo::NAMESPACE;

const REQUEST: &str = "on-tape";
/// Long enough to connect and to type.
const DURATION: &str = "10s";
/// The interval between alice's keys.
const KEY: Duration = Duration::from_millis(150);
/// The line that she types repeatedly.
const LINE: &str = "echo I am still here\n";

impl Story<'_> {
    /// Shows that alice's session is recorded and ends while she types, and that bob plays it.
    pub(super) async fn recorded(&self) -> Result<()> {
        self.step(9, "Recorded, and over in the middle of a word")?;
        self.through_the_gate().await?;
        let requests = self.requests("alice").await?;
        let granted = requests
            .granted(&exec_request(REQUEST, GATED, DURATION))
            .await?;
        let (pod, until) = (granted.pod(), until(&granted.status())?);
        self.say(&format!(
            "alice has access until {} UTC, and types until she cannot any more:",
            clock(until)
        ))?;
        let server = format!(
            "{}{}",
            self.cluster.server_url(),
            prefix(NAMESPACE, REQUEST)
        );
        let words = [
            "--server", &server, "-n", NAMESPACE, "exec", "-i", &pod, "--", "sh",
        ];
        self.command(
            "alice",
            &format!("kubectl --server …/gates/{REQUEST}/proxy exec -i {pod} -- sh"),
        )?;
        let mut command = self.cluster.kubectl("alice");
        command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (typed, said) =
            tokio::task::spawn_blocking(move || type_until_it_ends(command)).await??;
        ensure!(said.contains("I am still here"), "it said: {said}");
        let told = said
            .lines()
            .find(|line| line.contains("oz: "))
            .unwrap_or_default();
        ensure!(told.contains("ended at"), "the user got no reason: {said}");
        self.bad(told.trim())?;
        self.good(&format!(
            "Her session was closed after {typed} keys, with the reason."
        ))?;
        self.played().await
    }

    /// Shows that bob plays it, and that it is complete.
    async fn played(&self) -> Result<()> {
        let words = [
            "sessions", "play", REQUEST, "-n", NAMESPACE, "--speed", "50",
        ];
        let played = eventually("the recording to be stored", STEP_TIMEOUT, async || {
            let played = self.bob.ozctl(&words).await?;
            Ok(played
                .text
                .contains("the session was ended")
                .then_some(played))
        })
        .await?;
        self.command("bob", &played.command)?;
        let lines: Vec<&str> = played
            .text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let shown = lines
            .iter()
            .filter(|line| line.contains("I am still here"))
            .count();
        ensure!(shown > 0, "it showed: {}", played.text);
        self.say(&format!(
            "{shown} lines of \"I am still here\", and at the end:"
        ))?;
        let end = lines
            .iter()
            .find(|line| line.contains("the session was ended"));
        self.bad(end.context("no end")?)?;
        let words = ["sessions", "verify", REQUEST, "-n", NAMESPACE];
        let verified = eventually("the recording to be on record", STEP_TIMEOUT, async || {
            let verified = crate::demo::people::Person {
                name: "admin",
                ..self.bob
            }
            .ozctl(&words)
            .await?;
            Ok(verified.succeeded.then_some(verified))
        })
        .await?;
        self.answer("admin", &verified, true, "")
    }

    async fn through_the_gate(&self) -> Result<()> {
        let template = recording_template(RecordingConfig {
            mode: RecordingMode::Required,
            ..RecordingConfig::default()
        });
        let templates = Api::namespaced(self.admin.clone(), NAMESPACE);
        templates.create(&PostParams::default(), &template).await?;
        let group = "rbac.authorization.k8s.io";
        let binding = serde_json::from_value(json!({
            "metadata": {"name": "bob-views-recordings"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "oz-recording-viewer"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "bob"}],
        }))?;
        let bindings = Api::<RoleBinding>::namespaced(self.admin.clone(), NAMESPACE);
        bindings.create(&PostParams::default(), &binding).await?;
        self.say(&format!(
            "The template `{GATED}` sends sessions through oz's gate, a part of the API server's \
             own paths, and has every one recorded. The only subject of its binding is the gate, \
             and kubectl is unchanged."
        ))
    }
}

/// Types until the session ends: returns the number of keys, and the output.
fn type_until_it_ends(mut command: std::process::Command) -> Result<(usize, String)> {
    let mut child = command.spawn().context("failed to run kubectl")?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let typing = std::thread::spawn(move || {
        let mut typed = 0;
        for key in LINE.bytes().cycle() {
            if stdin.write_all(&[key]).is_err() {
                break;
            }
            typed += 1;
            std::thread::sleep(KEY);
        }
        typed
    });
    let output = child.wait_with_output()?;
    let typed = typing.join().ok().context("no input")?;
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok((typed, said))
}
