//! Every documented invocation of the original's ozctl, as it stands in scripts.

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::ListParams;
use oz_api::{ExecAccessRequest, TargetKind};
use oz_e2e::{Scene, TEMPLATE, exec_template};
use serde_json::{Value, json};

use crate::{Answer, run, scene};

#[tokio::test]
async fn every_invocation_of_the_original_works_unchanged() -> Result<()> {
    let scene = scene("original").await?;
    scene.pod_template("debug", &json!({})).await?;
    let pod = scene.pods[0].name_any();
    for words in [
        &["create", "ExecAccessRequest", TEMPLATE][..],
        &["create", "execaccessrequest", TEMPLATE],
        &["create", "execaccessrequests", TEMPLATE],
        &["create", "exec-access-request", TEMPLATE],
        &["create", "exec", TEMPLATE, "more", "words"],
        &[
            "create", "exec", TEMPLATE, "-p", &pod, "-D", "5m", "-w", "2m", "-N", "oncall",
        ],
        &[
            "create",
            "exec",
            TEMPLATE,
            "--target-pod",
            &pod,
            "--duration",
            "5m",
        ],
        &[
            "create",
            "exec",
            TEMPLATE,
            "--wait",
            "90s",
            "--request-name",
            "oncall",
        ],
        &["create", "exec", TEMPLATE, "-D", "", "-p", ""],
        &["create", "PodAccessRequest", "debug"],
        &["create", "podaccessrequest", "debug", "-D", "5m"],
        &["create", "podaccessrequests", "debug"],
        &["create", "pod-access-request", "debug"],
        &["create", "pod", "debug", "-o", "text"],
    ] {
        let answer = run(&scene, "alice", words).await?;
        answer.ended_with(0).with_context(|| format!("{words:?}"))?;
        said_it_all(&scene, words, &answer)?;
        if words.contains(&pod.as_str()) {
            assert!(answer.stdout.contains(&pod), "{}", answer.stdout);
        }
    }
    Ok(())
}

/// Checks that the output has all lines of the original, in its order.
fn said_it_all(scene: &Scene, words: &[&str], answer: &Answer) -> Result<()> {
    let (kind, template) = match words[1].to_lowercase().as_str() {
        word if word.starts_with("pod") => ("PodAccessRequest", "debug"),
        _ => ("ExecAccessRequest", TEMPLATE),
    };
    let prefix = if words.contains(&"oncall") {
        "oncall"
    } else {
        "alice"
    };
    let progress: Vec<&str> = answer.stderr.lines().collect();
    assert_eq!(progress[0], "Initiating Access Request...");
    assert_eq!(progress[1], format!("  Template Name: {template}"));
    assert_eq!(progress[2], format!("  Request Name Prefix: {prefix}"));
    let verifying = format!(
        "Verifying Template {template} exists (ns: {})...",
        scene.name()
    );
    assert_eq!(progress[3], verifying);
    let created = progress[4];
    assert!(
        created.starts_with(&format!("Creating {kind}... {prefix}-")),
        "{created}"
    );
    assert!(created.ends_with(" created!"), "{created}");
    assert!(
        progress[5].starts_with(&format!("Waiting for {prefix}-")),
        "{progress:?}"
    );
    assert!(progress[5].contains(" to be ready."), "{progress:?}");
    let said = &answer.stdout;
    let instructions = said
        .strip_prefix(
            "Success, your access request is ready! Here are your access instructions:\n---\n",
        )
        .and_then(|rest| rest.strip_suffix("\n---\n"));
    let instructions = instructions.with_context(|| said.clone())?;
    assert!(
        instructions.starts_with("kubectl exec -ti -n "),
        "{instructions}"
    );
    Ok(())
}

#[tokio::test]
async fn json_and_yaml_are_the_request_and_nothing_else() -> Result<()> {
    let scene = scene("formats").await?;
    for words in [
        &["create", "-o", "json", "ExecAccessRequest", TEMPLATE][..],
        &["create", "exec", TEMPLATE, "--output", "json"],
    ] {
        let answer = run(&scene, "alice", words).await?;
        answer.ended_with(0)?;
        let request: Value = serde_json::from_str(&answer.stdout)?;
        assert_eq!(request["kind"], "ExecAccessRequest");
        assert_eq!(request["apiVersion"], "crds.wizardofoz.co/v1alpha1");
        assert_eq!(request["status"]["ready"], true);
        assert!(request["status"]["accessMessage"].is_string());
        assert!(answer.stdout.starts_with("{\n  \""), "two blanks of indent");
        let name = request["metadata"]["name"].as_str().context("no name")?;

        let yaml = run(&scene, "alice", &["get", "ear", name, "-o", "yaml"]).await?;
        yaml.ended_with(0)?;
        let again: Value = serde_saphyr::from_str(&yaml.stdout)?;
        assert_eq!(again["metadata"]["uid"], request["metadata"]["uid"]);
        assert_eq!(again["kind"], "ExecAccessRequest");
    }
    Ok(())
}

