//! Looking at runs, workspaces, policies and transcripts.

use k8s_openapi::api::rbac::v1::Role;

use super::*;

#[tokio::test]
async fn runs_are_listed_shown_and_followed() -> Result<()> {
    let (cluster, namespace) = namespace("verbs-look").await?;
    let runs = runs(cluster, &namespace).await?;
    let none = run(cluster, &namespace, &["run", "list"]).await?;
    none.ended_with(0)?.says("No runs found")?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), "from a file")?;
    let path = file.path().to_str().context("no path")?;
    let words = [
        "run",
        "submit",
        "-t",
        "echo",
        "--prompt-file",
        path,
        "--name",
        "hello",
        "-o",
        "name",
    ];
    let made = run(cluster, &namespace, &words).await?;
    assert_eq!(made.ended_with(0)?.stdout, "harnessrun.paddock.dev/hello\n");
    assert_eq!(
        runs.get("hello").await?.spec.prompt.as_deref(),
        Some("from a file")
    );
    let status = json!({"phase": "Running", "workspaceRef": "hello-ws", "recentEvents": [event(1, "begun")]});
    becomes(&runs, "hello", status).await?;
    let listed = run(cluster, &namespace, &["run", "list"]).await?;
    let row: Vec<&str> = listed
        .stdout
        .lines()
        .nth(1)
        .context("no row")?
        .split_whitespace()
        .collect();
    assert_eq!(row[..4], ["hello", "Running", "echo", "hello-ws"]);
    let templates = run(
        cluster,
        &namespace,
        &["run", "list", "templates", "-o", "name"],
    )
    .await?;
    assert_eq!(
        templates.stdout,
        "harnesstemplate.paddock.dev/claude\nharnesstemplate.paddock.dev/echo\n"
    );
    for what in ["workspaces", "clustertemplates"] {
        run(cluster, &namespace, &["run", "list", what])
            .await?
            .ended_with(0)?;
    }
    let shown = run(
        cluster,
        &namespace,
        &["run", "status", "hello", "-o", "json"],
    )
    .await?;
    let shown: Value = serde_json::from_str(&shown.stdout)?;
    assert_eq!(shown["kind"], "HarnessRun");
    assert_eq!(shown["status"]["phase"], "Running");
    run(cluster, &namespace, &["run", "status", "hello"])
        .await?
        .says("Workspace: hello-ws")?;
    let events = run(cluster, &namespace, &["run", "events", "hello"]).await?;
    assert_eq!(events.stdout, "09:00:01  Message      begun\n");

    let words = ["run", "events", "hello", "-f", "-o", "json"];
    let child = ozctl(cluster, &namespace, &words)?.spawn()?;
    let end = json!({"phase": "Failed", "recentEvents": [event(1, "begun"), event(2, "over")]});
    becomes(&runs, "hello", end).await?;
    let followed = ended(child).await?;
    let lines: Result<Vec<Value>, _> = followed
        .ended_with(0)?
        .stdout
        .lines()
        .map(serde_json::from_str)
        .collect();
    let summaries: Vec<Value> = lines?.iter().map(|line| line["summary"].clone()).collect();
    assert_eq!(summaries, ["begun", "over"]);
    Ok(())
}

#[tokio::test]
async fn destinations_are_listed_followed_and_explained() -> Result<()> {
    let (cluster, namespace) = namespace("verbs-egress").await?;
    let runs = runs(cluster, &namespace).await?;
    let words = [
        "run", "submit", "-t", "echo", "--prompt", "hi", "--name", "hello",
    ];
    run(cluster, &namespace, &words).await?.ended_with(0)?;
    let none = run(cluster, &namespace, &["run", "egress", "hello"]).await?;
    none.ended_with(0)?.says("has reached no host")?;
    let granted = json!({
        "host": "api.anthropic.com", "port": 443, "granted": 2, "credential": "ANTHROPIC_API_KEY",
        "first": "2026-01-31T09:00:00Z", "last": "2026-01-31T09:01:00Z",
    });
    let refused = json!({
        "host": "api.example.com", "port": 443, "refused": 3, "reason": "Handshake",
        "first": "2026-01-31T09:00:00Z", "last": "2026-01-31T09:01:00Z",
    });
    let status = json!({"phase": "Running", "egress": [granted]});
    becomes(&runs, "hello", status).await?;
    let listed = run(cluster, &namespace, &["run", "egress", "hello"]).await?;
    let mut rows = listed.ended_with(0)?.stdout.lines();
    assert_eq!(
        rows.next().unwrap_or_default().split_whitespace().last(),
        Some("LAST")
    );
    let row: Vec<&str> = rows.next().context("no row")?.split_whitespace().collect();
    assert_eq!(
        row[..5],
        ["api.anthropic.com", "443", "2", "0", "ANTHROPIC_API_KEY"]
    );

    let words = ["run", "egress", "hello", "-f", "-o", "json"];
    let child = ozctl(cluster, &namespace, &words)?.spawn()?;
    let status = json!({"phase": "Failed", "egress": [granted, refused]});
    becomes(&runs, "hello", status).await?;
    let followed = ended(child).await?;
    let lines = followed.ended_with(0)?.stdout.lines();
    let lines: Vec<Value> = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
    let hosts: Vec<&Value> = lines.iter().map(|line| &line["host"]).collect();
    assert_eq!(hosts, ["api.anthropic.com", "api.example.com"]);
    let explained = run(cluster, &namespace, &["run", "explain", "hello"]).await?;
    explained
        .ended_with(1)?
        .says("3 attempts to reach api.example.com:443 refused")?
        .says("NODE_EXTRA_CA_CERTS")?;
    Ok(())
}

