//! Waiting for a run, and no longer waiting.

use super::*;

#[tokio::test]
async fn submit_shows_events_as_they_come_and_ends_as_the_run_did() -> Result<()> {
    for (phase, code) in [("Succeeded", 0), ("Failed", 1), ("Cancelled", 2)] {
        let (cluster, namespace) = namespace("verbs-wait").await?;
        let runs = runs(cluster, &namespace).await?;
        let words = [
            "run", "submit", "-t", "echo", "--prompt", "hi", "--reason", "INC-1", "--wait",
        ];
        let child = ozctl(cluster, &namespace, &words)?.spawn()?;
        let name = the_run(&runs).await?;
        let made = runs.get(&name).await?;
        assert!(name.starts_with("echo-"), "{name}");
        assert_eq!(made.spec.prompt.as_deref(), Some("hi"));
        assert_eq!(made.spec.reason.as_deref(), Some("INC-1"));
        let first = [event(1, "one \u{1b}[2Jof three")];
        becomes(
            &runs,
            &name,
            json!({"phase": "Running", "recentEvents": first}),
        )
        .await?;
        let two = [event(1, "one \u{1b}[2Jof three"), event(2, "two of three")];
        becomes(&runs, &name, json!({"recentEvents": two})).await?;
        // The first is gone from the ring.
        let last = [event(2, "two of three"), event(3, "three of three")];
        let end = json!({
            "phase": phase, "recentEvents": last, "conditions": completed(phase, "the agent has ended"),
            "outputs": {"summary": "all done", "filesChanged": 3},
        });
        becomes(&runs, &name, end).await?;
        let answer = ended(child).await?;
        answer.ended_with(code)?;
        for summary in ["one \u{fffd}[2Jof three", "two of three", "three of three"] {
            assert_eq!(
                answer.stderr.matches(summary).count(),
                1,
                "{}",
                answer.stderr
            );
        }
        let shown = format!("HarnessRun {name}: {phase}: the agent has ended\n");
        assert!(answer.stdout.starts_with(&shown), "{}", answer.stdout);
        answer.says("Summary: all done")?.says("Files changed: 3")?;
        // A watch, which is logged when it ends; nothing is asked over and over.
        let user = format!("{}-user", namespace.name());
        eventually(
            "one watch in the audit log",
            CONDITION_TIMEOUT,
            async || {
                let entries = cluster.audit().entries()?.by_user(&user);
                let asked = entries.on("paddock.dev", "harnessruns");
                let count = |verb: &str| asked.clone().with_verb(verb).len();
                ensure!((count("get"), count("list")) == (0, 0), "{asked:?}");
                Ok(((count("create"), count("watch")) == (1, 1)).then_some(()))
            },
        )
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn run_continues_after_waiting_client_ends() -> Result<()> {
    let (cluster, namespace) = namespace("verbs-leave").await?;
    let runs = runs(cluster, &namespace).await?;
    let submit = [
        "run", "submit", "-t", "echo", "--prompt", "hi", "--name", "hello", "--wait",
    ];
    let late = run(
        cluster,
        &namespace,
        &[&submit[..], &["--wait-timeout", "1s"]].concat(),
    )
    .await?;
    late.ended_with(124)?.says("`ozctl run cancel hello -n ")?;
    // Its name is taken.
    let again = run(cluster, &namespace, &submit).await?;
    again.ended_with(125)?.says("already exists")?;
    let refused = run(
        cluster,
        &namespace,
        &[&submit[..], &["--timeout", "soon"]].concat(),
    )
    .await?;
    refused.ended_with(125)?.says("spec.timeout")?;

    let words = [
        "run", "submit", "-t", "echo", "--prompt", "hi", "--name", "other", "--wait",
    ];
    let child = ozctl(cluster, &namespace, &words)?.spawn()?;
    eventually("the run", CONDITION_TIMEOUT, async || {
        Ok(runs.get_opt("other").await?)
    })
    .await?;
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
    ended(child)
        .await?
        .ended_with(130)?
        .says("`ozctl run cancel other -n ")?;
    assert!(runs.get_opt("other").await?.is_some());

    let cancelled = run(cluster, &namespace, &["run", "cancel", "other", "none"]).await?;
    cancelled
        .ended_with(1)?
        .says("HarnessRun other cancelled")?
        .says("no run none")?;
    assert!(runs.get_opt("other").await?.is_none());
    becomes(&runs, "hello", json!({"phase": "Succeeded"})).await?;
    let over = run(cluster, &namespace, &["run", "cancel", "hello"]).await?;
    over.ended_with(0)?.says("has ended (Succeeded)")?;
    assert!(runs.get_opt("hello").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn a_run_that_is_deleted_while_it_is_waited_for_is_cancelled() -> Result<()> {
    let (cluster, namespace) = namespace("verbs-deleted").await?;
    let runs = runs(cluster, &namespace).await?;
    let words = ["run", "submit", "-t", "echo", "--prompt", "hi", "--wait"];
    let child = ozctl(cluster, &namespace, &words)?.spawn()?;
    let name = the_run(&runs).await?;
    runs.delete(&name, &DeleteParams::default()).await?;
    ended(child)
        .await?
        .ended_with(2)?
        .says("was deleted before its end")?;
    Ok(())
}
