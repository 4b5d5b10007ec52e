//! A use that ends with its request, before its expiry.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use oz_api::{ExecAccessRequest, Operation, TargetKind};
use oz_e2e::{Scene, Terminal, WORKLOAD, exec_template};
use oz_testkit::cargo_binary;

use crate::scene;

/// Forwards a port as alice, and returns the terminal and the request once the port is open.
async fn forwarding(scene: &Scene) -> Result<(Terminal, ExecAccessRequest)> {
    let mut command = std::process::Command::new(cargo_binary("ozctl")?);
    command
        .args([
            "-n",
            scene.name(),
            "port-forward",
            "template/ports",
            "0:7000",
        ])
        .env("KUBECONFIG", scene.cluster.kubeconfig("alice"))
        .env("USER", "alice");
    let terminal = Terminal::start(&command, 30, 100)?;
    terminal.shows(" to port 7000 of pod ").await?;
    let requests = scene.api::<ExecAccessRequest>();
    let mut requests = requests.list(&ListParams::default()).await?.items;
    let request = requests.pop().context("no request")?;
    Ok((terminal, request))
}

#[tokio::test]
async fn forwarded_port_ends_with_its_request_and_reports_why() -> Result<()> {
    let scene = scene("ends").await?;
    let mut template = exec_template("ports", TargetKind::Deployment, WORKLOAD);
    template.spec.access_config.operations = vec![Operation::PortForward];
    scene.template(&template).await?;

    let (mut terminal, request) = forwarding(&scene).await?;
    let name = request.name_any();
    let requests = scene.api::<ExecAccessRequest>();
    requests.delete(&name, &DeleteParams::default()).await?;
    assert_eq!(terminal.code().await?, 124, "{}", terminal.screen());
    let said = format!("was revoked: request {name} was deleted; `ozctl port-forward` creates");
    ensure!(terminal.screen().contains(&said), "{}", terminal.screen());

    // A grant whose RoleBinding is deleted by another user is revoked by the operator.
    let (mut terminal, request) = forwarding(&scene).await?;
    let bindings = scene.api::<RoleBinding>();
    let found = bindings.list(&ListParams::default()).await?;
    let of_request = |binding: &RoleBinding| {
        let mut owners = binding.owner_references().iter();
        owners.any(|owner| Some(&owner.uid) == request.metadata.uid.as_ref())
    };
    let binding = found.items.into_iter().find(of_request);
    let binding = binding.context("no binding")?.name_any();
    bindings.delete(&binding, &DeleteParams::default()).await?;
    assert_eq!(terminal.code().await?, 124, "{}", terminal.screen());
    ensure!(
        terminal.screen().contains("was revoked: "),
        "{}",
        terminal.screen()
    );
    Ok(())
}
