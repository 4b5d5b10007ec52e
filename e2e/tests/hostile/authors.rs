//! What a template's author may write, meant to bring down whoever evaluates it.

use anyhow::Result;
use kube::Api;
use oz_api::{ExecAccessTemplate, TargetKind};
use oz_e2e::{TEMPLATE, WORKLOAD, exec_request, exec_template, refusal, refused};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::json;

use crate::Stage;

/// Command policies that nest without end, loop in loops, double a value at each step, or are not CEL:
/// refused with the field when the template is written, and the webhook goes on.
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

/// A policy that is small but slow, or fails, for the command that comes: that command is refused, in
/// bounded time; a slow one rests for a moment, and then the next command is answered.
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
    // kubectl asks twice, and tells of the second time.
    for (argv, why) in [(&["echo"][..], "Index"), (&many, "no answer")] {
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

/// A policy that is a bomb, by somebody who may write templates and hand out nothing: refused for what
/// they may not, before it is evaluated.
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

/// An access command (a Go template) that repeats without end, reads what it should not, or is
/// broken: refused, or cut short, and the operator goes on.
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