#[tokio::test]
async fn explain_lists_causes_of_waiting_run() -> Result<()> {
    let (cluster, namespace) = namespace("verbs-explain").await?;
    let runs = runs(cluster, &namespace).await?;
    let workspaces: Api<Workspace> =
        Api::namespaced(cluster.client("admin").await?, namespace.name());
    let cage = serde_json::from_value(json!({
        "metadata": {"name": "cage"}, "spec": {"storage": {"size": "1Gi"}},
    }))?;
    workspaces.create(&PostParams::default(), &cage).await?;
    for (name, template) in [
        ("a-first", "echo"),
        ("b-second", "echo"),
        ("c-third", "claude"),
    ] {
        let words = format!("run submit -t {template} --workspace cage --prompt hi --name {name}");
        let words: Vec<&str> = words.split(' ').collect();
        run(cluster, &namespace, &words).await?.ended_with(0)?;
        oz_e2e::next_second().await?;
    }
    let uid = runs.get("a-first").await?.uid().context("no uid")?;
    let held =
        json!({"status": {"phase": "Active", "activeRunRef": "a-first", "activeRunUID": uid}});
    workspaces
        .patch_status("cage", &PatchParams::default(), &Patch::Merge(held))
        .await?;
    let begun = json!({"phase": "Running", "jobName": "a-first"});
    becomes(&runs, "a-first", begun).await?;
    let busy = json!({
        "type": "WorkspaceBound", "status": "False", "reason": "WorkspaceBusy",
        "message": "Workspace cage is in use", "lastTransitionTime": "2026-01-31T09:00:00Z",
    });
    let waits = json!({"phase": "Pending", "conditions": [busy]});
    becomes(&runs, "b-second", waits).await?;

    let first = run(cluster, &namespace, &["run", "explain", "a-first"]).await?;
    first.ended_with(0)?.says("it uses Workspace cage")?;
    let second = run(cluster, &namespace, &["run", "explain", "b-second"]).await?;
    second
        .ended_with(1)?
        .says("run a-first uses Workspace cage; this run is number 2 on it, behind a-first")?;
    let third = run(cluster, &namespace, &["run", "explain", "c-third"]).await?;
    third
        .ended_with(1)?
        .says("number 3 on it, behind a-first, b-second")?
        .says("credential ANTHROPIC_API_KEY; egress to api.anthropic.com:443")?;
    let words = [
        "run", "submit", "-t", "none", "--prompt", "hi", "--name", "lost",
    ];
    run(cluster, &namespace, &words).await?.ended_with(0)?;
    let lost = run(
        cluster,
        &namespace,
        &["run", "explain", "lost", "-o", "json"],
    )
    .await?;
    let lost: Value = serde_json::from_str(&lost.ended_with(1)?.stdout)?;
    assert_eq!(lost["findings"][0]["about"], "template");
    assert_eq!(lost["findings"][0]["holds"], false);
    let over = json!({"phase": "Failed", "conditions": completed("DeadlineExceeded", "its time was over")});
    becomes(&runs, "lost", over).await?;
    let over = run(cluster, &namespace, &["run", "explain", "lost"]).await?;
    over.ended_with(1)?
        .says("Failed: its time was over (DeadlineExceeded)")?;

    let listed = run(cluster, &namespace, &["workspace", "list"]).await?;
    listed.ended_with(0)?.says("a-first")?;
    let gone = run(cluster, &namespace, &["workspace", "end", "cage"]).await?;
    gone.ended_with(0)?
        .says("Workspace cage is deleted when run a-first has ended")?;
    assert!(workspaces.get_opt("cage").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_policy_that_is_lacking_is_named_and_the_scaffolded_one_is_taken() -> Result<()> {
    for provider in ["UserSuppliedSecret", "AnthropicAPI", "GitHubApp", "PATPool"] {
        let (cluster, namespace) = namespace("verbs-policy").await?;
        let lacking = run(cluster, &namespace, &["policy", "check", "claude"]).await?;
        lacking
            .ended_with(1)?
            .says("Lacking: credential ANTHROPIC_API_KEY; egress to api.anthropic.com:443")?;
        let enough = run(cluster, &namespace, &["policy", "check", "echo"]).await?;
        enough.ended_with(0)?;
        let words = [
            "policy",
            "scaffold",
            "claude",
            "--provider",
            provider,
            "--name",
            "grants",
        ];
        let printed = run(cluster, &namespace, &words).await?;
        printed
            .ended_with(0)?
            .says("# credential ANTHROPIC_API_KEY: Secret anthropic-api-key")?;
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), &printed.stdout)?;
        let mut kubectl = cluster.kubectl("admin");
        kubectl
            .args(["create", "--validate=strict", "-f"])
            .arg(file.path());
        let taken = tokio::task::spawn_blocking(move || kubectl.output()).await??;
        ensure!(
            taken.status.success(),
            "{}",
            String::from_utf8_lossy(&taken.stderr)
        );
        let policies: Api<BrokerPolicy> =
            Api::namespaced(cluster.client("admin").await?, namespace.name());
        let policy = policies.get("grants").await?;
        let violations = oz_runs::admission::policy(&policy, None, jiff::Timestamp::now());
        assert_eq!(violations, vec![]);
        let granted = run(cluster, &namespace, &["policy", "check", "claude"]).await?;
        if !["UserSuppliedSecret", "AnthropicAPI"].contains(&provider) {
            granted.ended_with(1)?.says("which is not served yet")?;
            continue;
        }
        granted.ended_with(0)?.says("grants")?;
        let roles = Api::<Role>::namespaced(cluster.client("admin").await?, namespace.name());
        let role = roles.get("grants-secrets").await?;
        let words = ["policy", "scaffold", "claude", "--role"];
        let printed = run(cluster, &namespace, &words).await?;
        printed.ended_with(0)?.says("grants-secrets")?;
        let rules = role.rules.unwrap_or_default();
        let names = rules.first().and_then(|rule| rule.resource_names.clone());
        assert_eq!(names, Some(vec!["anthropic-api-key".to_owned()]));
        let listed = run(cluster, &namespace, &["policy", "list"]).await?;
        listed
            .ended_with(0)?
            .says("ANTHROPIC_API_KEY")?
            .says("api.anthropic.com")?;
    }
    Ok(())
}

