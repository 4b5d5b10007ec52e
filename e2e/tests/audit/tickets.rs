//! Servers of ticket checks: they close tickets, stall, fail, and return invalid answers.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use oz_api::conditions::{self, TICKET_ACCEPTED};
use oz_api::{EndReason, Phase, RequestStatus};
use oz_e2e::{
    Scene, System, TEMPLATE, TicketAnswer, TicketServer, exec_request, records_in, ticket_checks,
    ticket_template,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;
use serde_json::json;

use crate::alone;
use crate::support::clean;

const TOKEN: &str = "a-token-that-nobody-logs";

/// Returns the reason why the ticket of a request is or is not accepted.
fn said(status: &RequestStatus) -> (String, String) {
    let found = conditions::find(&status.conditions, TICKET_ACCEPTED);
    found.map_or_else(Default::default, |found| {
        (found.reason.clone(), found.message.clone())
    })
}

async fn metric(system: &System, wanted: &str) -> Result<u64> {
    let metrics = system.operator.metrics().await?;
    let value = metrics.lines().find_map(|line| line.strip_prefix(wanted));
    Ok(value
        .map(|text| text.trim().parse())
        .transpose()?
        .unwrap_or(0))
}

/// Creates a request of alice with a ticket.
async fn asks(scene: &Scene, name: &str, template: &str, ticket: &str) -> Result<()> {
    let mut request = exec_request(name, template, "1h");
    request.spec.ticket = Some(ticket.to_owned());
    scene.requests("alice").await?.create(&request).await?;
    Ok(())
}

#[tokio::test]
async fn a_ticket_is_asked_about_before_the_grant_and_its_end_is_the_grants() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let server = TicketServer::start(TicketAnswer::Open).await?;
    let files = tempfile::tempdir()?;
    let directory = files.path().join("tickets/jira");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("token"), format!("{TOKEN}\n"))?;
    let mut check = server.check("Fail");
    check["secret"] = json!({"name": "jira", "token": "token"});
    // A server that answers late on a busy machine is not unavailable.
    check["timeout"] = json!("10s");
    let options =
        ticket_checks(&json!({"jira": check})).set("installation.secrets", files.path().display());
    let mut system = System::start_with(cluster, &options).await?;
    let scene = Scene::set(cluster, "tickets").await?;
    scene
        .template(&ticket_template("asked", Some("INC-.*"), Some("jira")))
        .await?;
    let alice = scene.requests("alice").await?;

    asks(&scene, "debug", "asked", "INC-4/2?#{x}").await?;
    let status = alice.ready("debug").await?.status();
    assert_eq!(said(&status).0, "Success");
    let heads = server.asked();
    let head = heads.first().context("nobody was asked")?;
    let line = "GET /issue/INC-4%2F2%3F%23%7Bx%7D?fields=state HTTP/1.1\r\n";
    assert!(head.starts_with(line), "{head}");
    assert!(
        head.contains(&format!("authorization: Bearer {TOKEN}\r\n")),
        "{head}"
    );

    // The operator asks the server repeatedly; then the ticket is closed.
    eventually("it to be asked again", CONDITION_TIMEOUT, async || {
        Ok((server.asked().len() > 2).then_some(()))
    })
    .await?;
    server.answer(TicketAnswer::Closed);
    let status = alice.phase("debug", Phase::Revoked).await?;
    let ending = status.ending.context("no end")?;
    assert_eq!(ending.reason, EndReason::TicketClosed);
    let (role, binding) = scene.grant("debug").await?;
    assert!(role.is_none() && binding.is_none());

    // A closed ticket gives no access, and the denial is recorded.
    asks(&scene, "again", "asked", "INC-7").await?;
    let status = alice.phase("again", Phase::Denied).await?;
    assert_eq!(said(&status).0, "TicketRefused");
    let records = records_in(&system.operator.process)?;
    let of = |name: &str, action: Action| {
        let mut found = records.iter();
        let found = found.find(|it| it.request.name == name && it.action == action);
        found
            .cloned()
            .with_context(|| format!("no {action} of {name}"))
    };
    let granted = of("debug", Action::AccessGranted)?;
    assert_eq!(granted.details["ticket"], "INC-4/2?#{x}");
    assert_eq!(granted.details["ticketChecks"], "jira");
    assert_eq!(of("debug", Action::AccessRevoked)?.reason, "TicketClosed");
    assert_eq!(of("again", Action::RequestDenied)?.reason, "TicketRefused");

    assert!(
        metric(
            &system,
            "oz_ticket_check_requests_total{check=\"jira\",result=\"accepted\"}"
        )
        .await?
            > 2
    );
    assert!(
        metric(
            &system,
            "oz_ticket_check_requests_total{check=\"jira\",result=\"refused\"}"
        )
        .await?
            > 1
    );
    let process = &mut system.operator.process;
    process.terminate(Duration::from_secs(30)).await?;
    assert!(!fs::read_to_string(process.stderr())?.contains(TOKEN));
    Ok(())
}

