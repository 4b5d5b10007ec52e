//! On-call checks: access without an approval during a shift, its end, and servers that do not respond.

use anyhow::{Context as _, Result, ensure};
use oz_api::conditions::{self, APPROVED};
use oz_api::{EndReason, ExecAccessTemplate, OnCallCheck, Phase, RequestStatus};
use oz_e2e::{
    Person, Scene, System, TicketAnswer, TicketServer, answer_to, approval_rule, approved_template,
    exec_request, records_in, ticket_checks,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use serde_json::json;

use crate::alone;
use crate::support::clean;

const BOB: Person = Person::new("bob", &["approvers"]);
const ERIN: Person = Person::new("erin", &["devs"]);

/// Returns a template that requires bob's approval, unless this check accepts the requester.
fn template(name: &str, check: &str) -> ExecAccessTemplate {
    let rules = vec![approval_rule("security", &["bob"], &[], 1)];
    let mut template = approved_template(name, rules, "1h");
    if let Some(approval) = &mut template.spec.access_config.approval {
        approval.unless = vec![OnCallCheck {
            check: check.to_owned(),
            group: None,
        }];
    }
    template
}

/// Returns reason and message of the condition `Approved`.
fn said(status: &RequestStatus) -> (String, String) {
    let found = conditions::find(&status.conditions, APPROVED);
    found.map_or_else(Default::default, |found| {
        (found.reason.clone(), found.message.clone())
    })
}

/// Returns the number of queries about alice so far.
fn queries(server: &TicketServer) -> usize {
    let heads = server.asked().into_iter();
    heads.filter(|head| head.contains("for=alice ")).count()
}

fn waits(status: &RequestStatus) -> bool {
    said(status).0 == "Waiting" && status.approval.is_some()
}

#[tokio::test]
async fn requester_has_access_without_approval_until_the_shift_ends() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let server = TicketServer::start(TicketAnswer::on_call("alice")).await?;
    let mut check = server.on_call_check("Fail");
    // A server that responds late on a busy machine is not unavailable.
    check["timeout"] = json!("10s");
    let system = System::start_with(cluster, &ticket_checks(&json!({"duty": check}))).await?;
    let scene = Scene::set(cluster, "oncall").await?;
    scene.template(&template("guarded", "duty")).await?;
    let alice = scene.requests("alice").await?;
    alice
        .create(&exec_request("debug", "guarded", "1h"))
        .await?;
    let status = alice.ready("debug").await?.status();
    assert_eq!(said(&status).0, "OnCall", "{status:?}");

    // A user who is not on call requires the approval.
    let request = exec_request("other", "guarded", "1h");
    let namespace = scene.name();
    ERIN.create(&scene.admin, namespace, "execaccessrequests", &request)
        .await?;
    let requests = scene.requests("admin").await?;
    let waiting = requests.until("other", "to wait for bob", waits).await?;
    let status = waiting.status.unwrap_or_default();
    let (_, message) = said(&status);
    let why = "erin is not on call by on-call check duty";
    ensure!(message.contains(why), "{message}");
    let (role, binding) = scene.grant("other").await?;
    assert!(role.is_none() && binding.is_none());

    // The operator asks repeatedly. The first response after the end of the shift ends access: one query can run at
    // that moment, and the next one follows after an interval.
    let before = queries(&server);
    eventually(
        "alice to be asked about again",
        CONDITION_TIMEOUT,
        async || Ok((queries(&server) > before + 1).then_some(())),
    )
    .await?;
    server.answer(TicketAnswer::on_call("erin"));
    let at_end = queries(&server);
    let status = alice.phase("debug", Phase::Revoked).await?;
    let asked = queries(&server) - at_end;
    ensure!(asked <= 2, "{asked} queries after the end of the shift");
    let ending = status.ending.clone().context("no end")?;
    assert_eq!(ending.reason, EndReason::OnCallEnded);
    assert_eq!(said(&status).0, "OnCallEnded");
    let (role, binding) = scene.grant("debug").await?;
    assert!(role.is_none() && binding.is_none());

    // The shift of erin has begun, so her waiting request requires no approval any more.
    requests.ready("other").await?;

    let records = records_in(&system.operator.process)?;
    let of = |name: &str, action: Action| {
        let mut found = records.iter();
        let found = found.find(|it| it.request.name == name && it.action == action);
        found
            .cloned()
            .with_context(|| format!("no {action} of {name}"))
    };
    let granted = of("debug", Action::AccessGranted)?;
    assert_eq!(granted.details["onCallChecks"], "duty");
    assert_eq!(granted.details["approvalReplaced"], "security");
    ensure!(!granted.details.contains_key("approvedBy"), "{granted:?}");
    assert_eq!(of("debug", Action::AccessRevoked)?.reason, "OnCallEnded");
    Ok(())
}