#[tokio::test]
async fn a_reader_that_never_runs_is_taken_away() -> Result<()> {
    let (cluster, namespace) = namespace("verbs-logs").await?;
    let runs = runs(cluster, &namespace).await?;
    let words = [
        "run", "submit", "-t", "echo", "--prompt", "hi", "--name", "hello",
    ];
    run(cluster, &namespace, &words).await?.ended_with(0)?;
    let early = run(cluster, &namespace, &["run", "logs", "hello"]).await?;
    early.ended_with(1)?.says("has no pod yet")?;
    run(cluster, &namespace, &["run", "logs", "hello", "--result"])
        .await?
        .ended_with(1)?
        .says("has not ended")?;
    becomes(
        &runs,
        "hello",
        json!({"phase": "Succeeded", "workspaceRef": "none"}),
    )
    .await?;
    // The strictest level of Pod Security lets it in.
    let namespaces =
        Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client("admin").await?);
    let restricted =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let parameters = PatchParams::default();
    namespaces
        .patch(namespace.name(), &parameters, &Patch::Merge(restricted))
        .await?;
    let image = format!("cat@sha256:{}", "0".repeat(64));
    // There is no claim, so it is never scheduled.
    let words = [
        "run",
        "logs",
        "hello",
        "--timeout",
        "1s",
        "--reader-image",
        &image,
    ];
    let late = run(cluster, &namespace, &words).await?;
    late.ended_with(1)?
        .says("did not read events.jsonl of run hello within 1s")?;
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(
        cluster.client("admin").await?,
        namespace.name(),
    );
    let left = pods.list(&ListParams::default()).await?;
    assert_eq!(left.items.len(), 0, "{left:?}");
    let kept = run(
        cluster,
        &namespace,
        &[&words[..], &["--keep-reader"]].concat(),
    )
    .await?;
    kept.ended_with(1)?
        .says("stays, because of --keep-reader")?;
    let left = pods.list(&ListParams::default()).await?;
    assert!(
        left.items
            .iter()
            .all(|pod| pod.name_any().starts_with("hello-reader-"))
    );
    assert_eq!(left.items.len(), 1);
    Ok(())
}
