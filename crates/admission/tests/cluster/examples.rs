//! Every example, run like a reader would run it: as a process, with a kubeconfig.

use std::{process::Command, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use oz_testkit::{Cluster, Process, cargo_example, eventually};
use serde_json::json;

use crate::conversion::Widgets;
use crate::fixture::{Fixture, LONG};

async fn command(fixture: &Fixture, example: &str) -> Result<Command> {
    let name = example.to_owned();
    let program = tokio::task::spawn_blocking(move || cargo_example(&name)).await??;
    let mut command = Command::new(program);
    command
        .args([fixture.name(), &format!("127.0.0.1:{}", fixture.port)])
        .env("KUBECONFIG", Cluster::shared().await?.kubeconfig("admin"));
    Ok(command)
}

async fn start(fixture: &Fixture, example: &str) -> Result<Process> {
    let command = command(fixture, example).await?;
    Cluster::shared()
        .await?
        .spawn(&format!("example-{example}"), command)
}

async fn stop(mut example: Process) -> Result<()> {
    let status = example.terminate(Duration::from_secs(40)).await?;
    ensure!(status.success(), "the example ended with {status}");
    Ok(())
}

fn pod(name: &str, image: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "app", "image": image}]},
    }))?)
}

fn dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

async fn is_injected(fixture: &Fixture) -> Result<()> {
    eventually("the variable to be injected", LONG, async || {
        let created = fixture
            .api()
            .create(&dry_run(), &pod("injected", "app:1")?)
            .await?;
        let spec = created.spec.unwrap_or_default();
        let injected = spec
            .containers
            .iter()
            .flat_map(|it| it.env.iter().flatten());
        Ok(injected
            .into_iter()
            .any(|it| it.name == "GREETING")
            .then_some(()))
    })
    .await
}

async fn moving_tags_are_refused(fixture: &Fixture) -> Result<()> {
    eventually("a moving tag to be refused", LONG, async || {
        match fixture
            .api()
            .create(&dry_run(), &pod("refused", "app:latest")?)
            .await
        {
            Err(kube::Error::Api(status)) if status.reason == "MovingTag" => Ok(Some(())),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(None),
        }
    })
    .await
}

async fn create(fixture: &Fixture, name: &str) -> Result<()> {
    fixture
        .api()
        .create(&PostParams::default(), &pod(name, "app:1")?)
        .await?;
    Ok(())
}

async fn is_annotated(fixture: &Fixture, name: &str) -> Result<()> {
    let api = fixture.api::<Pod>();
    eventually("the annotation", LONG, async || {
        let pod = api.get(name).await?;
        Ok(pod
            .annotations()
            .contains_key("example.com/seen")
            .then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mutating_example_injects_a_variable() -> Result<()> {
    let fixture = Fixture::new("ex-mutate").await?;
    let example = start(&fixture, "mutate").await?;
    is_injected(&fixture).await?;
    stop(example).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_validating_example_refuses_moving_tags() -> Result<()> {
    let fixture = Fixture::new("ex-validate").await?;
    let example = start(&fixture, "validate").await?;
    moving_tags_are_refused(&fixture).await?;
    stop(example).await
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_example_reports_pods() -> Result<()> {
    let fixture = Fixture::new("ex-watch").await?;
    create(&fixture, "before").await?;
    let mut example = start(&fixture, "watch").await?;
    example
        .wait_for_line("added before", LONG, |line| line == "added before")
        .await?;
    create(&fixture, "after").await?;
    example
        .wait_for_line("added after", LONG, |line| line == "added after")
        .await?;
    fixture
        .api::<Pod>()
        .delete("before", &DeleteParams::default().grace_period(0))
        .await?;
    example
        .wait_for_line("deleted before", LONG, |line| line == "deleted before")
        .await?;
    stop(example).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconciling_example_annotates_pods() -> Result<()> {
    let fixture = Fixture::new("ex-reconcile").await?;
    create(&fixture, "web").await?;
    let example = start(&fixture, "reconcile").await?;
    is_annotated(&fixture, "web").await?;
    stop(example).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_converting_example_serves_widgets_in_two_versions() -> Result<()> {
    let fixture = Fixture::new("ex-convert").await?;
    let widgets = Widgets::new(&fixture);
    widgets.define().await?;
    let example = start(&fixture, "convert").await?;
    widgets.until_registered().await?;
    widgets.create("v1", "a", json!({"size": 3})).await?;
    widgets
        .until_shown("v2", "a", &json!({"replicas": 3}))
        .await?;
    widgets.remove().await?;
    stop(example).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_four_extensions_work_in_one_manager() -> Result<()> {
    let fixture = Fixture::new("ex-all").await?;
    let mut example = start(&fixture, "all").await?;
    is_injected(&fixture).await?;
    moving_tags_are_refused(&fixture).await?;
    create(&fixture, "web").await?;
    example
        .wait_for_line("added web", LONG, |line| line == "added web")
        .await?;
    is_annotated(&fixture, "web").await?;
    stop(example).await
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_and_serving_work_as_two_programs() -> Result<()> {
    let fixture = Fixture::new("ex-split").await?;
    let mut registration = command(&fixture, "register").await?;
    let output = tokio::task::spawn_blocking(move || registration.output()).await??;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "registered 1 mutating, 1 validating\n");
    let example = start(&fixture, "serve").await?;
    is_injected(&fixture).await?;
    moving_tags_are_refused(&fixture).await?;
    stop(example).await
}