/// Returns responses that say of no user that they are on call.
fn no_answers() -> Vec<TicketAnswer> {
    let TicketAnswer::With(_, alice) = TicketAnswer::on_call("alice") else {
        return Vec::new();
    };
    let large = format!("{alice}{}", " ".repeat(1 << 20));
    vec![
        TicketAnswer::on_call("bob"),
        TicketAnswer::With(200, "<html>alice, please sign in</html>".into()),
        TicketAnswer::With(200, large),
        TicketAnswer::With(200, alice[..alice.len() / 2].to_owned()),
        TicketAnswer::With(401, alice.clone()),
        TicketAnswer::With(429, alice.clone()),
        TicketAnswer::With(500, alice),
        TicketAnswer::Redirect("http://169.254.169.254/latest/meta-data/".into()),
        TicketAnswer::Never,
    ]
}

#[tokio::test]
async fn approval_stays_required_without_valid_response_of_on_call_server() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let server = TicketServer::start(TicketAnswer::Never).await?;
    let checks = json!({
        "strict": server.on_call_check("Fail"), "lenient": server.on_call_check("Ignore"),
    });
    let _system = System::start_with(cluster, &ticket_checks(&checks)).await?;
    let scene = Scene::set(cluster, "nooncall").await?;
    scene.may_approve("approvers").await?;
    for check in ["strict", "lenient"] {
        scene.template(&template(check, check)).await?;
    }
    let alice = scene.requests("alice").await?;
    for (number, answer) in no_answers().into_iter().enumerate() {
        server.answer(answer.clone());
        for check in ["strict", "lenient"] {
            let name = format!("{check}-{number}");
            alice.create(&exec_request(&name, check, "1h")).await?;
            let waiting = alice.until(&name, "to wait for bob", waits).await;
            let waiting = waiting.with_context(|| format!("{answer:?}"))?;
            let phase = waiting.status.map(|status| status.phase);
            assert_eq!(phase, Some(Phase::Pending), "{answer:?}");
        }
    }

    // The approval is as valid as without the check, and the grant does not depend on the server.
    let waiting = alice.until("strict-0", "to wait for bob", waits).await?;
    let approval = answer_to(&waiting, "approval", true)?;
    let (admin, namespace) = (&scene.admin, scene.name());
    BOB.create(admin, namespace, "accessrequestapprovals", &approval)
        .await?;
    alice.ready("strict-0").await?;

    // The shift begins: the other requests are granted.
    server.answer(TicketAnswer::on_call("alice"));
    alice.ready("strict-1").await?;
    alice.ready("lenient-1").await?;

    // A long outage ends the grant of the strict check only, and extends none.
    server.answer(TicketAnswer::With(503, String::new()));
    let status = alice.phase("strict-1", Phase::Revoked).await?;
    let reason = status.ending.context("no end")?.reason;
    assert_eq!(reason, EndReason::OnCallCheckUnavailable);
    alice.phase("lenient-1", Phase::Active).await?;
    let approved = alice.phase("strict-0", Phase::Active).await?;
    ensure!(approved.ready, "{approved:?}");
    Ok(())
}
