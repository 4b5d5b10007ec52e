//! Commands that only read: the available templates, earlier requests, the decisions, and problems.

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use oz_api::{ExecAccessRequest, Phase, TargetKind};
use oz_e2e::{Scene, TEMPLATE, Terminal, exec_request, exec_template};
use serde_json::Value;

use crate::{run, scene};

fn rows(table: &str) -> Vec<Vec<String>> {
    table
        .lines()
        .map(|line| {
            line.split("   ")
                .map(|cell| cell.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .map(|row| row.into_iter().filter(|cell| !cell.is_empty()).collect())
        .collect()
}

#[tokio::test]
async fn templates_are_those_that_let_the_user_in() -> Result<()> {
    let scene = scene("templates").await?;
    let mine = run(&scene, "alice", &["templates"]).await?;
    mine.ended_with(0)?;
    assert_eq!(
        rows(&mine.stdout),
        [
            ["NAME", "FOR", "TARGET", "DEFAULT", "MAX", "READY"],
            [TEMPLATE, "exec", "deployment/web", "1h", "24h", "true"],
        ]
    );
    let none = run(&scene, "mallory", &["templates"]).await?;
    none.ended_with(0)?;
    assert!(none.stdout.is_empty(), "{}", none.stdout);
    assert!(
        none.stderr.contains("1 more do not grant mallory access"),
        "{}",
        none.stderr
    );
    let all = run(&scene, "mallory", &["templates", "--all", "-o", "json"]).await?;
    let all: Value = serde_json::from_str(&all.stdout)?;
    assert_eq!(all["items"][0]["mayAsk"], false);
    let reason = all["items"][0]["reason"].as_str().context("no reason")?;
    assert!(
        reason.starts_with("mallory is in none of the groups"),
        "{reason}"
    );
    Ok(())
}

async fn granted(scene: &Scene, user: &str, name: &str) -> Result<ExecAccessRequest> {
    let requests = scene.requests(user).await?;
    let granted = requests
        .granted(&exec_request(name, TEMPLATE, "10m"))
        .await?;
    Ok(granted.request)
}

#[tokio::test]
async fn requests_are_listed_and_revoked_by_permitted_users() -> Result<()> {
    let scene = scene("requests").await?;
    granted(&scene, "alice", "hers").await?;
    let his = granted(&scene, "bob", "his").await?;
    let all = run(&scene, "alice", &["requests"]).await?;
    all.ended_with(0)?;
    let table = rows(&all.stdout);
    assert_eq!(
        table[0],
        [
            "NAME",
            "FOR",
            "PHASE",
            "REQUESTER",
            "TEMPLATE",
            "POD",
            "LEFT"
        ]
    );
    assert_eq!(table[1][..5], ["hers", "exec", "Active", "alice", TEMPLATE]);
    assert_eq!(table[2][..5], ["his", "exec", "Active", "bob", TEMPLATE]);
    let mine = run(&scene, "alice", &["requests", "--mine", "-o", "name"]).await?;
    assert_eq!(mine.stdout, "execaccessrequest.crds.wizardofoz.co/hers\n");

    let mine = run(&scene, "alice", &["revoke", "--mine"]).await?;
    mine.ended_with(0)?;
    assert_eq!(mine.stdout, "ExecAccessRequest hers revoked\n");
    let one = run(&scene, "bob", &["delete", "ear/his"]).await?;
    one.ended_with(0)?;
    let name = oz_core::access::grant::object_name("his", &his.uid().unwrap_or_default());
    oz_testkit::eventually(
        "the grant to go",
        std::time::Duration::from_secs(60),
        async || {
            let (role, binding) = scene.grant(&name).await?;
            Ok((role.is_none() && binding.is_none()).then_some(()))
        },
    )
    .await?;
    let gone = run(&scene, "bob", &["revoke", "his"]).await?;
    gone.ended_with(1)?;
    assert!(
        gone.stderr.contains("`ozctl requests -n "),
        "{}",
        gone.stderr
    );
    Ok(())
}

#[tokio::test]
async fn extending_is_a_new_request_on_the_same_pod() -> Result<()> {
    let scene = scene("extend").await?;
    let first = granted(&scene, "alice", "first-a").await?;
    let pod = first.status.clone().and_then(|status| status.pod_name);
    let words = [
        "extend",
        "first-a",
        "--duration",
        "2h",
        "--reason",
        "INC-42",
        "-o",
        "json",
    ];
    let answer = run(&scene, "alice", &words).await?;
    answer.ended_with(0)?;
    let next: ExecAccessRequest = serde_json::from_str(&answer.stdout)?;
    assert_eq!(next.spec.extends.as_deref(), Some("first-a"));
    assert_eq!(next.spec.reason.as_deref(), Some("INC-42"));
    assert!(next.name_any().starts_with("first-"));
    let status = next.status.context("no status")?;
    assert_eq!(status.pod_name, pod);
    assert!(status.expires_at > first.status.and_then(|status| status.expires_at));

    let text = run(&scene, "alice", &["extend", "first-a"]).await?;
    text.ended_with(0)?;
    assert!(
        text.stdout.contains("Open sessions keep their expiry"),
        "{}",
        text.stdout
    );
    Ok(())
}

#[tokio::test]
async fn a_decision_is_explained_rule_by_rule_with_the_operators_plan() -> Result<()> {
    let scene = scene("explain").await?;
    let request = granted(&scene, "alice", "asked").await?;
    let pod = request
        .status
        .and_then(|status| status.pod_name)
        .context("no pod")?;
    // An administrator may list pods, and so sees the complete plan.
    let told = run(&scene, "admin", &["explain", "asked"]).await?;
    told.ended_with(0)?;
    for part in [
        "Status: Active",
        "yes RequesterVerified: Requested by alice",
        "yes membership: alice is in group devs",
        "yes container: all are allowed",
        "create Role oz-grant-explained-",
        "get, create on pods/exec ",
        "create RoleBinding explained-",
        "for User alice",
    ] {
        assert!(told.stdout.contains(part), "{part}\n{}", told.stdout);
    }
    assert!(told.stdout.contains(&pod), "{}", told.stdout);

    let words = [
        "explain",
        "--template",
        TEMPLATE,
        "--for",
        "mallory",
        "--group",
        "interns",
        "-o",
        "json",
    ];
    let no = run(&scene, "admin", &words).await?;
    no.ended_with(1)?;
    let no: Value = serde_json::from_str(&no.stdout)?;
    assert_eq!(no["allowed"], false);
    assert_eq!(no["rules"][1]["reason"], "NotAllowed");
    assert_eq!(no["rules"][1]["holds"], false);

    let alice = run(
        &scene,
        "alice",
        &["explain", "--template", TEMPLATE, "-D", "48h"],
    )
    .await?;
    alice.ended_with(0)?;
    let clamped = "Access requested duration (48h0m0s) larger than template maximum duration";
    assert!(alice.stdout.contains(clamped), "{}", alice.stdout);
    assert!(
        alice.stdout.contains("unknown: alice may not "),
        "{}",
        alice.stdout
    );
    Ok(())
}

#[tokio::test]
async fn denied_request_stays_and_is_explained() -> Result<()> {
    let scene = scene("refusal").await?;
    // The request is admitted while its template does not exist, and denied when the template is created.
    let mallory = scene.requests("mallory").await?;
    mallory.create(&exec_request("hers", "later", "5m")).await?;
    scene
        .template(&exec_template("later", TargetKind::Deployment, "web"))
        .await?;
    mallory.phase("hers", Phase::Denied).await?;
    let told = run(&scene, "mallory", &["explain", "hers"]).await?;
    told.ended_with(1)?;
    assert!(told.stdout.contains("Status: Denied"), "{}", told.stdout);
    assert!(
        told.stdout.contains("no  membership: mallory is in none"),
        "{}",
        told.stdout
    );
    Ok(())
}

#[tokio::test]
async fn doctor_reports_no_faults_of_healthy_system_and_remedies_otherwise() -> Result<()> {
    let scene = scene("doctor").await?;
    let well = run(&scene, "admin", &["doctor"]).await?;
    well.ended_with(0)?;
    for part in [
        "good    clock: ",
        "good    oz's kinds: ",
        "good    your rights: ",
        "good    webhook: it stamps requests with their requester",
        "good    registration: ",
        "good    certificates: valid until ",
        "good    operator's rights: ",
        "good    templates: all 1 in ",
        "good    standing rights: ",
    ] {
        assert!(well.stdout.contains(part), "{part}\n{}", well.stdout);
    }
    // A user may not read all of it, which is no finding.
    let alice = run(&scene, "alice", &["doctor", "-o", "json"]).await?;
    alice.ended_with(0)?;
    let findings: Value = serde_json::from_str(&alice.stdout)?;
    let verdicts: Vec<&str> = findings["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|finding| finding["verdict"].as_str())
        .collect();
    assert!(
        verdicts.contains(&"unknown") && !verdicts.contains(&"wrong"),
        "{findings}"
    );

    scene
        .template(&exec_template("broken", TargetKind::Deployment, "missing"))
        .await?;
    scene
        .api::<k8s_openapi::api::rbac::v1::RoleBinding>()
        .delete("people-may-ask", &DeleteParams::default())
        .await?;
    let ill = oz_testkit::eventually(
        "the doctor to see it",
        std::time::Duration::from_secs(60),
        async || {
            let ill = run(&scene, "alice", &["doctor"]).await?;
            let seen = ill.code == Some(1) && ill.stdout.contains("broken: ");
            Ok(seen.then_some(ill))
        },
    )
    .await?;
    assert!(
        ill.stdout
            .contains("WRONG   your rights: you may not create execaccessrequests"),
        "{}",
        ill.stdout
    );
    assert!(
        ill.stdout.contains("--clusterrole=oz-request-access"),
        "{}",
        ill.stdout
    );
    Ok(())
}

#[tokio::test]
async fn report_contains_no_names() -> Result<()> {
    let scene = scene("report").await?;
    let mut asked = exec_request("asked", TEMPLATE, "5m");
    asked.spec.reason = Some("of a private matter".to_owned());
    scene.requests("bob").await?.granted(&asked).await?;
    let report = run(&scene, "alice", &["report"]).await?;
    report.ended_with(0)?;
    let said: Value = serde_saphyr::from_str(&report.stdout)?;
    assert_eq!(
        said["execAccessRequests"][0]["metadata"]["name"],
        "request-1"
    );
    for private in [
        "alice",
        "bob",
        "private matter",
        "\"sig\"",
        scene.cluster.server_url(),
    ] {
        assert!(
            !report.stdout.contains(private),
            "{private}\n{}",
            report.stdout
        );
    }
    Ok(())
}

#[tokio::test]
async fn flags_of_kubectl_choose_user_and_cluster() -> Result<()> {
    let scene = scene("flags").await?;
    let as_bob = [
        "requests",
        "--as",
        "bob",
        "--as-group",
        "devs",
        "--request-timeout",
        "30s",
    ];
    run(&scene, "admin", &as_bob).await?.ended_with(0)?;
    let as_nobody = run(&scene, "admin", &["requests", "--as", "nobody"]).await?;
    as_nobody.ended_with(1)?;
    assert!(
        as_nobody.stderr.contains("nobody may not list "),
        "{}",
        as_nobody.stderr
    );
    let kubeconfig = scene.cluster.kubeconfig("bob");
    let kubeconfig = kubeconfig.to_str().context("no path")?;
    let his = run(
        &scene,
        "mallory",
        &["create", "exec", TEMPLATE, "--kubeconfig", kubeconfig],
    )
    .await?;
    his.ended_with(0)?;
    let made = scene.api::<ExecAccessRequest>();
    let made = made.list(&ListParams::default()).await?.items;
    let requester = made[0].status.clone().and_then(|status| status.requester);
    assert_eq!(requester.as_deref(), Some("bob"));
    let nowhere = run(&scene, "alice", &["version", "-s", "https://127.0.0.1:1"]).await?;
    nowhere.ended_with(1)?;
    assert!(
        nowhere
            .stderr
            .contains("failed to connect to the API server"),
        "{}",
        nowhere.stderr
    );
    Ok(())
}

#[tokio::test]
async fn colours_are_for_terminals_of_those_who_want_them() -> Result<()> {
    let scene = scene("colours").await?;
    for (set, coloured) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let mut command = std::process::Command::new(oz_testkit::cargo_binary("ozctl")?);
        command
            .args(["-n", scene.name(), "exec", "deploy/nothing"])
            .env("KUBECONFIG", scene.cluster.kubeconfig("alice"))
            .env("USER", "alice")
            .env_remove("NO_COLOR")
            .envs(set.iter().copied());
        let mut terminal = Terminal::start(&command, 30, 100)?;
        assert_eq!(terminal.code().await?, 125);
        terminal.shows("Next:").await?;
        let screen = terminal.screen();
        assert_eq!(
            screen.contains("\x1b[31mError:\x1b[0m"),
            coloured,
            "{screen}"
        );
        assert_eq!(screen.contains('\x1b'), coloured, "{screen}");
    }
    Ok(())
}
