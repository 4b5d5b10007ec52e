//! Access with an invalid change ticket, and calls of other servers through the ticket check.

use anyhow::{Result, ensure};
use oz_api::conditions::{self, TICKET_ACCEPTED};
use oz_api::{Phase, RequestStatus, TicketConfig};
use oz_e2e::{
    Scene, System, TEMPLATE, TicketAnswer, TicketServer, conditions_line, exec_request, policy,
    refused, ticket_checks, ticket_template, with_policies,
};
use serde_json::json;

use crate::{Stage, stopped};

/// Checks whether the request waits because the ticket check has no result, with this reason.
fn waits(status: &RequestStatus, reason: &str) -> bool {
    let found = conditions::find(&status.conditions, TICKET_ACCEPTED);
    found.is_some_and(|found| found.reason == reason) && status.phase == Phase::Pending
}

/// Change tickets with newlines, spaces, bidirectional marks, no letters, `..`, or 1 MiB of text: the API server denies
/// the request and names the field.
#[tokio::test]
async fn a_ticket_that_is_no_word() -> Result<()> {
    let stage = Stage::set("ticketword").await?;
    stage
        .template(&ticket_template("asked", None, None))
        .await?;
    let alice = stage.requests("alice").await?;
    let huge = "x".repeat(1024 * 1024);
    let long = "x".repeat(129);
    for ticket in [
        "INC 42",
        "INC\n42",
        "INC\u{202e}42",
        "\u{200b}",
        "INC\u{0}",
        "\u{ff1d}1",
        "..",
        "../admin",
        "a/../b",
        r"a\..\b",
        ".",
        &long,
        &huge,
    ] {
        let mut request = exec_request("debug", "asked", "5m");
        request.spec.ticket = Some(ticket.to_owned());
        let why = refused(alice.create(&request).await)?;
        ensure!(
            why.contains("spec.ticket") || ticket.len() > 1000,
            "{ticket:?}: {why}"
        );
    }
    Ok(())
}

/// A missing change ticket, or one that matches the template's pattern only in part, also for a multi-line pattern: the
/// webhook denies the request.
#[tokio::test]
async fn a_ticket_that_matches_in_part() -> Result<()> {
    let stage = Stage::set("ticketpart").await?;
    for (name, pattern) in [
        ("plain", "INC-[0-9]+"),
        ("either", "INC-[0-9]+|CHG-[0-9]+"),
        ("lines", "(?m)^INC-[0-9]+$"),
    ] {
        stage
            .template(&ticket_template(name, Some(pattern), None))
            .await?;
        let alice = stage.requests("alice").await?;
        for ticket in [
            None,
            Some("INC-42x"),
            Some("xINC-42"),
            Some("INC-"),
            Some("inc-42"),
            Some("x|INC-42"),
        ] {
            let mut request = exec_request("debug", name, "5m");
            request.spec.ticket = ticket.map(ToOwned::to_owned);
            let why = refused(alice.create(&request).await)?;
            ensure!(
                why.contains("requires a ticket"),
                "{pattern} {ticket:?}: {why}"
            );
        }
        let mut request = exec_request(&format!("by-{name}"), name, "5m");
        request.spec.ticket = Some("INC-42".to_owned());
        alice.granted(&request).await?;
    }
    Ok(())
}

/// Patterns that close the enclosing group, look ahead, refer back, or compile to megabytes, in a template: the webhook
/// denies the template and names the field.
#[tokio::test]
async fn a_pattern_that_is_a_bomb() -> Result<()> {
    let stage = Stage::set("ticketbomb").await?;
    let long = "x".repeat(257);
    for pattern in [
        "a)|(b",
        "(",
        r"(a)\1",
        "(?=x)",
        "x{1000}{1000}",
        r"\w{999}{999}",
        "(?x)a#",
        "",
        &long,
    ] {
        let why = refused(
            stage
                .template(&ticket_template("bomb", Some(pattern), None))
                .await,
        )?;
        ensure!(why.contains("ticket.pattern"), "{pattern}: {why}");
    }
    // Other regular expression engines need unlimited time for this pattern; this one decides at once.
    stage
        .template(&ticket_template("slow", Some("(a+)+(a+)+b"), None))
        .await?;
    let alice = stage.requests("alice").await?;
    let mut request = exec_request("debug", "slow", "5m");
    request.spec.ticket = Some("a".repeat(128));
    refused(alice.create(&request).await)?;
    alice.granted(&exec_request("fine", TEMPLATE, "5m")).await?;
    Ok(())
}