/// Returns responses that are no valid answers about a ticket.
fn no_answers() -> Vec<TicketAnswer> {
    vec![
        TicketAnswer::With(500, r#"{"state": "open"}"#.into()),
        TicketAnswer::With(200, "<html>please sign in</html>".into()),
        TicketAnswer::With(
            200,
            format!(
                "{{\"state\": \"open\", \"x\": \"{}\"}}",
                "x".repeat(1 << 20)
            ),
        ),
        TicketAnswer::With(200, "{}".into()),
        TicketAnswer::With(401, r#"{"state": "open"}"#.into()),
        TicketAnswer::Redirect("http://169.254.169.254/latest/meta-data/".into()),
        TicketAnswer::Never,
    ]
}

#[tokio::test]
async fn a_server_that_does_not_answer_holds_up_or_lets_pass_as_its_check_says() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let server = TicketServer::start(TicketAnswer::Never).await?;
    let checks = json!({"strict": server.check("Fail"), "lenient": server.check("Ignore")});
    let system = System::start_with(cluster, &ticket_checks(&checks)).await?;
    let scene = Scene::set(cluster, "away").await?;
    for check in ["strict", "lenient"] {
        scene
            .template(&ticket_template(check, None, Some(check)))
            .await?;
    }
    let alice = scene.requests("alice").await?;
    for (number, answer) in no_answers().into_iter().enumerate() {
        server.answer(answer.clone());
        let (waits, passes) = (format!("waits-{number}"), format!("passes-{number}"));
        asks(&scene, &waits, "strict", &format!("INC-{number}")).await?;
        asks(&scene, &passes, "lenient", &format!("INC-{number}")).await?;
        let status = alice
            .ready(&passes)
            .await
            .context(format!("{answer:?}"))?
            .status();
        assert_eq!(said(&status).0, "TicketCheckUnavailable", "{answer:?}");
        let away = |status: &RequestStatus| said(status).0 == "TicketCheckUnavailable";
        let status = alice
            .until(&waits, "to say that nobody answers", away)
            .await?;
        assert_eq!(
            status.status.map(|it| it.phase),
            Some(Phase::Pending),
            "{answer:?}"
        );
    }
    assert_eq!(
        metric(&system, "oz_ticket_check_unavailable{check=\"strict\"}").await?,
        1
    );
    // A request that needs no ticket does not wait for the server.
    alice
        .granted(&exec_request("plain", TEMPLATE, "1h"))
        .await?;

    // When the server is available again, the waiting requests are granted; the grants that its failure policy allowed
    // continue.
    server.answer(TicketAnswer::Open);
    alice.ready("waits-0").await?;
    for number in 0..no_answers().len() {
        alice.ready(&format!("passes-{number}")).await?;
    }
    eventually("it to be back", CONDITION_TIMEOUT, async || {
        ensure!(metric(&system, "oz_ticket_check_unavailable{check=\"strict\"}").await? == 0);
        Ok(Some(()))
    })
    .await?;

    // The strict check ends access after a long failure of its server, the lenient check does not.
    server.answer(TicketAnswer::With(503, String::new()));
    let status = alice.phase("waits-0", Phase::Revoked).await?;
    assert_eq!(
        status.ending.context("no end")?.reason,
        EndReason::TicketCheckUnavailable
    );
    alice.phase("passes-0", Phase::Active).await?;
    Ok(())
}

#[tokio::test]
async fn many_requests_by_one_ticket_are_one_question() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let server = TicketServer::start(TicketAnswer::Open).await?;
    let mut check = server.check("Fail");
    check["interval"] = json!("1h");
    let _system = System::start_with(cluster, &ticket_checks(&json!({"jira": check}))).await?;
    let scene = Scene::set(cluster, "many").await?;
    scene
        .template(&ticket_template("asked", None, Some("jira")))
        .await?;
    let alice = scene.requests("alice").await?;
    let names: Vec<String> = (0..20).map(|number| format!("debug-{number}")).collect();
    for name in &names {
        asks(&scene, name, "asked", "INC-1").await?;
    }
    for name in &names {
        alice.ready(name).await?;
    }
    let asked = server.asked().len();
    // An answer must not be older than its request, in whole seconds: so the operator asks once for each second that
    // creating the requests took.
    ensure!(asked < names.len(), "{asked} questions");
    Ok(())
}
