//! Evading access policies, or overloading the components that evaluate them.

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use oz_api::{
    AccessPolicy, AccessPolicySpec, ApprovalConfig, ExecAccessRequest, ExecAccessTemplate, Phase,
    TargetKind, labels,
};
use oz_core::access::stamp;
use oz_e2e::{
    Person, TEMPLATE, WORKLOAD, agreed, answer_to, approval_rule, at_most, conditions_line, deny,
    exec_request, exec_template, policy, refused, remove, with_policies,
};
use serde_json::json;

use crate::Stage;

const BOB: Person = Person::new("bob", &["approvers"]);
const ANSWERS: &str = "accessrequestapprovals";
/// The extra attribute that the webhook of these tests stamps, and the header by which an administrator impersonates it.
const ACR: &str = "example.org/acr";
const ACR_HEADER: &str = "impersonate-extra-example.org%2facr";

/// Returns expressions of unlimited cost, and invalid expressions.
fn bombs() -> Vec<String> {
    let groups = "requester.groups";
    vec![
        format!("{}true{}", "(".repeat(400), ")".repeat(400)),
        format!("{}true", "!".repeat(900)),
        format!("true{}", " ? true : true".repeat(60)),
        format!("{groups}.all(a, {groups}.all(b, {groups}.all(c, a == b)))"),
        format!("{groups}{}", "[0]".repeat(300)),
        format!("[{groups}]{}.size() == 1", ".map(a,[a,a])".repeat(30)),
        format!("size(request.reason{}) > 0", " + request.reason".repeat(50)),
        format!("{groups}.all(a, a.matches(a))"),
        "request.name.matches('(((a{1000}){1000}){1000}')".to_owned(),
        "\u{0}".to_owned(),
        "request.name ==".to_owned(),
        "nobody == 'x'".to_owned(),
        "request.nmae == 'x'".to_owned(),
    ]
}

async fn written(stage: &Stage, text: &str) -> kube::Result<AccessPolicy> {
    let spec = AccessPolicySpec {
        r#match: text.to_owned(),
        time_zone: None,
        then: deny("no"),
    };
    let policy = AccessPolicy::new(&format!("{}-bomb", stage.name()), spec);
    let policies = Api::<AccessPolicy>::all(stage.admin.clone());
    policies.create(&PostParams::default(), &policy).await
}

/// Returns a template with approval rules that apply under this condition.
fn conditional(name: &str, when: &str) -> ExecAccessTemplate {
    let mut template = exec_template(name, TargetKind::Deployment, WORKLOAD);
    template.spec.access_config.approval = Some(ApprovalConfig {
        rules: vec![approval_rule("security", &["bob"], &[], 1)],
        when: Some(when.to_owned()),
        timeout: "10m".to_owned(),
        require_reason: false,
        unless: Vec::new(),
    });
    template
}

/// Writing an access policy with unlimited nesting, nested loops, a value that doubles at each step, unknown names, or
/// invalid CEL: the webhook denies it, names the field, and continues to serve.
#[tokio::test]
async fn an_access_policy_that_is_a_bomb() -> Result<()> {
    let stage = Stage::set("policybomb").await?;
    for text in bombs() {
        let why = refused(written(&stage, &text).await)?;
        assert!(why.contains("spec.match"), "{text}: {why}");
    }
    let alice = stage.requests("alice").await?;
    alice.granted(&exec_request("fine", TEMPLATE, "5m")).await?;
    Ok(())
}

/// Writing such an expression as the condition of a template's approval rules: the webhook denies it and names the
/// field.
#[tokio::test]
async fn a_condition_of_rules_that_is_a_bomb() -> Result<()> {
    let stage = Stage::set("whenbomb").await?;
    for text in bombs() {
        let why = refused(stage.template(&conditional("bomb", &text)).await)?;
        assert!(why.contains("approval.when"), "{text}: {why}");
    }
    Ok(())
}

/// An expression of 1 MiB in an access policy and in a template: the API server denies both before the expression is
/// parsed.
#[tokio::test]
async fn an_expression_of_a_mebibyte() -> Result<()> {
    let stage = Stage::set("mebibyte").await?;
    let text = format!("'{}' == request.name", "x".repeat(1024 * 1024));
    refused(written(&stage, &text).await)?;
    refused(stage.template(&conditional("large", &text)).await)?;
    Ok(())
}

/// An access policy with invisible characters, bidirectional characters, or letters of another alphabet, which reads
/// differently than it is evaluated: the webhook denies it.
#[tokio::test]
async fn a_policy_that_reads_otherwise_than_it_is() -> Result<()> {
    let stage = Stage::set("unicode").await?;
    for text in [
        "request.namespace == 'prod\u{202e}' && false",
        "request.namespace == 'pr\u{200b}od'",
        "request.namespace == '\u{2066}prod\u{2069}'",
        "requеst.namespace == 'prod'",
    ] {
        let why = refused(written(&stage, text).await)?;
        assert!(why.contains("spec.match"), "{text:?}: {why}");
    }
    Ok(())
}

