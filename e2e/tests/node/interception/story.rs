//! The whole story: an agent that speaks Claude's API with a key that it never sees.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oz_api::conditions;
use oz_api::harness::RunPhase;
use oz_e2e::agents::{CREDENTIAL, KEY};
use oz_e2e::upstream::ANTHROPIC;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;

use super::search;
use super::world::World;

/// Headers of the agent that Anthropic must not receive with the key.
const REMOVED: [&str; 3] = ["cookie", "x-forwarded-for", "x-of-the-agent"];

#[tokio::test(flavor = "multi_thread")]
async fn agent_reaches_its_api_with_a_key_that_it_never_sees() -> Result<()> {
    let Some(world) = World::start("story").await? else {
        return Ok(());
    };
    world.agent("agent.py").await?;
    let before = world.upstream.received().len();
    let run = world.submit("story", "Say hello.").await?;
    let report = run
        .report("the agent to have its answers", |it| it["step"] == "done")
        .await?;
    let of_step = |step: &str| {
        let line = report.iter().find(|it| it["step"] == step);
        line.with_context(|| format!("there is no step {step}: {report:?}"))
    };
    let placeholder = of_step("key")?["value"].as_str().unwrap_or_default();
    let digits = placeholder.strip_prefix("pdk-").unwrap_or_default();
    assert_eq!(digits.len(), 48, "{placeholder}");
    assert_eq!(of_step("hello")?["status"], 200);
    for step in ["whole", "stream"] {
        assert_eq!(of_step(step)?["text"], "You said: Say hello.", "{step}");
    }

    // The upstream saw the key, and nothing that the agent added to it.
    let received = world.upstream.received().split_off(before);
    let asked: Vec<_> = received
        .iter()
        .filter(|it| it.target == "/v1/messages")
        .collect();
    assert_eq!(asked.len(), 2, "{received:?}");
    for request in &asked {
        assert_eq!(request.host, ANTHROPIC);
        assert_eq!(request.header("x-api-key"), [KEY]);
        assert_eq!(request.header("anthropic-version"), ["2023-06-01"]);
        for name in REMOVED {
            assert_eq!(request.header(name), Vec::<&str>::new(), "{name}");
        }
    }
    assert!(
        !received.iter().any(|it| it.contains(placeholder)),
        "{received:?}"
    );

    // Nobody else sees it.
    let pod = run.started().await?;
    assert_eq!(search::in_containers(&pod, KEY)?, Vec::<String>::new());
    let values = [KEY.to_owned(), STANDARD.encode(KEY)];
    let in_objects = search::in_objects(&world.scene.admin, &values).await?;
    assert_eq!(in_objects, Vec::<String>::new());
    let state = world.cluster.state_dir();
    for directory in ["logs", "node/pod-logs", "node/kubelet/pods"] {
        let in_files = search::in_files(&state.join(directory), KEY)?;
        assert_eq!(in_files, Vec::<String>::new(), "{directory}");
    }
    let audit = std::fs::read_to_string(state.join("audit.log"))?;
    assert!(!values.iter().any(|value| audit.contains(value)));

    run.release().await?;
    assert_eq!(run.ended().await?, RunPhase::Succeeded);
    recorded(&world, asked.first().context("no request")?.at).await?;
    let status = run.get().await?.status.context("no status")?;
    for kind in ["BrokerReady", "BrokerCredentialsReady", "EgressConfigured"] {
        let condition = conditions::find(&status.conditions, kind);
        let condition = condition.with_context(|| format!("no {kind}: {status:?}"))?;
        assert_eq!(condition.status, "True", "{condition:?}");
    }
    let credentials = serde_json::to_value(&status.credentials)?;
    assert_eq!(credentials[0]["name"], CREDENTIAL, "{credentials}");
    assert_eq!(
        credentials[0]["deliveryMode"], "ProxyInjected",
        "{credentials}"
    );
    assert_eq!(credentials[0]["hosts"][0], ANTHROPIC, "{credentials}");
    Ok(())
}

/// Checks that the credential was recorded before the first request with it, and the host with its first connection.
async fn recorded(world: &World, first_request: jiff::Timestamp) -> Result<()> {
    eventually("the record to be complete", CONDITION_TIMEOUT, async || {
        let records = world.records("story")?;
        let find = |action: Action| records.iter().find(|it| it.action == action);
        let (Some(lent), Some(allowed), Some(ended)) = (
            find(Action::CredentialLent),
            find(Action::EgressAllowed),
            find(Action::RunEnded),
        ) else {
            let actions: Vec<_> = records.iter().map(|it| it.action).collect();
            anyhow::bail!("{actions:?}");
        };
        assert!(
            lent.time <= first_request,
            "{lent:?} is after {first_request}"
        );
        assert!(lent.time < ended.time, "{lent:?} is after {ended:?}");
        let names = |record: &oz_trail::Record, text: &str| {
            record.details.values().any(|detail| detail.contains(text))
        };
        assert!(
            names(lent, CREDENTIAL) && names(lent, ANTHROPIC),
            "{lent:?}"
        );
        assert!(names(allowed, ANTHROPIC), "{allowed:?}");
        Ok(Some(()))
    })
    .await
}