#[tokio::test]
async fn get_lists_as_the_original_did() -> Result<()> {
    let scene = scene("get").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&oz_e2e::exec_request("mine", TEMPLATE, "5m"))
        .await?;
    for words in [
        &["get", "execaccessrequests"][..],
        &["get", "ExecAccessRequest", "mine"],
        &["get", "execaccessrequest/mine"],
        &["get", "ear", "-o", "table"],
    ] {
        let answer = run(&scene, "alice", words).await?;
        answer.ended_with(0).with_context(|| format!("{words:?}"))?;
        let lines: Vec<Vec<&str>> = answer
            .stdout
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["NAMESPACE", "NAME", "AGE"]);
        assert_eq!(lines[1][..2], [scene.name(), "mine"]);
        assert_eq!(lines.len(), 2);
    }
    let list = run(&scene, "alice", &["get", "eat", "-o", "json"]).await?;
    list.ended_with(0)?;
    let list: Value = serde_json::from_str(&list.stdout)?;
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"][0]["kind"], "ExecAccessTemplate");

    let missing = run(&scene, "alice", &["get", "ear", "nobodys"]).await?;
    missing.ended_with(1)?;
    assert_eq!(
        missing.stderr,
        format!(
            "Error: execaccessrequests.crds.wizardofoz.co \"nobodys\" not found\nNext: `ozctl get \
             execaccessrequests -n {}` lists the existing ones\n",
            scene.name()
        )
    );
    let unknown = run(&scene, "alice", &["get", "pods"]).await?;
    unknown.ended_with(1)?;
    assert!(
        unknown.stderr.contains("podaccesstemplates"),
        "{}",
        unknown.stderr
    );
    Ok(())
}

#[tokio::test]
async fn a_template_that_is_not_there_is_said_before_anything_is_created() -> Result<()> {
    let scene = scene("missing").await?;
    let answer = run(&scene, "alice", &["create", "exec", "shel"]).await?;
    answer.ended_with(1)?;
    let said = &answer.stderr;
    assert!(
        said.contains("Error: - Invalid --template name flag passed in:"),
        "{said}"
    );
    assert!(said.contains("Next: `ozctl templates -n "), "{said}");
    let requests = scene.api::<ExecAccessRequest>();
    assert!(
        requests
            .list(&ListParams::default())
            .await?
            .items
            .is_empty()
    );
    Ok(())
}

#[tokio::test]
async fn create_by_unlisted_user_reports_rule_that_refuses() -> Result<()> {
    let scene = scene("denied").await?;
    let answer = run(&scene, "mallory", &["create", "exec", TEMPLATE]).await?;
    answer.ended_with(1)?;
    let said = &answer.stderr;
    assert!(
        said.contains("Error: mallory is in none of the groups that template shell allows (devs)"),
        "{said}"
    );
    assert!(answer.stdout.is_empty());
    Ok(())
}

#[tokio::test]
async fn create_timeout_leaves_request_and_reports_conditions() -> Result<()> {
    let scene = scene("late").await?;
    let nowhere = exec_template("nowhere", TargetKind::Deployment, "missing");
    scene.template(&nowhere).await?;
    let answer = run(&scene, "alice", &["create", "exec", "nowhere", "-w", "3s"]).await?;
    answer.ended_with(1)?;
    let said = &answer.stderr;
    assert!(
        said.contains("Error - timed out waiting for alice-"),
        "{said}"
    );
    let condition = "Condition TargetTemplateExists, State: True, Reason: Success, Message: ";
    assert!(said.contains(condition), "{said}");
    let requests = scene.api::<ExecAccessRequest>();
    assert_eq!(requests.list(&ListParams::default()).await?.items.len(), 1);
    Ok(())
}
