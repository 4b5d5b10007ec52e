//! Templates that exhaust or crash the component that evaluates them.

use anyhow::Result;
use kube::Api;
use oz_api::{ExecAccessTemplate, TargetKind};
use oz_e2e::{TEMPLATE, WORKLOAD, exec_request, exec_template, refusal, refused};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::Stage;

/// Writing a command policy that nests too deeply, loops in loops, doubles a value at each step, or is not CEL: the
/// webhook denies the template and names the field, and continues to serve requests.
#[tokio::test]
async fn a_command_policy_that_is_a_bomb() -> Result<()> {
    let stage = Stage::set("bomb").await?;
    for policy in [
        format!("{}true{}", "(".repeat(400), ")".repeat(400)),
        format!("{}true", "!".repeat(1000)),
        format!("true{}", " ? true : true".repeat(60)),
        format!("{}1 > 0", "-".repeat(1000)),
        "argv.all(a, argv.all(b, argv.all(c, argv.all(d, a == b))))".to_owned(),
        format!("argv{}", "[0]".repeat(300)),
        format!("[argv[0]]{}.size() == 1", ".map(a,a+a)".repeat(60)),
        format!("[argv]{}.size() == 1", ".map(a,[a,a])".repeat(60)),
        format!(
            "[argv[0]]{}.size() == 1",
            ".filter(a,a+a+a+a+a!='')".repeat(30)
        ),
        "argv.all(a, argv.existsOne(b, a == b))".to_owned(),
        "argv.all(a, a.matches(argv[0]))".to_owned(),
        "\u{0}".to_owned(),
        "argv[0] ==".to_owned(),
        "nobody == 'x'".to_owned(),
        "x".repeat(5000),
    ] {
        let mut template = exec_template("bomb", TargetKind::Deployment, WORKLOAD);
        template.spec.access_config.command_policy = Some(policy.clone());
        let why = refused(stage.template(&template).await)?;
        assert!(why.contains("commandPolicy"), "{policy}: {why}");
    }
    let alice = stage.requests("alice").await?;
    alice.granted(&exec_request("fine", TEMPLATE, "5m")).await?;
    Ok(())
}

/// A command policy that is small but slow, or that fails, for a particular command: the webhook denies this command
/// in bounded time, pauses a slow policy briefly, and then evaluates it for the next command.
#[tokio::test]
async fn a_command_policy_that_is_slow() -> Result<()> {
    let stage = Stage::set("slow").await?;
    let mut template = exec_template("slow", TargetKind::Deployment, WORKLOAD);
    let slow = ["!argv.contains(a+'y')"; 35].join("&&");
    template.spec.access_config.command_policy = Some(format!(
        "argv[0] == 'true' || (argv[7] == 'x' && (argv+argv+argv+argv).all(a, {slow}))"
    ));
    stage.template(&template).await?;
    stage.enforce().await?;
    let alice = stage.requests("alice").await?;
    let asked = alice.granted(&exec_request("mine", "slow", "5m")).await?;
    let pod = asked.pod();
    let many = vec!["x"; 500];
    // kubectl sends the request twice, and reports the second denial.
    for (argv, why) in [(&["echo"][..], "Index"), (&many, "did not respond in time")] {
        let command = [&[pod.as_str(), "--"], argv].concat();
        eventually(why, CONDITION_TIMEOUT, async || {
            let said = refusal(&stage.exec("alice", &command).output()?).unwrap_or_default();
            let refused = said.contains("commandPolicy") && said.contains(why);
            anyhow::ensure!(refused, "{said}");
            Ok(Some(()))
        })
        .await?;
    }
    eventually(
        "the policy to be asked again",
        CONDITION_TIMEOUT,
        async || {
            let said = refusal(&stage.exec("alice", &[&pod, "--", "true"]).output()?);
            Ok(said.is_none().then_some(()))
        },
    )
    .await
}

/// Writing an expensive command policy as a user who may write templates but not grant access: the webhook denies the
/// template because of the missing rights, before it evaluates the policy.
#[tokio::test]
async fn policy_bomb_of_user_without_rights_is_refused_before_evaluation() -> Result<()> {
    let stage = Stage::set("rightless").await?;
    let rule = json!({
        "apiGroups": ["crds.wizardofoz.co"], "resources": ["execaccesstemplates"], "verbs": ["create"],
    });
    stage.allow("templates", "mallory", &[rule]).await?;
    let client = stage.cluster.client("mallory").await?;
    let templates: Api<ExecAccessTemplate> = Api::namespaced(client, stage.name());
    let mut template = exec_template("bomb", TargetKind::Deployment, WORKLOAD);
    template.spec.access_config.command_policy =
        Some(format!("[argv[0]]{}.size() == 1", ".map(a,a+a)".repeat(60)));
    let why = refused(templates.create(&Default::default(), &template).await)?;
    assert!(
        why.contains("mallory may not") && !why.contains("commandPolicy"),
        "{why}"
    );
    Ok(())
}

/// Writing an access command (a Go template) that repeats without limit, reads fields that it may not read, or is
/// malformed: the webhook denies the template or the operator limits the access message to less than 64 KiB, and the
/// operator continues to grant requests.
#[tokio::test]
async fn an_access_command_that_is_a_bomb() -> Result<()> {
    let stage = Stage::set("words").await?;
    let alice = stage.requests("alice").await?;
    for (number, command) in [
        "{{ range .Metadata.Labels }}{{ range $.Metadata.Labels }}{{ printf \"%1000000000d\" 1 }}{{ end }}{{ end }}".to_owned(),
        "{{ printf \"%99999999s\" \"x\" }}".to_owned(),
        "{{ .Spec.Containers }}".to_owned(),
        "{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}".to_owned(),
        "{{ ".to_owned(),
        "{{ if true }}".repeat(300),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("words-{number}");
        let mut template = exec_template(&name, TargetKind::Deployment, WORKLOAD);
        template.spec.access_config.access_command = command.clone();
        if stage.template(&template).await.is_err() {
            continue;
        }
        alice.create(&exec_request(&name, &name, "5m")).await?;
        let asked = alice
            .until(&name, "to be looked at", |status| !status.conditions.is_empty())
            .await?;
        let message = asked.status.unwrap_or_default().access_message.unwrap_or_default();
        assert!(message.len() < 64 << 10, "{command}");
    }
    alice.granted(&exec_request("fine", TEMPLATE, "5m")).await?;
    Ok(())
}