/// Requesting access while an access policy cannot be evaluated for the request: the webhook denies it, and the message
/// names the policy and the role that may change it.
#[tokio::test]
async fn a_policy_that_fails() -> Result<()> {
    let stage = Stage::alone("failing").await?;
    let failing = policy(
        &stage,
        "failing",
        "template.labels['team'] == 'shop'",
        at_most("1h"),
    );
    with_policies(&stage, &[failing], async || {
        let alice = stage.requests("alice").await?;
        let why = refused(alice.create(&exec_request("mine", TEMPLATE, "5m")).await)?;
        let named = format!("failed to evaluate AccessPolicy {}-failing", stage.name());
        assert!(
            why.contains(&named) && why.contains("oz-policy-manager"),
            "{why}"
        );
        Ok(())
    })
    .await
}

/// Creates a request as alice, who logged in with these factors.
async fn created_with(
    stage: &Stage,
    factors: &[&str],
    request: &ExecAccessRequest,
) -> kube::Result<ExecAccessRequest> {
    let namespace = stage.name();
    let uri =
        format!("/apis/crds.wizardofoz.co/v1alpha1/namespaces/{namespace}/execaccessrequests");
    let mut builder = http::Request::post(uri)
        .header("content-type", "application/json")
        .header("impersonate-user", "alice")
        .header("impersonate-group", "devs");
    for factor in factors {
        builder = builder.header(ACR_HEADER, *factor);
    }
    let body = serde_json::to_vec(request).map_err(kube::Error::SerdeError)?;
    let request = builder.body(body).map_err(kube::Error::HttpError)?;
    stage.admin.request(request).await
}

/// Requesting access without the second factor that an access policy requires, with the stamp of a request that had it:
/// the webhook overwrites the stamp, and denies the request.
#[tokio::test]
async fn second_factor_of_another_request() -> Result<()> {
    let stage = Stage::alone("factor").await?;
    let without = "!('example.org/acr' in requester.extra) \
                   || !('mfa' in requester.extra['example.org/acr'])";
    let mfa = policy(&stage, "mfa", without, deny("log in with a second factor"));
    with_policies(&stage, &[mfa], async || {
        let mine = exec_request("mine", TEMPLATE, "5m");
        let stamped = created_with(&stage, &["pwd", "mfa"], &mine).await?;
        let stamp = stamp::parse_unverified(&stamped.metadata).context("no stamp")?;
        assert_eq!(stamp.extra[ACR], ["pwd", "mfa"]);
        let alice = stage.requests("alice").await?;
        alice.ready("mine").await?;
        let mut forged: ExecAccessRequest = exec_request("forged", TEMPLATE, "5m");
        forged.metadata.annotations = stamped.metadata.annotations;
        for factors in [&[][..], &["pwd"], &["MFA"]] {
            let why = refused(created_with(&stage, factors, &forged).await)?;
            assert!(why.contains("log in with a second factor"), "{why}");
        }
        let large = "x".repeat(5000);
        let why = refused(created_with(&stage, &["mfa", &large], &forged).await)?;
        assert!(why.contains("maximum is 4096"), "{why}");
        Ok(())
    })
    .await
}

/// Deleting an access policy between request and approval: its rules remain in force for the earlier request.
#[tokio::test]
async fn a_policy_that_is_removed_before_the_approval() -> Result<()> {
    let stage = Stage::alone("removed").await?;
    stage.may_approve("approvers").await?;
    let rule = approval_rule("security", &["bob"], &[], 1);
    let one = policy(&stage, "agree", "true", agreed(rule));
    let name = one.metadata.name.clone().context("no name")?;
    with_policies(&stage, &[one], async || {
        let alice = stage.requests("alice").await?;
        alice.create(&exec_request("mine", TEMPLATE, "5m")).await?;
        let asks = |status: &oz_api::RequestStatus| status.approval.is_some();
        let request = alice.until("mine", "to wait for others", asks).await?;
        remove(&stage, &name).await?;
        let later = alice
            .granted(&exec_request("later", TEMPLATE, "5m"))
            .await?;
        assert_eq!(later.status().phase, Phase::Active);
        let still = alice.api().get("mine").await?.status.unwrap_or_default();
        assert_eq!(still.phase, Phase::Pending, "{}", conditions_line(&still));
        let answer = answer_to(&request, "yes", true)?;
        BOB.create(&stage.admin, stage.name(), ANSWERS, &answer)
            .await?;
        alice.ready("mine").await?;
        Ok(())
    })
    .await
}

