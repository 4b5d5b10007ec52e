//! The memory of the proxy over many requests: 10,000, and 100,000 in the long form (`OZ_LONG=1`).

use anyhow::{Context as _, Result};
use oz_e2e::agents::processes;
use oz_e2e::programs::Programs;
use oz_e2e::upstream::ECHO;
use oz_testkit::{resident_memory, scaled};

use super::world::World;

/// The image with the client.
const IMAGE: &str = "docker.io/library/load-client:dev";
/// The greatest growth, in KiB.
const GROWTH: u64 = 2 * 1024;

/// Returns the script of an agent that sends requests in two parts, and reports each of them. It ends if one fails.
fn script(requests: usize) -> String {
    let part = |number: usize, next: &str| {
        format!(
            "run-client load https://{ECHO}/nothing {requests} >/dev/null || exit 1; \
             echo '{{\"part\": {number}}}' >> report.jsonl; until [ -e {next} ]; do sleep 0.1; done; "
        )
    };
    let (first, second) = (part(1, "next"), part(2, "release"));
    format!("cd $PADDOCK_WORKSPACE; {first}{second}")
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_proxy_does_not_grow_with_requests() -> Result<()> {
    let Some(world) = World::start("memory").await? else {
        return Ok(());
    };
    let image = Programs::default().run_client()?.image(IMAGE)?;
    world.cluster.import_image(image)?;
    let requests = scaled(10_000, 100_000);
    world.policy(&[ECHO]).await?;
    let script = script(requests);
    let command = ["/bin/sh", "-c", &script];
    world.template(IMAGE, &command, &[ECHO], &[]).await?;
    let run = world.submit("memory", "Send requests.").await?;
    let pod = run.started().await?;
    let all = processes(&pod)?;
    let proxy = all.iter().find(|it| it.container == "proxy");
    let proxy = proxy.context("the proxy has no process")?.pid;
    let mut figures = Vec::new();
    for part in [1, 2] {
        run.report("the requests to end", |it| it["part"] == part)
            .await?;
        figures.push(resident_memory(proxy)?);
        std::fs::write(run.workspace(&pod)?.join("next"), "")?;
    }
    eprintln!("memory of the proxy after {requests} requests and as many more: {figures:?} KiB");
    let [before, after] = figures[..] else {
        anyhow::bail!("{figures:?}");
    };
    assert!(after <= before + GROWTH, "{figures:?}");
    run.release().await?;
    run.delete().await
}
