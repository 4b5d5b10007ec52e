//! Sessions from the request to the end, without a terminal.

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::ListParams;
use oz_api::{ExecAccessRequest, Operation, TargetKind};
use oz_e2e::{Scene, TEMPLATE, WORKLOAD, exec_template};
use oz_testkit::{CONDITION_TIMEOUT, eventually};

use crate::{Answer, run, scene};

async fn exec(scene: &Scene, user: &str, words: &[&str], command: &[&str]) -> Result<Answer> {
    let words = [&["exec", "--no-stdin"], words, &["--"], command].concat();
    run(scene, user, &words).await
}

async fn requests(scene: &Scene) -> Result<Vec<ExecAccessRequest>> {
    let list = scene.api::<ExecAccessRequest>();
    Ok(list.list(&ListParams::default()).await?.items)
}

#[tokio::test]
async fn a_command_runs_and_nothing_is_left_of_the_access() -> Result<()> {
    let scene = scene("exec").await?;
    let pod = scene.pods[1].name_any();
    for target in [
        "deploy/web",
        "web",
        "template/shell",
        "shell",
        &pod,
        &format!("pod/{pod}"),
    ] {
        let answer = exec(&scene, "alice", &[target], &["echo", "inside"]).await?;
        answer.ended_with(0).context(target.to_owned())?;
        assert_eq!(answer.stdout, "inside\n");
        assert_eq!(answer.stderr, "", "{target}");
        assert!(requests(&scene).await?.is_empty(), "{target}");
    }
    Ok(())
}

