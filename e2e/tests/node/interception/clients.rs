//! Clients as users have them: in a run they work without a setting of their own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use oz_e2e::programs::Programs;
use oz_e2e::run;
use oz_e2e::upstream::{ECHO, Upstream};
use oz_testkit::{Cluster, Python};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::world::World;

/// The image with the clients.
pub(super) const IMAGE: &str = "docker.io/library/clients:dev";
/// The clients, in the words of the script.
pub(super) const CLIENTS: &str = "curl git python node go websocket";
/// The text of the file in the repository.
pub(super) const CLONED: &str = "a file of the upstream\n";

static PROVIDED: OnceCell<TempDir> = OnceCell::const_new();

/// Imports the image with the clients, and serves a repository at the upstream, once.
pub(super) async fn provide(cluster: &Cluster, upstream: &Upstream) -> Result<()> {
    let provided = PROVIDED.get_or_try_init(async || {
        let python = Python::obtain()?;
        let programs = Programs::default()
            .program("curl")?
            .program("node")?
            .git()?
            .python(python.as_ref())?
            .run_client()?;
        let image = programs
            .image(IMAGE)?
            .file("clients/clients.sh", 0o755, include_bytes!("clients.sh"))?
            .file(
                "clients/requests_get.py",
                0o644,
                include_bytes!("clients/requests_get.py"),
            )?
            .file(
                "clients/websocket.py",
                0o644,
                include_bytes!("clients/websocket.py"),
            )?
            .file(
                "clients/fetch.mjs",
                0o644,
                include_bytes!("clients/fetch.mjs"),
            )?;
        cluster.import_image(image)?;
        let directory = TempDir::new()?;
        repository(directory.path())?;
        upstream.serve_directory(directory.path());
        Ok::<_, anyhow::Error>(directory)
    });
    provided.await.map(|_| ())
}

/// Creates a repository with one file, for git's protocol of plain files.
fn repository(directory: &Path) -> Result<()> {
    let work = directory.join("work");
    let bare = directory.join("repository.git");
    let (work_text, bare_text) = (work.display().to_string(), bare.display().to_string());
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=test", "-c", "user.email=test@example.test"]);
        git.args(["-c", "init.defaultBranch=main"]).args(arguments);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        run(git).map(drop)
    };
    git(&["init", "--quiet", &work_text])?;
    std::fs::write(work.join("README"), CLONED).context("failed to write a file")?;
    git(&["-C", &work_text, "add", "README"])?;
    git(&["-C", &work_text, "commit", "--quiet", "--message=first"])?;
    git(&["clone", "--quiet", "--bare", &work_text, &bare_text])?;
    git(&["-C", &bare_text, "update-server-info"])
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_work_in_a_run_without_settings_of_their_own() -> Result<()> {
    let Some(world) = World::start("clients").await? else {
        return Ok(());
    };
    provide(world.cluster, world.upstream).await?;
    world.policy(&[ECHO]).await?;
    let command = ["/bin/sh", "/clients/clients.sh"];
    world.template(IMAGE, &command, &[ECHO], &[]).await?;
    let run = world.submit("clients", CLIENTS).await?;
    let report = run
        .report("the clients to end", |it| it["client"] == "end")
        .await?;
    let failed: Vec<_> = report.iter().filter(|it| it["code"] != 0).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(report.len(), CLIENTS.split(' ').count() + 1, "{report:?}");
    let workspace = run.workspace(&run.pod().await?)?;
    assert_eq!(
        std::fs::read_to_string(workspace.join("clone/README"))?,
        CLONED
    );
    run.release().await?;
    run.delete().await
}