/// Approving a request that stricter access policies, created after the request, deny: the webhook denies the approval.
#[tokio::test]
async fn an_approval_under_stricter_policies() -> Result<()> {
    let stage = Stage::alone("stricter").await?;
    stage.may_approve("approvers").await?;
    let rule = approval_rule("security", &["bob"], &[], 1);
    let agree = policy(&stage, "agree", "true", agreed(rule));
    let freeze = policy(&stage, "freeze", "true", deny("the freeze"));
    with_policies(&stage, &[agree], async || {
        let alice = stage.requests("alice").await?;
        alice.create(&exec_request("mine", TEMPLATE, "5m")).await?;
        let asks = |status: &oz_api::RequestStatus| status.approval.is_some();
        let request = alice.until("mine", "to wait for others", asks).await?;
        with_policies(&stage, &[freeze], async || {
            let answer = answer_to(&request, "yes", true)?;
            let given = BOB.create(&stage.admin, stage.name(), ANSWERS, &answer);
            let why = refused(given.await)?;
            assert!(
                why.contains("have become stricter") && why.contains("the freeze"),
                "{why}"
            );
            Ok(())
        })
        .await
    })
    .await
}

/// A template that decides by the labels of a request whether the request requires approvals: the webhook denies the
/// template, since the labels of a request are not available as a variable.
#[tokio::test]
async fn a_condition_on_labels_of_the_request() -> Result<()> {
    let stage = Stage::set("ownlabels").await?;
    for when in [
        "request.labels['urgent'] != 'true'",
        "object.metadata.labels['a'] == 'b'",
    ] {
        let why = refused(stage.template(&conditional("labels", when)).await)?;
        assert!(why.contains("approval.when"), "{when}: {why}");
    }
    Ok(())
}

/// Supplying one's own judgement, by which no rule applies: the webhook overwrites it with the real judgement.
#[tokio::test]
async fn a_judgement_of_ones_own() -> Result<()> {
    let stage = Stage::set("ownjudgement").await?;
    let template = conditional("asked", "request.namespace != 'nowhere'");
    stage.template(&template).await?;
    let mut request: ExecAccessRequest = exec_request("mine", "asked", "5m");
    let forged =
        json!({ "user": "alice", "judgement": { "when": "Exempts", "asked": 0 }, "sig": "x" });
    request.metadata.annotations =
        Some([(labels::REQUESTER.to_owned(), forged.to_string())].into());
    let alice = stage.requests("alice").await?;
    alice.create(&request).await?;
    let asks = |status: &oz_api::RequestStatus| status.approval.is_some();
    let waits = alice.until("mine", "to wait for others", asks).await?;
    let line = conditions_line(&waits.status.unwrap_or_default());
    assert!(line.contains("waiting for security: bob may"), "{line}");
    Ok(())
}

/// Writing into the status of an access policy that it cannot be evaluated, as an administrator: the API server denies
/// it.
#[tokio::test]
async fn the_status_of_a_policy() -> Result<()> {
    let stage = Stage::alone("policystatus").await?;
    let one = policy(&stage, "short", "true", at_most("1h"));
    let name = one.metadata.name.clone().context("no name")?;
    with_policies(&stage, &[one], async || {
        let policies = Api::<AccessPolicy>::all(stage.admin.clone());
        let status = Patch::Merge(json!({ "status": { "ready": false } }));
        let parameters = PatchParams::default();
        let patched = policies.patch_status(&name, &parameters, &status).await;
        let why = refused(patched)?;
        assert!(why.contains("operator"), "{why}");
        Ok(())
    })
    .await
}

/// Changing the label by which an access policy matches the template while the request waits: the operator denies the
/// request, because its judgement is outdated.
#[tokio::test]
async fn a_template_that_loses_its_label_while_a_request_waits() -> Result<()> {
    let stage = Stage::alone("lostlabel").await?;
    let templates = stage.api::<ExecAccessTemplate>();
    let label = |value: &str| Patch::Merge(json!({ "metadata": { "labels": { "tier": value } } }));
    templates
        .patch(TEMPLATE, &PatchParams::default(), &label("prod"))
        .await?;
    let rule = approval_rule("security", &["bob"], &[], 1);
    let by_label = "'tier' in template.labels && template.labels['tier'] == 'prod'";
    let one = policy(&stage, "tier", by_label, agreed(rule));
    with_policies(&stage, &[one], async || {
        let alice = stage.requests("alice").await?;
        alice.create(&exec_request("mine", TEMPLATE, "5m")).await?;
        let asks = |status: &oz_api::RequestStatus| status.approval.is_some();
        alice.until("mine", "to wait for others", asks).await?;
        templates
            .patch(TEMPLATE, &PatchParams::default(), &label("test"))
            .await?;
        let status = alice.phase("mine", Phase::Denied).await?;
        let line = conditions_line(&status);
        assert!(line.contains("PolicyOutdated"), "{line}");
        Ok(())
    })
    .await
}
