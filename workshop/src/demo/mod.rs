//! `cargo xtask demo [--keep]`: the main job of oz, shown on the screen with real events on an embedded
//! cluster. Every step checks its own text, and the numbers are measured.

mod people;
mod records;
mod story;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Args;
use oz_e2e::{Gate, RecordingStore, System};
use oz_testkit::{Cluster, ClusterOptions, Process, Tool, Tools};
use tokio::signal::unix::{SignalKind, signal};

use story::{Story, TEMPLATE};
use xtask::programs;
use xtask::screen::{Screen, Style, columns};

/// The namespace of the story.
const NAMESPACE: &str = "shop";
/// The exit code that a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The end of the demo.
#[derive(Args)]
pub(crate) struct Options {
    /// Leave cluster, webhook, operator and gate up until Ctrl-C, and say how to use them.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let screen = Screen::stdout();
        // For any cause of the end, the processes and files of the demo end with the future that owns them.
        tokio::select! {
            outcome = demo(screen, options.keep) => {
                outcome.map(|()| ExitCode::SUCCESS)
            }
            _ = interrupt.recv() => interrupted(screen),
            _ = terminate.recv() => interrupted(screen),
        }
    })
}

fn interrupted(screen: Screen) -> Result<ExitCode> {
    screen.line(
        "\nInterrupted. Cluster, webhook, operator and gate are ended, their files removed.",
    )?;
    Ok(ExitCode::from(INTERRUPTED))
}

async fn demo(screen: Screen, keep: bool) -> Result<()> {
    let began = Instant::now();
    screen.line(&screen.paint(
        Style::Bold,
        "Oz lets one person into one pod until one agreed second, and keeps a record.",
    ))?;
    programs::build(&programs::OZ).await?;
    programs::build(&["ozctl", "oz-gate"]).await?;
    tokio::task::spawn_blocking(|| Tools::obtain(&Tool::CLUSTER)).await??;

    let starting = Instant::now();
    screen.passing("   starting etcd, the control plane and a node")?;
    let cluster = Cluster::start(ClusterOptions {
        // The API server finds the gate by the name of its Service: this cluster has no pod network.
        api_server_flags: vec!["--enable-aggregator-routing=false".to_owned()],
        ..ClusterOptions::default()
    })
    .await?;
    let started = starting.elapsed();
    screen.passing("   installing oz")?;
    let system = System::start_with(&cluster, &Gate::operator_options())
        .await
        .context("failed to start oz")?;
    let store = RecordingStore::new()?;
    let gate = Gate::start(&cluster, &store.options())
        .await
        .context("failed to start the gate")?;
    let story = Story::new(screen, &cluster, &system, &gate).await?;
    if let Err(error) = story.tell(started).await {
        screen.line("")?;
        for process in [
            &system.webhook.process,
            &system.operator.process,
            &gate.process,
        ] {
            screen.line(&end_of_log(process))?;
        }
        return Err(error.context("the demo did not go as it should"));
    }
    let told = began.elapsed().as_secs_f64();
    if keep {
        screen.line(&usage(screen, &cluster, &system, &gate))?;
        std::future::pending::<()>().await;
    }
    drop(story);
    drop(gate);
    drop(system);
    drop(cluster);
    screen.line(&format!(
        "\nAll steps succeeded, in {told:.0} s. Cluster, webhook, operator and gate are stopped, \
         their files removed.\n`make demo KEEP=1` leaves them up to try things by hand."
    ))
}

fn end_of_log(process: &Process) -> String {
    let log = std::fs::read_to_string(process.stderr()).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines.len().saturating_sub(20);
    let name = process.stderr().file_name().unwrap_or_default();
    let last = lines.get(tail..).unwrap_or_default().join("\n");
    format!("the end of {}:\n{last}", name.display())
}

/// Describes how to continue by hand.
fn usage(screen: Screen, cluster: &Cluster, system: &System, gate: &Gate) -> String {
    let kubectl = cluster.kubectl("admin");
    let programs = std::path::Path::new(kubectl.get_program()).parent();
    let people = cluster.kubeconfig("alice");
    let people = people.parent().unwrap_or(&people).display();
    let records = [
        &system.webhook.process,
        &system.operator.process,
        &gate.process,
    ]
    .map(|process| process.stdout().display().to_string());
    let head = screen.paint(Style::Bold, "Now by hand, in another terminal:");
    let commands = format!(
        r#"
  export PATH={}:$PATH
  export KUBECONFIG={people}/alice.kubeconfig    # or bob, mallory, admin

  kubectl create -n {NAMESPACE} -f - <<END
  apiVersion: crds.wizardofoz.co/v1alpha1
  kind: ExecAccessRequest
  metadata: {{name: mine}}
  spec: {{templateName: {TEMPLATE}, duration: 2m}}
  END
  kubectl get ear -n {NAMESPACE} -w
  kubectl get ear -n {NAMESPACE} mine -o jsonpath='{{.status.accessMessage}}{{"\n"}}'
  kubectl delete ear -n {NAMESPACE} mine     # gives it back early
"#,
        programs
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
    );
    let files = columns(&[vec![
        "The records:".to_owned(),
        records.join("\n              "),
    ]]);
    format!(
        "\n{head}\n{commands}\n{}\n\nCtrl-C ends it all and leaves nothing.",
        files.join("\n")
    )
}
