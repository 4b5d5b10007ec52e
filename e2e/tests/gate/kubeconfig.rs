//! The kubeconfig that ozctl writes, used by an unmodified kubectl.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use anyhow::Result;
use oz_e2e::{GATED, Scene, TEMPLATE, exec_request};
use oz_testkit::{CONDITION_TIMEOUT, cargo_binary, eventually};

use crate::Whole;
use crate::passing::said;

fn ozctl(scene: &Scene, user: &str, arguments: &[&str]) -> Result<Output> {
    let mut ozctl = Command::new(cargo_binary("ozctl")?);
    ozctl.env("KUBECONFIG", scene.cluster.kubeconfig(user));
    ozctl.args(arguments).args(["--namespace", scene.name()]);
    Ok(ozctl.output()?)
}

#[tokio::test]
async fn kubectl_as_it_is_gets_in_by_the_kubeconfig_that_ozctl_writes() -> Result<()> {
    let whole = Whole::start("kubeconfig").await?;
    let scene = &whole.scene;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", GATED, "5m")).await?;
    let pod = granted.pod();
    let message = granted.status().access_message.unwrap_or_default();
    for part in [
        format!("kubectl exec -ti -n {} {pod} -- /bin/sh", scene.name()),
        format!("ozctl exec pod/{pod} -n {} --request mine", scene.name()),
        format!("ozctl kubeconfig mine -n {} -o FILE", scene.name()),
    ] {
        assert!(message.contains(&part), "{message}");
    }

    let file = scene
        .cluster
        .state_dir()
        .join(format!("{}.kubeconfig", scene.name()));
    let path = file.to_string_lossy().into_owned();
    let written = ozctl(scene, "alice", &["kubeconfig", "mine", "-o", &path])?;
    assert!(written.status.success(), "{}", said(&written));
    assert_eq!(
        std::fs::metadata(&file)?.permissions().mode() & 0o777,
        0o600
    );
    // The file contains the namespace and all other settings.
    let kubectl = scene.cluster.kubectl("alice").get_program().to_owned();
    let echo = eventually("alice to get in", CONDITION_TIMEOUT, async || {
        let mut command = Command::new(&kubectl);
        command
            .env_remove("KUBECONFIG")
            .arg("--kubeconfig")
            .arg(&file);
        let output = command.args(["exec", &pod, "--", "echo", "in"]).output()?;
        Ok(output.status.success().then_some(output))
    })
    .await?;
    assert_eq!(String::from_utf8(echo.stdout)?, "in\n");

    let again = ozctl(scene, "alice", &["kubeconfig", "mine", "-o", &path])?;
    assert!(
        said(&again).contains("name another file"),
        "{}",
        said(&again)
    );
    alice
        .granted(&exec_request("direct", TEMPLATE, "5m"))
        .await?;
    let direct = ozctl(scene, "alice", &["kubeconfig", "direct"])?;
    assert!(!direct.status.success());
    assert!(
        said(&direct).contains("does not go through oz's gate"),
        "{}",
        said(&direct)
    );
    Ok(())
}
