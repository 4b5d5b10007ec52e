//! ozctl on a real API server, as users of the scene: its output, its exit codes, and the objects that it leaves. On
//! kwok
//! an exec runs on this machine; exit codes and ends of input are tested on a real node.

mod certificates;
mod completion;
mod create;
mod ends;
mod exec;
mod explain;
mod look;
mod watch;

use anyhow::Result;
use assert_cmd::Command;
use oz_e2e::{Scene, System};
use oz_testkit::{Cluster, cargo_binary};
use tokio::sync::OnceCell;

static SYSTEM: OnceCell<System> = OnceCell::const_new();

/// Returns a namespace in which users may read templates and request access; with a Deployment and a template for it.
async fn scene(prefix: &str) -> Result<Scene> {
    let cluster = Cluster::shared().await?;
    SYSTEM.get_or_try_init(|| System::start(cluster)).await?;
    let scene = Scene::set(cluster, prefix).await?;
    scene.people_may_look().await?;
    Ok(scene)
}

/// Returns `ozctl` as one of the users, in the scene's namespace.
fn ozctl(scene: &Scene, user: &str, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(cargo_binary("ozctl")?);
    command
        .args(["-n", scene.name()])
        .args(words)
        .env("KUBECONFIG", scene.cluster.kubeconfig(user))
        .env("USER", user)
        .env_remove("NO_COLOR")
        .timeout(std::time::Duration::from_secs(120));
    Ok(command)
}

/// The result of a command line.
struct Answer {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs ozctl, off the threads that the tests share.
async fn run(scene: &Scene, user: &str, words: &[&str]) -> Result<Answer> {
    let mut command = ozctl(scene, user, words)?;
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok(Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

impl Answer {
    /// Checks the exit code, and fails with all output.
    fn ended_with(&self, code: i32) -> Result<()> {
        anyhow::ensure!(
            self.code == Some(code),
            "ended with {:?}, not {code}\nstdout: {}\nstderr: {}",
            self.code,
            self.stdout,
            self.stderr
        );
        Ok(())
    }
}
