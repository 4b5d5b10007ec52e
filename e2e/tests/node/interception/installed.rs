//! A run with a credential while the chart has installed oz: with its rights, its NetworkPolicies, and brokers in pods.

use anyhow::{Context as _, Result};
use oz_api::harness::HarnessRun;
use oz_e2e::Scene;
use oz_e2e::agents::{AGENT, AGENT_IMAGE, CREDENTIAL, KEY};
use oz_e2e::upstream::ANTHROPIC;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use oz_trail::Action;

use super::world::{agent_image, upstream};
use crate::chart::records;
use crate::harness::said;

/// An agent that asks Claude's API once, and has the answer as its result.
const ASKING: &str = r#"
import json, os, urllib.request
message = {"model": "claude", "max_tokens": 64, "messages": [{"role": "user", "content": "hello"}]}
headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01",
           "content-type": "application/json"}
request = urllib.request.Request("https://api.anthropic.com/v1/messages", json.dumps(message).encode(), headers)
with urllib.request.urlopen(request, timeout=60) as response:
    text = json.load(response)["content"][0]["text"]
with open(os.environ["PADDOCK_RESULT_PATH"], "w") as file:
    json.dump({"summary": text}, file)
"#;

/// Checks that a run uses a key that it never sees, with the rights of the chart and the NetworkPolicies of a run.
pub(crate) async fn lent(cluster: &'static Cluster, scene: &Scene) -> Result<()> {
    agent_image(cluster).await?;
    let upstream = upstream(cluster).await?;
    let before = upstream.received().len();
    scene.agent_key(KEY).await?;
    scene.let_broker_read().await?;
    scene.agent_policy(&[ANTHROPIC]).await?;
    let command = ["python3", "-s", "-c", ASKING];
    scene
        .agent_template(AGENT_IMAGE, &command, &[ANTHROPIC], &[CREDENTIAL])
        .await?;
    let submit = [
        "run",
        "submit",
        "--name=asking",
        "-t",
        AGENT,
        "--prompt=Ask.",
        "--wait",
        "-o",
        "json",
    ];
    let run: HarnessRun = serde_json::from_str(&said(scene, &submit, 0).await?)?;
    let status = run.status.context("no status")?;
    let outputs = serde_json::to_value(&status.outputs)?;
    assert_eq!(outputs["summary"], "You said: hello", "{status:?}");
    let received = upstream.received().split_off(before);
    let mut keys = received.iter().flat_map(|it| it.header("x-api-key"));
    assert!(
        keys.all(|it| it == KEY) && !received.is_empty(),
        "{received:?}"
    );
    eventually("the lend to be on record", CONDITION_TIMEOUT, async || {
        let mut records = records(cluster)?.into_iter();
        let is_lent =
            records.any(|it| it.action == Action::CredentialLent && it.request.name == "asking");
        Ok(is_lent.then_some(()))
    })
    .await
}