/// A template, and an access policy, that name a ticket check without configuration: the request waits, and its
/// condition names the chart value to set.
#[tokio::test]
async fn a_check_that_there_is_not() -> Result<()> {
    let stage = Stage::set("ticketcheck").await?;
    stage
        .template(&ticket_template("asked", None, Some("nobody")))
        .await?;
    let alice = stage.requests("alice").await?;
    let mut request = exec_request("debug", "asked", "5m");
    request.spec.ticket = Some("INC-42".to_owned());
    alice.create(&request).await?;
    let unknown = |status: &RequestStatus| waits(status, "TicketCheckUnknown");
    let found = alice.until("debug", "to name the check", unknown).await?;
    let said = conditions_line(&found.status.unwrap_or_default());
    ensure!(said.contains("tickets.checks.nobody"), "{said}");

    let wants = oz_api::PolicyThen {
        require_ticket: Some(TicketConfig {
            pattern: None,
            check: Some("nobody".to_owned()),
        }),
        ..Default::default()
    };
    let rule = policy(&stage, "ticket", "true", wants);
    with_policies(&stage, &[rule], async || {
        let why = refused(alice.create(&exec_request("plain", TEMPLATE, "5m")).await)?;
        ensure!(why.contains("requires a ticket"), "{why}");
        let mut request = exec_request("named", TEMPLATE, "5m");
        request.spec.ticket = Some("INC-42".to_owned());
        alice.create(&request).await?;
        alice.until("named", "to name the check", unknown).await?;
        Ok(())
    })
    .await
}

/// Changing the change ticket of a granted request: the API server denies it, since the spec is immutable.
#[tokio::test]
async fn a_ticket_that_is_exchanged() -> Result<()> {
    let stage = Stage::set("ticketswap").await?;
    stage
        .template(&ticket_template("asked", Some("INC-.*"), None))
        .await?;
    let alice = stage.requests("alice").await?;
    let mut request = exec_request("debug", "asked", "5m");
    request.spec.ticket = Some("INC-1".to_owned());
    alice.granted(&request).await?;
    let admin = stage.api::<oz_api::ExecAccessRequest>();
    for change in [
        json!({"spec": {"ticket": "INC-2"}}),
        json!({"spec": {"ticket": null}}),
    ] {
        let patch = kube::api::Patch::Merge(&change);
        let why = refused(
            admin
                .patch("debug", &kube::api::PatchParams::default(), &patch)
                .await,
        )?;
        ensure!(why.contains("immutable"), "{why}");
    }
    Ok(())
}

/// A ticket server that redirects oz to a cloud metadata address, or to another server on the machine: the operator
/// does not follow the redirect, and treats it as no response.
#[tokio::test]
async fn a_redirect_to_metadata() -> Result<()> {
    let (mut place, scene) = stopped("ticketaway").await?;
    let server = TicketServer::start(TicketAnswer::Never).await?;
    let elsewhere = TicketServer::start(TicketAnswer::Open).await?;
    let checks = json!({"jira": server.check("Fail")});
    let system = System::start_with(crate::cluster().await?, &ticket_checks(&checks)).await?;
    *place = Some(system);
    let tried = redirected(&scene, &server, &elsewhere).await;
    // The next test starts oz without ticket checks.
    drop(place.take());
    tried
}

async fn redirected(scene: &Scene, server: &TicketServer, elsewhere: &TicketServer) -> Result<()> {
    scene
        .template(&ticket_template("asked", None, Some("jira")))
        .await?;
    let alice = scene.requests("alice").await?;
    let metadata = "http://169.254.169.254/latest/meta-data/".to_owned();
    for (number, to) in [metadata, elsewhere.url("/issue/INC-1")]
        .into_iter()
        .enumerate()
    {
        server.answer(TicketAnswer::Redirect(to));
        let name = format!("debug-{number}");
        let mut request = exec_request(&name, "asked", "5m");
        request.spec.ticket = Some(format!("INC-{number}"));
        alice.create(&request).await?;
        let away = |status: &RequestStatus| waits(status, "TicketCheckUnavailable");
        alice
            .until(&name, "to say that nobody answers", away)
            .await?;
    }
    ensure!(elsewhere.asked().is_empty(), "{:?}", elsewhere.asked());
    Ok(())
}