#[tokio::test]
async fn access_that_is_kept_is_used_again_and_then_given_back() -> Result<()> {
    let scene = scene("keep").await?;
    let words = [
        WORKLOAD,
        "--keep",
        "--reason",
        "INC-42",
        "--duration",
        "10m",
    ];
    let first = exec(&scene, "alice", &words, &["true"]).await?;
    first.ended_with(0)?;
    let kept = requests(&scene).await?.pop().context("nothing was kept")?;
    let name = kept.name_any();
    assert_eq!(kept.spec.reason.as_deref(), Some("INC-42"));
    assert_eq!(kept.spec.duration.as_deref(), Some("10m"));
    assert!(
        first.stderr.contains(&format!("ozctl revoke {name}")),
        "{}",
        first.stderr
    );

    let again = exec(
        &scene,
        "alice",
        &[WORKLOAD, "--request", &name],
        &["echo", "again"],
    )
    .await?;
    again.ended_with(0)?;
    assert_eq!(again.stdout, "again\n");
    assert_eq!(requests(&scene).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn of_several_templates_one_must_be_named_off_a_terminal() -> Result<()> {
    let scene = scene("several").await?;
    scene
        .template(&exec_template("other", TargetKind::Deployment, WORKLOAD))
        .await?;
    let unclear = exec(&scene, "alice", &["deploy/web"], &["true"]).await?;
    unclear.ended_with(125)?;
    assert_eq!(
        unclear.stderr,
        "Error: several templates grant access to Deployment web: other, shell\nNext: name one \
         with --template\n"
    );
    let clear = exec(
        &scene,
        "alice",
        &["deploy/web", "--template", "other"],
        &["true"],
    )
    .await?;
    clear.ended_with(0)?;
    // Templates that would deny the user are no choice.
    let mut for_others = exec_template("third", TargetKind::Deployment, "web");
    for_others.spec.access_config.allowed_groups = vec!["others".to_owned()];
    scene.template(&for_others).await?;
    scene
        .api::<oz_api::ExecAccessTemplate>()
        .delete("other", &kube::api::DeleteParams::default())
        .await?;
    let only = exec(&scene, "alice", &["deploy/web"], &["true"]).await?;
    only.ended_with(0)
}

#[tokio::test]
async fn exec_failure_is_reported_with_next_step() -> Result<()> {
    let scene = scene("refused").await?;
    let denied = exec(&scene, "mallory", &["deploy/web"], &["true"]).await?;
    denied.ended_with(125)?;
    assert!(
        denied
            .stderr
            .starts_with("Error: mallory is in none of the groups"),
        "{}",
        denied.stderr
    );

    let nothing = exec(&scene, "alice", &["deploy/api"], &["true"]).await?;
    nothing.ended_with(125)?;
    let next = format!(
        "Next: `ozctl templates -n {}` lists the templates",
        scene.name()
    );
    assert!(nothing.stderr.contains(&next), "{}", nothing.stderr);

    let mismatch = exec(
        &scene,
        "alice",
        &["deploy/api", "--template", TEMPLATE],
        &["true"],
    )
    .await?;
    mismatch.ended_with(125)?;
    assert!(
        mismatch
            .stderr
            .contains("does not grant access to Deployment api"),
        "{}",
        mismatch.stderr
    );

    let logs = run(&scene, "alice", &["logs", "deploy/web"]).await?;
    logs.ended_with(1)?;
    assert!(
        logs.stderr
            .contains("no template allows Log on Deployment web: shell does not"),
        "{}",
        logs.stderr
    );

    scene
        .template(&exec_template("nowhere", TargetKind::Deployment, "missing"))
        .await?;
    let late = exec(
        &scene,
        "alice",
        &["template/nowhere", "-w", "3s"],
        &["true"],
    )
    .await?;
    late.ended_with(125)?;
    assert!(
        late.stderr.contains("is not ready after 3s: Deployment "),
        "{}",
        late.stderr
    );
    // No request waits for it any more.
    assert!(requests(&scene).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_pod_of_ones_own_goes_with_the_session() -> Result<()> {
    let scene = scene("own").await?;
    scene.pod_template("debug", &serde_json::json!({})).await?;
    let words = [
        "pod",
        "-n",
        scene.name(),
        "--no-stdin",
        "deploy/web",
        "--",
        "echo",
        "mine",
    ];
    let answer = run(&scene, "alice", &words).await?;
    answer.ended_with(0)?;
    assert_eq!(answer.stdout, "mine\n");
    let left = scene.api::<oz_api::PodAccessRequest>();
    assert!(left.list(&ListParams::default()).await?.items.is_empty());
    Ok(())
}

#[tokio::test]
async fn logs_are_shown_where_a_template_allows_it() -> Result<()> {
    let scene = scene("logs").await?;
    let mut template = exec_template("logs", TargetKind::Deployment, WORKLOAD);
    template.spec.access_config.operations = vec![Operation::Log];
    scene.template(&template).await?;
    let answer = run(&scene, "alice", &["logs", "deploy/web", "--tail", "5"]).await?;
    // The node has no logs to show; the call to the node shows that the user had access.
    assert!(!answer.stderr.contains("may not"), "{}", answer.stderr);
    assert!(requests(&scene).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn command_takes_six_api_requests_and_shows_time_of_oz() -> Result<()> {
    let scene = scene("cost").await?;
    let mark = scene.cluster.audit().mark()?;
    let answer = exec(&scene, "alice", &["deploy/web", "--verbose"], &["true"]).await?;
    answer.ended_with(0)?;
    for part in ["template", "request", "granted", "connection", "given back"] {
        assert!(answer.stderr.contains(part), "{}", answer.stderr);
    }
    let asked = eventually(
        "the access to be given back",
        CONDITION_TIMEOUT,
        async || {
            let asked = scene.cluster.audit().since(mark)?;
            let asked = asked.filter(|one| {
                one.user == "alice"
                    && one.namespace == scene.name()
                    && one.user_agent.starts_with("ozctl")
            });
            let given_back = asked.iter().any(|one| one.verb == "delete");
            let asked = asked.iter().map(|one| {
                let resource = format!("{}/{}", one.resource, one.subresource);
                format!("{} {}", one.verb, resource.trim_end_matches('/'))
            });
            let mut asked: Vec<String> = asked.collect();
            asked.sort();
            Ok(given_back.then_some(asked))
        },
    )
    .await?;
    let needed = [
        "create execaccessrequests",
        "delete execaccessrequests",
        "get pods/exec",
        "list execaccessrequests",
        "list execaccesstemplates",
        "watch execaccessrequests",
    ];
    assert_eq!(asked, needed);
    Ok(())
}
